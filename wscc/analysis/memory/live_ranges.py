"""When each local of a scheduled procedure is live."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wscc.analysis.memory.access_cost import slow_costs
from wscc.analysis.memory.local_copies import local_copies
from wscc.analysis.statement_accesses import positions_by_buffer
from wscc.ir.memory import aligned
from wscc.ir.module import Procedure
from wscc.machine.wafer import Die


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A local holds something from statement `first` to statement `last`, both included; `size` is aligned.

    One that is never used has `last` < `first`. `cost` is the time that it takes longer, in seconds, where all its
    bytes come from the slow memory. Where a copy fills or empties it, its life may begin up to `later` statements later
    and end up to `sooner` statements sooner.
    """

    name: str
    size: int
    first: int
    last: int
    slot: bool
    cost: float = 0.0
    later: int = 0
    sooner: int = 0

    def meets(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last

    def within(self, first: int, last: int) -> Lifetime:
        """Its life from `first` to `last`, which is to contain the shortest."""
        later, sooner = self.later - (first - self.first), self.sooner - (self.last - last)
        return replace(self, first=first, last=last, later=later, sooner=sooner)


def lifetimes(procedure: Procedure, die: Die) -> tuple[Lifetime, ...]:
    """The life of each buffer, in the order of `procedure.buffers`, on the die where it is longest: all dies
    run the one order, so the union over dies is safe for each."""
    costs, touches = slow_costs(procedure, die), positions_by_buffer(procedure.body)
    later: dict[str, int] = {}
    sooner: dict[str, int] = {}
    for c in local_copies(procedure.body):
        filled, read = touches[c.slot], touches[c.source]
        part = c.parts
        if filled[0] == part.post:
            later[c.slot] = min(part.received, part.left, *filled[1:]) - part.post
        if read[-1] == part.left:
            sooner[c.source] = part.left - max(part.post, *read[:-1])
    return tuple(
        Lifetime(
            b.name,
            aligned(b.bytes),
            touches[b.name][0] if b.name in touches else 0,
            touches[b.name][-1] if b.name in touches else -1,
            b.slot,
            costs.get(b.name, 0.0),
            later.get(b.name, 0),
            sooner.get(b.name, 0),
        )
        for b in procedure.buffers
    )


def live_peak(lives: tuple[Lifetime, ...]) -> int:
    """The most bytes that are live at one statement."""
    end = max((life.last for life in lives), default=-1) + 2
    change = np.zeros(end, np.int64)
    for life in lives:
        if life.first <= life.last:
            change[life.first] += life.size
            change[life.last + 1] -= life.size
    return int(np.cumsum(change).max(initial=0))
