"""Live ranges of the locals of a scheduled procedure, and the most bytes that are live at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from wscc.analysis.memory.access_cost import slow_costs
from wscc.analysis.memory.handed import Handed, HandedIn
from wscc.analysis.memory.local_copies import local_copies
from wscc.analysis.statement_accesses import positions_by_buffer
from wscc.ir.memory import aligned
from wscc.ir.module import Procedure
from wscc.machine.wafer import Die


@dataclass(frozen=True, slots=True)
class LiveRange:
    """A local of `size` aligned bytes that is live from statement `first` to statement `last`, both included.

    One that is never used has `last` < `first`. `cost`: the seconds that statements take longer if all its bytes come
    from HBM. Where a copy within a die fills or empties the local, its range may begin up to `start_slack` statements
    later and end up to `end_slack` statements earlier. One with an `address` lies there, whatever else does.
    """

    name: str
    size: int
    first: int
    last: int
    slot: bool
    cost: float = 0.0
    start_slack: int = 0
    end_slack: int = 0
    address: int = -1

    def within(self, first: int, last: int) -> LiveRange:
        """The range from `first` to `last`, which has to contain the shortest one that the slack allows."""
        start_slack, end_slack = self.start_slack - (first - self.first), self.end_slack - (self.last - last)
        return replace(self, first=first, last=last, start_slack=start_slack, end_slack=end_slack)


def live_ranges(procedure: Procedure, die: Die | None = None) -> tuple[LiveRange, ...]:
    """The live range of each buffer, in the order of `procedure.buffers`; its cost on a die, or 0 without one.

    A range is the union of those on all dies: they run the statements in one order, so it is safe on each.
    """
    return _live_ranges(procedure, positions_by_buffer(procedure.body), die)


def _live_ranges(
    procedure: Procedure, positions: Mapping[str, list[int]], die: Die | None
) -> tuple[LiveRange, ...]:
    costs = slow_costs(procedure, die) if die is not None else {}
    start_slack: dict[str, int] = {}
    end_slack: dict[str, int] = {}
    locals_ = {b.name for b in procedure.buffers}
    for c in local_copies(procedure.body):
        slot_uses, source_uses = positions[c.slot], positions[c.source]
        message = c.message
        if slot_uses[0] == message.post and c.shortens(c.slot, locals_):
            start_slack[c.slot] = min(message.received, message.sent, *slot_uses[1:]) - message.post
        if source_uses[-1] == message.sent and c.shortens(c.source, locals_):
            end_slack[c.source] = message.sent - max(message.post, *source_uses[:-1])
    return tuple(
        LiveRange(
            b.name,
            aligned(b.bytes),
            positions[b.name][0] if b.name in positions else 0,
            positions[b.name][-1] if b.name in positions else -1,
            b.slot,
            costs.get(b.name, 0.0),
            start_slack.get(b.name, 0),
            end_slack.get(b.name, 0),
        )
        for b in procedure.buffers
    )


def all_ranges(procedure: Procedure, handed: HandedIn, die: Die | None = None) -> tuple[LiveRange, ...]:
    """The live ranges of the buffers, as of `live_ranges`, and of what is handed to, by, or past the procedure."""
    positions = positions_by_buffer(procedure.body)
    ranges = _live_ranges(procedure, positions, die)
    if procedure.name not in handed:
        return ranges
    uses = {name: (at[0], at[-1]) for name, at in positions.items()}
    return *ranges, *handed_ranges(handed[procedure.name], uses, len(procedure.body))


def handed_ranges(
    handed: Iterable[Handed], uses: Mapping[str, tuple[int, int]], end: int
) -> tuple[LiveRange, ...]:
    """The ranges in which arrays that are handed on hold a value in a procedure of `end` statements; `uses` has the
    first and the last statement that uses each argument."""
    ranges = []
    for h in handed:
        spans = [(f"{h.array} lives on", 0, end)] if h.lives_on else []
        # What is read was there at the start, and what is written stays to the end; both where one is not used.
        spans += [(n, 0, uses[n][1] if n in uses else end) for n in sorted(h.reads)]
        spans += [(n, uses[n][0] if n in uses else 0, end) for n in sorted(h.writes)]
        ranges += [LiveRange(n, h.bytes, first, last, False, address=h.address) for n, first, last in spans]
    return tuple(ranges)


def live_peak(ranges: tuple[LiveRange, ...]) -> int:
    """The most bytes that are live at one statement: a lower bound of the size of any packing."""
    end = max((r.last for r in ranges), default=-1) + 2
    change = np.zeros(end, np.int64)
    for r in ranges:
        if r.first <= r.last:
            change[r.first] += r.size
            change[r.last + 1] -= r.size
    return int(np.cumsum(change).max(initial=0))
