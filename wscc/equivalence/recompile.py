"""Differences between a compiled program and a new compilation of its graph, by die and instruction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar

import numpy as np

from wscc.backends.artifact.files import CALL_ORDER, Artifact
from wscc.backends.emit import emit
from wscc.backends.interpreter.load_checks import die_name
from wscc.backends.verify.findings import Finding
from wscc.diagnostics import Source
from wscc.driver.pipeline import Pipeline
from wscc.equivalence.same_code import SameCode
from wscc.ir.module import Module
from wscc.ir.streams.artifact import Manifest
from wscc.ir.streams.program import ProgramCall, ProgramLoop, ProgramStep, Streams
from wscc.passes.base import Fact, Pass
from wscc.passes.choices import ALLGATHERS, Choices
from wscc.passes.place import Place

# The most usual first; -O3 is -O2 for a strategy that was searched.
LEVELS = (2, 1, 0)


@dataclass(frozen=True, slots=True)
class _PlaceAs(Pass):
    """A placement pass that puts the logical dies on the physical `dies` of the program."""

    name: ClassVar[str] = Place.name
    requires: ClassVar[frozenset[Fact]] = Place.requires
    provides: ClassVar[frozenset[Fact]] = Place.provides

    dies: tuple[int, ...] = ()

    def run(self, module: Module) -> Module:
        return module.with_(dies=self.dies)


def differences(artifact: Artifact, graph: Module) -> Iterator[Finding]:
    """Findings where the program differs from a compilation of the graph, routes apart.

    Every optimisation level and way to gather is tried, and the one with fewest differences is taken. Raises
    `CompileError` if the graph cannot be compiled.
    """
    best: list[Finding] = []
    call_order = Source(CALL_ORDER, artifact.call_order) if artifact.call_order else None
    for level, allgather in product(LEVELS, ALLGATHERS):
        default = Pipeline.default(level, Choices(allgather=allgather, call_order=call_order))
        planned = default.replaced(_PlaceAs(artifact.streams.dies)).run(graph, verify_each=False)
        streams, manifest = emit(planned)
        findings = [*_between(artifact, streams, manifest), *_edges(artifact, planned)]
        if not findings:
            return
        if not best or len(findings) < len(best):
            best = findings
    yield from best


def _edges(artifact: Artifact, planned: Module) -> Iterator[Finding]:
    """Findings where blocks of edges are others than those of a new compilation."""
    for name, content in planned.contents.items():
        if not np.array_equal(artifact.edges.get(name, ()), content):
            yield Finding("meaning", f"the edges `{name}` are not those of the graph")


def _between(artifact: Artifact, recompiled: Streams, manifest: Manifest) -> Iterator[Finding]:
    """Findings where the artifact differs from the recompiled streams and manifest."""
    program = _undelayed(artifact.streams)
    if artifact.manifest != replace(
        manifest, data_file=artifact.manifest.data_file, train=artifact.manifest.train
    ):
        yield Finding("meaning", "the manifest is not that of the graph")
    for stage, (a, b) in enumerate(zip(program.steps, recompiled.steps, strict=False)):
        if a != b:
            yield Finding("meaning", f"the step of stage {stage} is not that of the graph")
    if len(program.steps) != len(recompiled.steps) or len(program.roles) != len(recompiled.roles):
        yield Finding("meaning", "the graph has another number of stages or dies")
        return
    same = SameCode()
    codes = [{p.role: {c.name: c for c in p.procedures} for p in s.programs} for s in (program, recompiled)]
    for die, (role, other) in enumerate(zip(program.roles, recompiled.roles, strict=True)):
        procedures, recompiled_procedures = codes[0][role], codes[1][other]
        name = die_name(program.dies[die], artifact.manifest)
        if procedures.keys() != recompiled_procedures.keys():
            yield Finding("meaning", "has other procedures than the graph asks for", name)
            continue
        for procedure, code in procedures.items():
            rows = program.bindings[die], recompiled.bindings[die]
            instruction = same.first_difference(code, rows[0], recompiled_procedures[procedure], rows[1])
            if instruction is not None:
                message = "is not the instruction that the graph asks for"
                yield Finding("meaning", message, name, procedure, instruction)


def _undelayed(streams: Streams) -> Streams:
    """The streams without procedures that only delay: they change no result, and a program need not have them."""
    programs, names = [], set[str]()
    for p in streams.programs:
        delays = [c for c in p.procedures if c.body and all(x.opcode == "delay" for x in c.body)]
        names.update(c.name for c in delays)
        programs.append(replace(p, procedures=tuple(c for c in p.procedures if c not in delays)))

    def without_delays(step: ProgramStep) -> ProgramStep:
        return tuple(
            replace(s, body=without_delays(s.body)) if isinstance(s, ProgramLoop) else s
            for s in step
            if not (isinstance(s, ProgramCall) and s.procedure in names)
        )

    return replace(streams, programs=tuple(programs), steps=tuple(map(without_delays, streams.steps)))
