"""Checks of the programs and the steps of an artifact, instructions apart: roles, calls, loops, addresses.

Loops are not unrolled: an address is checked by its least and its greatest value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from wscc.backends.artifact.limits import (
    MOST_ARGUMENTS,
    MOST_BYTES,
    MOST_CALLS,
    MOST_COUNT,
    MOST_LOOPS,
    MOST_SCALAR,
)
from wscc.backends.artifact.mistake import Mistake
from wscc.ir.module import Module
from wscc.ir.step import Affine, calls
from wscc.ir.streams.artifact import Manifest
from wscc.ir.streams.program import Address, ProgramCall, ProgramLoop, ProgramStep, Streams, calls_by_name

FILE: Final = "programs.wsa"
# Times that a step may call a procedure for each micro-batch and layer of the graph: forward, backward, recomputed.
_TIMES: Final = 8


def check_steps(streams: Streams, manifest: Manifest, graph: Module) -> None:
    """Raise `Mistake` where programs and steps do not fit the manifest, or make more calls than the graph can need."""
    for words in (*_tables(streams), *_roles(streams, manifest)):
        raise Mistake(FILE, words)
    turns = max((times for _, times in calls(graph.step)), default=1)
    for stage, step in enumerate(streams.steps):
        args = {c.name: c.args for p in streams.programs if p.stage == stage for c in p.procedures}
        for words in _Step(args).mistakes(step, {}):
            raise Mistake(FILE, f"step {stage}: {words}")
        most = min(MOST_CALLS, _TIMES * (1 + len(args)) * turns)
        if (made := sum(calls_by_name(step).values())) > most:
            raise Mistake(
                FILE, f"step {stage} makes {made:,} calls, and {most:,} at most belong to its graph"
            )


def _tables(streams: Streams) -> Iterator[str]:
    for p in streams.programs:
        names = [c.name for c in p.procedures]
        if len(set(names)) < len(names):
            yield f"role {p.role} has two procedures of one name"
        for c in p.procedures:
            if not 0 <= c.args <= MOST_ARGUMENTS:
                yield f"`{c.name}` has {c.args} arguments: {MOST_ARGUMENTS:,} at most"
    low, high = (int(f(initial=0)) for f in (streams.bindings.min, streams.bindings.max))
    if low < -MOST_SCALAR or high > MOST_SCALAR:
        yield f"bindings.npy has a number beyond {MOST_SCALAR:,}"


def _roles(streams: Streams, m: Manifest) -> Iterator[str]:
    stage_of = {p.role: p.stage for p in streams.programs}
    if len(stage_of) < len(streams.programs):
        yield "a role has two programs"
    if len(streams.steps) != m.stages or not set(stage_of.values()) <= set(range(m.stages)):
        yield f"it has {len(streams.steps)} steps and roles of other stages: `program.host.stages` is {m.stages}"
    each = len(streams.dies) // m.stages
    for die, role in enumerate(streams.roles):
        if stage_of.get(role) != die // each:
            yield f"die {die} is of stage {die // each}, and role {role} has no program of that stage"
    if unused := stage_of.keys() - set(streams.roles):
        yield f"no die has role {min(unused)}"


class _Step:
    """Mistakes of the calls of a step; `args` has the number of arguments of each procedure of its stage."""

    def __init__(self, args: dict[str, int]) -> None:
        self.args = args

    def mistakes(self, step: ProgramStep, counts: dict[str, int]) -> Iterator[str]:
        for s in step:
            if isinstance(s, ProgramLoop):
                yield from self._loop(s, counts)
            else:
                yield from self._call(s, counts)

    def _loop(self, loop: ProgramLoop, counts: dict[str, int]) -> Iterator[str]:
        if not 1 <= loop.count <= MOST_COUNT:
            yield f"loop `{loop.variable}` runs {loop.count} times: from 1 to {MOST_COUNT:,}"
        elif loop.variable in counts or len(counts) >= MOST_LOOPS:
            yield f"loop `{loop.variable}` is in one of its name, or in {MOST_LOOPS} others"
        else:
            yield from self.mistakes(loop.body, {**counts, loop.variable: loop.count})

    def _call(self, call: ProgramCall, counts: dict[str, int]) -> Iterator[str]:
        if self.args.get(call.procedure) != len(call.args):
            yield f"no procedure `{call.procedure[:40]}` has {len(call.args)} arguments"
        for n, a in enumerate(call.args):
            if words := _address(a, counts):
                yield f"argument {n} of `{call.procedure}` {words}"


def _address(a: Address, counts: dict[str, int]) -> str:
    """What is wrong with an address, whatever it points to; empty if nothing is."""
    if any(v not in counts for index, _ in a.terms for v, _ in index.terms):
        return "has a variable of no loop around it"
    numbers = [a.base, *(n for index, stride in a.terms for n in (stride, *_numbers(index)))]
    if any(abs(n) > MOST_BYTES for n in numbers) or any(index.modulus < 0 for index, _ in a.terms):
        return f"has a number beyond {MOST_BYTES:,}, or a negative modulus"
    return ""


def _numbers(index: Affine) -> Iterator[int]:
    yield from (index.base, index.modulus, *(c for _, c in index.terms))
