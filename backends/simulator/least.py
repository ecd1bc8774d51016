"""A lower bound of the time of a step, for any order of its instructions, without simulating it."""

from __future__ import annotations

from collections.abc import Iterator

from wscc.backends.simulator.calls import Builder, DieCall
from wscc.backends.simulator.drafts import PORT
from wscc.ir.streams.program import Address, ProgramCall, ProgramStep


def least_ticks(b: Builder) -> int:
    """The lower bound in ticks: the largest, over one die of each role and class, of the time of its instructions one
    after the other and of that of its HBM for them and its messages. An argument that is in HBM in some calls and in
    SRAM in others counts as in SRAM."""
    firsts: dict[tuple[int, int], int] = {}
    for die, role in enumerate(b.streams.roles):
        firsts.setdefault((role, b.classes[die]), die)
    return max(_die(b, die) for die in firsts.values())


def _die(b: Builder, die: int) -> int:
    busy = amount = 0
    stage = b.stages[die]
    for call, lowest, times in _calls(b.streams.steps[stage], {}, 1):
        die_call = b.call(die, call.procedure, b.places(stage, call.procedure, lowest))
        busy += times * _busy(die_call)
        amount += times * die_call.hbm_bytes
    return max(busy, b.costs.hbm(amount, b.classes[die]))


def _busy(call: DieCall) -> int:
    return call.draft.busy + sum(max(s.ticks, s.hbm) for s in call.draft.steps if s.kind == PORT)


def _calls(
    step: ProgramStep, counts: dict[str, int], times: int
) -> Iterator[tuple[ProgramCall, list[int], int]]:
    """(call, lowest address of each argument, number of times) for every call; loops are not unrolled."""
    for stmt in step:
        if isinstance(stmt, ProgramCall):
            yield stmt, [_lowest(a, counts) for a in stmt.args], times
        elif stmt.count:
            yield from _calls(stmt.body, {**counts, stmt.variable: stmt.count}, times * stmt.count)


def _lowest(address: Address, counts: dict[str, int]) -> int:
    """The lowest value of an address over all turns of the loops, whose numbers of turns are in `counts`."""
    lowest = address.base
    for index, stride in address.terms:
        if not index.modulus:
            lowest += stride * (index.base + sum(min(0, c * (counts[v] - 1)) for v, c in index.terms))
    return lowest
