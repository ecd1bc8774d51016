"""Check that every access of a planned module stays inside a buffer that is live, by code of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod

from wscc.ir.fabric import Kernel, Post, Send, Wait
from wscc.ir.module import Module, Procedure
from wscc.ir.per_die import at
from wscc.ir.views import View


def violations(module: Module) -> Iterator[str]:
    """Messages about views that leave their buffer or argument, live buffers that share bytes, arrays that share
    bytes."""
    for p in module.procedures:
        sizes = {v.name: prod(v.type.local_shape(module.sizes)) for v in p.arguments}
        sizes |= {b.name: b.elements for b in p.buffers}
        for view in views(p):
            for die in range(module.dies_used):
                first = at(view.offset, die)
                ends = [first + sum((n - 1) * s for n, s in zip(view.shape, view.strides, strict=True))]
                if not 0 <= first <= max(ends) < sizes[view.buffer]:
                    yield f"{p.name}: {view} leaves its {sizes[view.buffer]} elements on die {die}"
        yield from _shared_bytes(p)
    yield from _shared_arrays(module)


def views(p: Procedure) -> Iterator[View]:
    for stmt in p.body:
        if isinstance(stmt, Kernel):
            yield from (*stmt.writes, *stmt.reads)
        elif isinstance(stmt, Post):
            yield stmt.write
        elif isinstance(stmt, Send):
            yield stmt.read


def _shared_bytes(p: Procedure) -> Iterator[str]:
    spans: dict[str, list[int]] = {}
    channels: dict[tuple[int, bool], str] = {}
    for i, stmt in enumerate(p.body):
        names: list[str] = []
        if isinstance(stmt, Kernel):
            names = [v.buffer for v in (*stmt.writes, *stmt.reads)]
        elif isinstance(stmt, Post):
            names = [stmt.write.buffer]
            channels[stmt.channel, False] = stmt.write.buffer
        elif isinstance(stmt, Send):
            names = [stmt.read.buffer]
            channels[stmt.channel, True] = stmt.read.buffer
        elif isinstance(stmt, Wait):
            names = [channels[stmt.channel, stmt.sent]]
        for name in names:
            spans.setdefault(name, [i, i])[1] = i
    locals_ = [b for b in p.buffers if b.name in spans]
    for n, a in enumerate(locals_):
        for b in locals_[n + 1 :]:
            live = spans[a.name][0] <= spans[b.name][1] and spans[b.name][0] <= spans[a.name][1]
            if live and a.address < b.address + b.bytes and b.address < a.address + a.bytes:
                yield f"{p.name}: {a.name} and {b.name} are live together and share bytes"


def _shared_arrays(module: Module) -> Iterator[str]:
    assert module.memory is not None
    places = {p.array: p for p in module.memory.arrays}
    for stage in range(module.stages):
        arrays = [a for a in module.arrays if a.stage in (-1, stage) and not a.storage]
        spans = sorted(
            (places[a.name].address, places[a.name].address + a.count * places[a.name].stride, a.name)
            for a in arrays
        )
        for (_, end, a), (start, _, b) in pairwise(spans):
            if start < end:
                yield f"arrays {a} and {b} of stage {stage} share bytes"
