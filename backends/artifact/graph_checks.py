"""The graph of an artifact, `graph.wir`, and checks that the manifest is of it.

The graph says what the program computes. It is read once, however many parts of wscc ask for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Final

from wscc.backends.artifact.mistake import Mistake
from wscc.backends.emit.manifest import dead_links_of
from wscc.diagnostics import CompileError, Source
from wscc.ir.array import Kind
from wscc.ir.module import Level, Module
from wscc.ir.step import Loop, Step
from wscc.ir.streams.artifact import HostTensor, Manifest
from wscc.ir.text.parse import parse
from wscc.ir.verify import verify

FILE: Final = "graph.wir"
_SHARED: Final = (Kind.PARAM, Kind.INPUT, Kind.SCALAR)


@lru_cache(maxsize=8)
def graph_module(text: str) -> Module:
    """The forward module of a graph's text. `CompileError` W601, with the place, where it is none."""
    return parse(Source(FILE, text))


def check_graph(text: str, manifest: Manifest, arena_bytes: int) -> Module:
    """The module of a graph, which is valid and which the manifest is of. Raises `Mistake`."""
    try:
        module = graph_module(text)
        first = next(verify(module), None)
    except CompileError as error:
        first = error.diagnostics[0]
    if first is not None:
        line = first.label.span.line
        raise Mistake(FILE, f"{f'line {line}: ' if line else ''}{first.message}")
    for words in _mistakes(module, manifest):
        raise Mistake(FILE, words)
    die = module.die
    if arena_bytes > die.sram + die.hbm:
        words = f"`program.arena_bytes` is {arena_bytes:,}, and a die has {die.sram + die.hbm:,}"
        raise Mistake("manifest.json", words)
    return module


def _mistakes(graph: Module, m: Manifest) -> Iterator[str]:
    wafer = graph.machine
    if graph.level is not Level.GRAPH:
        yield f"it is of the {graph.level} level"
    if wafer.circuits is not None and not wafer.circuits.are_set:
        yield "it does not say which links are up"
    if any(a.unpadded for a in graph.arrays):
        yield "its arrays have pads, and those of a model have none"
    facts = {
        "name": (graph.name, m.name),
        "axes": (graph.axes, m.axes),
        "mesh": ((wafer.rows, wafer.cols, wafer.planes or 0), (m.rows, m.columns, m.planes)),
        "dead dies": (sorted(map(wafer.number, wafer.dead_dies)), sorted(m.dead_dies)),
        "nodes": ((wafer.hub, wafer.network), (m.hub, m.network)),
        "torus": (wafer.torus, m.torus),
        "dead links": (dead_links_of(wafer), tuple(sorted(m.dead_links))),
        "training": (replace(graph.train, data=""), replace(m.train, data="")),
    }
    for what, (ours, theirs) in facts.items():
        if ours != theirs:
            yield f"it has another {what} than `program.host` of manifest.json"
    tensors = {t.name: t for t in m.tensors if t.kind in _SHARED}
    for a in graph.arrays:
        if a.kind not in _SHARED:
            continue
        t = tensors.get(a.name)
        if t is None or _facts(t) != (a.kind, a.type.shape, a.type.dtype, a.extents, a.init):
            yield f"its array `{a.name}` is not that of `program.host.tensors` of manifest.json"
    most = max(a.count for a in graph.arrays)
    if (turns := _most_turns(graph.step)) > most:
        yield f"a loop of its step has {turns:,} turns, and no array has so many elements"
    names = {a.name for a in graph.arrays}
    for t in m.tensors:
        if t.kind in (Kind.PARAM, Kind.INPUT) and t.name not in names:
            yield f"it has no array `{t.name}`, and `program.host.tensors` of manifest.json has"


def _most_turns(step: Step) -> int:
    """The turns of its longest loop."""
    return max((max(s.count, _most_turns(s.body)) for s in step if isinstance(s, Loop)), default=1)


def _facts(t: HostTensor) -> tuple[object, ...]:
    return t.kind, t.shape, t.type.dtype, t.extents, t.init
