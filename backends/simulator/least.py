"""What no order of the instructions of a program can beat, without running any: a bound in a fraction of the time."""

from __future__ import annotations

from collections.abc import Iterator

from wscc.backends.simulator.calls import COMPUTE, Builder, DieCall
from wscc.ir.streams.program import Address, ProgramCall, ProgramStep


def least_ticks(b: Builder) -> int:
    """Of the dies, one of each role: the longest that its own instructions take one after the other, and that its HBM
    serves them and its messages. An argument that some calls have in HBM and others in SRAM counts as in SRAM."""
    firsts: dict[int, int] = {}
    for die, role in enumerate(b.streams.roles):
        firsts.setdefault(role, die)
    return max(_die(b, die) for die in firsts.values())


def _die(b: Builder, die: int) -> int:
    busy = amount = 0
    stage = b.stages[die]
    for call, lowest, times in _calls(b.streams.steps[stage], {}, 1):
        made = b.call(die, call.procedure, b.places(stage, call.procedure, lowest))
        busy += times * _busy(made)
        amount += times * made.hbm_bytes
    return max(busy, b.costs.hbm(amount))


def _busy(call: DieCall) -> int:
    return sum(max(step.ticks, step.hbm) for step in call.steps if step.kind == COMPUTE)


def _calls(
    step: ProgramStep, counts: dict[str, int], times: int
) -> Iterator[tuple[ProgramCall, list[int], int]]:
    """Every call with the lowest address of each argument, and how often it is made; loops are not walked through."""
    for stmt in step:
        if isinstance(stmt, ProgramCall):
            yield stmt, [_lowest(a, counts) for a in stmt.args], times
        elif stmt.count:
            yield from _calls(stmt.body, {**counts, stmt.variable: stmt.count}, times * stmt.count)


def _lowest(address: Address, counts: dict[str, int]) -> int:
    """Of the addresses that the loops lead to, of which `counts` has the turns."""
    lowest = address.base
    for index, stride in address.terms:
        if not index.modulus:
            lowest += stride * (index.base + sum(min(0, c * (counts[v] - 1)) for v, c in index.terms))
    return lowest
