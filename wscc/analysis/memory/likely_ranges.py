"""Live ranges of locals as they are likely to be once messages overlap work, and what too small a fast memory costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wscc.analysis.memory.access_cost import slow_costs
from wscc.analysis.memory.live_ranges import LiveRange
from wscc.analysis.memory.pack_two_level import seconds_lost
from wscc.analysis.statement_accesses import Access, accesses_by_buffer
from wscc.analysis.transfer_groups import WINDOW
from wscc.ir.fabric import Transfer
from wscc.ir.memory import aligned
from wscc.ir.module import Procedure
from wscc.machine.wafer import Die


def lost_to_hbm(procedure: Procedure, die: Die) -> float:
    """About how many seconds accesses to locals in HBM take longer than in SRAM, in a call of a procedure that is not
    yet scheduled; but for what calls hand on."""
    spans = spans_of_use(procedure, accesses_by_buffer(procedure.body))
    return seconds_lost(tuple(ranges_of_locals(procedure, spans, slow_costs(procedure, die))), die.sram)


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

    def first(a: Access) -> int:
        return (
            transfers[max(0, number[a.position] - WINDOW)]
            if a.position in number and a.writes
            else a.position
        )

    def last(a: Access) -> int:
        is_read = a.position in number and not a.writes
        return transfers[min(len(transfers) - 1, number[a.position] + WINDOW)] if is_read else a.position

    return {
        buffer: (min(map(first, accesses)), max(map(last, accesses)))
        for buffer, accesses in by_buffer.items()
    }
