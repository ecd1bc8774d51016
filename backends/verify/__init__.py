"""`wscc verify`: checks without numbers that a compiled program runs to its end and reads the values that it should.

Only the artifact is read, and no pass is trusted. The checks, each of which relies on those before:

- load: dies, roles, calls, operands in bounds, shapes and element types as declared, none of these narrower than the
  model's, routes on live links;
- routes: channels and shares, merged routes a tree, no cycle of (link, channel)s;
- messages: every send has a slot of its bytes, in order, and every message is waited for;
- waits: no cycle of dies in a procedure, nor of stages in the step;
- memory: inside each procedure, no read of unwritten, overwritten or granted bytes, no write to bytes of a message;
- step: the same from call to call, from the arrays that the host writes to those that it reads.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from wscc.backends.artifact.files import Artifact
from wscc.backends.artifact.graph_checks import graph_module
from wscc.backends.interpreter.load_checks import die_name
from wscc.backends.interpreter.type_checks import narrow_operands
from wscc.backends.verify.findings import Finding, Findings
from wscc.backends.verify.load import check_load
from wscc.backends.verify.messages import Matched, Part, match, part_of
from wscc.backends.verify.order import stuck
from wscc.backends.verify.routes import check_routes, check_trees
from wscc.backends.verify.stages import check_stages
from wscc.backends.verify.step import check_step
from wscc.ir.streams.program import Streams, calls_by_name, stage_of_role


@dataclass(frozen=True, slots=True)
class Verdict:
    """The findings and figures of a check. `min_slot_depth` is the number of receive slots that a die must be able to
    grant at once: with one less, the die that needs most would wait for ever for a slot that only its own later
    `wait` frees; None if messages do not match. `messages` are those of one step, `instructions` those of all
    programs, `calls` those of all stages."""

    findings: tuple[Finding, ...]
    left_out: int
    min_slot_depth: int | None
    messages: int
    instructions: int
    calls: int
    seconds: float

    @property
    def ok(self) -> bool:
        return not self.findings


def verify_program(artifact: Artifact) -> Verdict:
    """The verdict on a compiled program."""
    start = time.perf_counter()
    findings, streams = Findings(), artifact.streams
    depth: int | None = None
    messages = 0
    if check_load(streams, artifact.manifest, findings):
        channels = graph_module(artifact.graph).machine.channels
        for f in check_routes(streams.routes, artifact.manifest.columns, channels):
            findings.add(f)
        matched = _check_messages(artifact, findings)
        if matched is not None:
            depth = max((part.slots for m in matched.values() for part in m.parts), default=0)
            messages = _count(streams, matched)
        check_step(streams, artifact.manifest, findings)
        for code, i, words in narrow_operands(artifact):
            findings.add(Finding("load", words, "", code.name, i))
    instructions = sum(len(c.body) for p in streams.programs for c in p.procedures)
    calls = sum(sum(calls_by_name(step).values()) for step in streams.steps)
    seconds = time.perf_counter() - start
    return Verdict(tuple(findings.found), findings.left_out, depth, messages, instructions, calls, seconds)


def _check_messages(artifact: Artifact, findings: Findings) -> dict[str, Matched] | None:
    """The matched messages of every procedure; None if there is a finding about them."""
    streams, manifest = artifact.streams, artifact.manifest
    name = partial(_name, artifact)
    before = len(findings.found)
    by_procedure: dict[str, Matched] = {}
    for procedure, parts in _parts(artifact, findings).items():
        for f in check_trees(parts, streams, name):
            findings.add(f)
        matched, mismatches = match(parts, streams, manifest)
        cycle = stuck(matched, name) if matched else None
        for f in (*mismatches, *([cycle] if cycle else ())):
            findings.add(f)
        if matched:
            by_procedure[procedure] = matched
    if len(findings.found) > before:
        return None
    for f in check_stages(streams.steps, _stages_of(streams, by_procedure)):
        findings.add(f)
    return by_procedure


def _name(artifact: Artifact, die: int) -> str:
    return die_name(artifact.streams.dies[die], artifact.manifest)


def _parts(artifact: Artifact, findings: Findings) -> dict[str, list[Part]]:
    """The parts of all roles in each procedure."""
    streams, roles = artifact.streams, np.asarray(artifact.streams.roles)
    parts: dict[str, list[Part]] = {}
    # Procedures that roles have in common are mostly one object.
    known: dict[int, tuple[Part, list[tuple[int, str]]]] = {}
    for p in streams.programs:
        dies = np.flatnonzero(roles == p.role)
        for code in p.procedures if len(dies) else ():
            if id(code) not in known:
                known[id(code)] = part_of(code, dies)
            part, errors = known[id(code)]
            parts.setdefault(code.name, []).append(replace(part, dies=dies))
            for i, words in errors:
                findings.add(Finding("messages", words, _name(artifact, int(dies[0])), code.name, i))
    return parts


def _stages_of(streams: Streams, by_procedure: dict[str, Matched]) -> dict[str, frozenset[int]]:
    """The stages of each procedure that has messages between stages."""
    by_role = stage_of_role(streams)
    stages = np.array([by_role[role] for role in streams.roles])
    stages_of = {}
    for procedure, matched in by_procedure.items():
        a, b = (stages[dies] for dies in matched.peers)
        if (a != b).any():
            stages_of[procedure] = frozenset(np.concatenate([a[a != b], b[a != b]]).tolist())
    return stages_of


def _count(streams: Streams, by_procedure: dict[str, Matched]) -> int:
    """The number of messages of one step, each counted at its sender."""
    by_role = stage_of_role(streams)
    stages = np.array([by_role[role] for role in streams.roles])
    total = 0
    for stage, step in enumerate(streams.steps):
        times = calls_by_name(step)
        for procedure, matched in by_procedure.items():
            total += times.get(procedure, 0) * int((stages[matched.peers[0]] == stage).sum())
    return total
