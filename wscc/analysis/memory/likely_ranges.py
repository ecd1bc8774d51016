"""Live ranges of locals as they are likely to be once messages overlap work, and what too small a fast memory costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from wscc.analysis.memory.access_cost import copy_cost, slow_costs
from wscc.analysis.memory.live_ranges import LiveRange
from wscc.analysis.memory.pack_two_level import seconds_lost
from wscc.analysis.statement_accesses import Access, accesses_by_buffer
from wscc.analysis.transfer_groups import WINDOW
from wscc.ir.fabric import Transfer
from wscc.ir.memory import aligned
from wscc.ir.module import Procedure
from wscc.machine.wafer import Die


def lost_to_hbm(procedure: Procedure, die: Die, sizes: dict[str, int]) -> float:
    """About how many seconds accesses to HBM take longer than those to SRAM, in a call of a procedure that is not yet
    scheduled; but for what calls hand on, and for one copy of each argument. `sizes`: of the axes."""
    by_buffer = accesses_by_buffer(procedure.body)
    spans, costs = spans_of_use(procedure, by_buffer), slow_costs(procedure, die)
    arguments = _ranges_of_arguments(procedure, by_buffer, spans, costs, die, sizes)
    return seconds_lost((*ranges_of_locals(procedure, spans, costs), *arguments), die.sram)


def _ranges_of_arguments(
    procedure: Procedure, by_buffer: Mapping[str, list[Access]], spans: Mapping[str, tuple[int, int]],
    costs: Mapping[str, float], die: Die, sizes: dict[str, int],
) -> Iterator[LiveRange]:  # fmt: skip
    """The ranges of the arguments that are used, each with what its copy in the fast memory saves."""
    for v in procedure.arguments:
        if v.name in spans:
            amount = prod(v.type.local_shape(sizes)) * v.type.dtype.size
            ways = len({a.writes for a in by_buffer[v.name]})
            saved = max(0.0, costs.get(v.name, 0.0) - copy_cost(ways * amount, die))
            yield LiveRange(v.name, aligned(amount), *spans[v.name], slot=False, cost=saved)


def ranges_of_locals(
    procedure: Procedure, spans: Mapping[str, tuple[int, int]], costs: Mapping[str, float]
) -> Iterator[LiveRange]:
    """The ranges of the locals with these spans of use, and costs."""
    for b in procedure.buffers:
        if b.name in spans:
            yield LiveRange(b.name, aligned(b.bytes), *spans[b.name], b.slot, costs.get(b.name, 0.0))


def spans_of_use(procedure: Procedure, by_buffer: Mapping[str, list[Access]]) -> dict[str, tuple[int, int]]:
    """First and last statement of the use of each buffer and argument, if messages begin and end `WINDOW` transfers
    away."""
    transfers = [i for i, s in enumerate(procedure.body) if isinstance(s, Transfer)]
    number = {i: n for n, i in enumerate(transfers)}

    def span(accesses: list[Access]) -> tuple[int, int]:
        first, last = accesses[0].position, accesses[-1].position  # they ascend
        for position, _, writes in accesses:
            n = number.get(position)
            if n is not None and writes:
                first = min(first, transfers[max(0, n - WINDOW)])
            elif n is not None:
                last = max(last, transfers[min(len(transfers) - 1, n + WINDOW)])
        return first, last

    return {buffer: span(accesses) for buffer, accesses in by_buffer.items()}
