"""Copies of arguments that are worth a place in the fast memory, in competition with the locals of a procedure.

Seconds are those of `access_cost`, at the rates of the wafer. The waits of copies for one another are an average queue;
messages at the same port, and positions in the body where copies coincide, are left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from wscc.analysis.cost import Rates
from wscc.analysis.memory.access_cost import CumulativeWork, cumulative_work, statement_costs
from wscc.analysis.memory.handed import Handed
from wscc.analysis.memory.likely_ranges import ranges_of_locals, spans_of_use
from wscc.analysis.memory.live_ranges import LiveRange, handed_ranges
from wscc.analysis.memory.pack_two_level import names_in_fast
from wscc.analysis.statement_accesses import Access, accesses_by_buffer
from wscc.analysis.transfer_groups import WINDOW
from wscc.ir.memory import aligned
from wscc.ir.module import Procedure
from wscc.ir.views import View
from wscc.machine.wafer import Die, Wafer
from wscc.passes.promote.boxes import Argument, Box, boxes

# Work hides copies as far as there is any; at least this fraction of their time is counted all the same.
_MIN_EXPOSED: Final = 0.25
_NO_TIME: Final = 1e-30
# A copy that saves less than this fraction of a link's latency is not worth its instructions.
_WORTH: Final = 0.1
# Uses of a box that is only read get a copy each if the work between them hides copies of this part of the SRAM.
_APART: Final = 0.7


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy named `name` of a box of an argument in a local, which serves some accesses to the argument, in order."""

    name: str
    argument: Argument
    box: Box
    accesses: tuple[Access, ...]

    @property
    def first(self) -> int:
        """The position of the first access."""
        return self.accesses[0].position

    @property
    def last_write(self) -> int:
        """The last statement that writes the box, or -1."""
        return max((a.position for a in self.accesses if a.writes), default=-1)

    @property
    def bytes(self) -> int:
        """The size of the copy."""
        return self.box.view.bytes

    @property
    def times(self) -> int:
        """The number of transfers: in, out, or both."""
        return self.argument.live_in + (self.last_write >= 0)


@dataclass(frozen=True, slots=True)
class Choice:
    """The copies that are worth their places, and the seconds that a call still loses to HBM, by estimate."""

    copies: tuple[Copy, ...]
    lost: float


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known of a procedure whatever is handed to it: its cumulative work, the accesses to each buffer, the
    (position, view, seconds) of `statement_costs`, and the statements between which each buffer is used."""

    procedure: Procedure
    work: CumulativeWork
    by_buffer: dict[str, list[Access]]
    costs: list[tuple[int, View, float]]
    spans: dict[str, tuple[int, int]]

    @staticmethod
    def of(procedure: Procedure, die: Die) -> Measured:
        """What is known of a procedure on a die."""
        by_buffer = accesses_by_buffer(procedure.body)
        work, costs = cumulative_work(procedure, die), list(statement_costs(procedure, die))
        return Measured(procedure, work, by_buffer, costs, spans_of_use(procedure, by_buffer))


def profitable_copies(
    measured: Measured, arguments: list[Argument], machine: Wafer, handed: Iterable[Handed] = ()
) -> Choice:
    """The copies that save time and fit the fast memory, beside what calls hand on and locals that save more."""
    procedure, die, rates = measured.procedure, machine.die, Rates.of(machine)
    total = float(measured.work.seconds[-1])
    candidates = list(copies(measured.by_buffer, arguments, measured.work, rates.die.hbm(_APART * die.sram)))
    seconds = {c.name: rates.die.hbm(c.times * c.bytes) for c in candidates}
    queue = _queue(seconds, total)
    costs, costs_of_locals = _costs(measured.costs, {a.name for a in arguments})

    def gain(c: Copy, exposed: float) -> float:
        saved = sum(costs[a.position, a.view] + queue[c.name] for a in c.accesses)
        return saved - exposed * (seconds[c.name] + c.times * queue[c.name])

    ranges = [
        *ranges_of_locals(procedure, measured.spans, costs_of_locals),
        *handed_ranges(handed, measured.spans, len(procedure.body)),
    ]

    accessed = {c.name: sum(costs[a.position, a.view] for a in c.accesses) for c in candidates}

    def fitting(exposed: float) -> tuple[Choice, float]:
        """The choice if this fraction of the time of copies is exposed, and the seconds that the memory's port is then
        busy."""
        gains = {c.name: gain(c, exposed) for c in candidates}
        profitable = [c for c in candidates if gains[c.name] > _WORTH * rates.link.latency]
        fits = names_in_fast((*ranges, *(_live_range(c, gains[c.name]) for c in profitable)), die.sram)
        fitted = [c for c in profitable if c.name in fits]
        spilled = sum(x.cost for x in ranges if x.name not in fits)
        copied = sum(seconds[c.name] for c in fitted)
        left = sum(accessed.values()) - sum(accessed[c.name] for c in fitted)
        return Choice(tuple(fitted), left + spilled + exposed * copied), copied + spilled

    first = _exposed(total, sum(seconds.values()))
    choice, busy = fitting(first)
    # Locals that do not fit keep the port busy as well, so that less of the copies is hidden: a second round.
    second = _exposed(total, busy)
    return fitting(second)[0] if second > first else choice


def _exposed(work: float, busy: float) -> float:
    """The fraction of copies' time that `work` does not hide, if the memory's port is `busy` for so many seconds."""
    return max(_MIN_EXPOSED, 1 - work / max(busy, _NO_TIME))


def _queue(copies: dict[str, float], work: float) -> dict[str, float]:
    """Average seconds that an access waits at the memory's port for copies other than the one named.

    This is the mean residual service time of a queue (M/G/1): the fraction of the time that the port is busy with a
    copy, times half of the copy's duration, summed over copies.
    """
    squares = sum(s * s for s in copies.values())
    total = max(sum(copies.values()), work, _NO_TIME)
    return {name: (squares - s * s) / (2 * total) for name, s in copies.items()}


def copies(
    by_buffer: dict[str, list[Access]], arguments: list[Argument], work: CumulativeWork, apart: float
) -> Iterator[Copy]:
    """All candidates: a copy for each box, or of a box that is only read, for each cluster of uses that are more than
    `apart` seconds of work from the others."""
    for argument in arguments:
        accesses = by_buffer.get(argument.name, [])
        found = boxes(argument, (a.view for a in accesses))
        inside_of: list[list[Access]] = [[] for _ in found.boxes]
        for a in accesses:
            inside_of[found.number_of[a.view]].append(a)
        for n, (box, inside) in enumerate(zip(found.boxes, inside_of, strict=True)):
            clusters = _split_by_work(inside, work, apart) if argument.live_in else [inside]
            for k, cluster in enumerate(clusters):
                yield Copy(f"{argument.name}.{n}.{k}", argument, box, tuple(cluster))


def _split_by_work(accesses: list[Access], work: CumulativeWork, apart: float) -> Iterator[list[Access]]:
    """Clusters of accesses with more than `apart` seconds of work between them; one cluster if any of them writes."""
    if any(a.writes for a in accesses):
        yield accesses
        return
    start = 0
    for i, (a, b) in enumerate(pairwise(accesses), 1):
        if work.seconds[b.position] - work.seconds[a.position] > apart:
            yield accesses[start:i]
            start = i
    yield accesses[start:]


def _costs(
    costs: Iterable[tuple[int, View, float]], arguments: set[str]
) -> tuple[dict[tuple[int, View], float], dict[str, float]]:
    """The seconds that each statement takes longer with a view of an argument in HBM, by position and view, and those
    that all take longer with a local there, by name."""
    by_access: dict[tuple[int, View], float] = {}
    by_local: dict[str, float] = {}
    for i, view, seconds in costs:
        if view.buffer in arguments:
            by_access[i, view] = max(by_access.get((i, view), 0.0), seconds)
        else:
            by_local[view.buffer] = by_local.get(view.buffer, 0.0) + seconds
    return by_access, by_local


def _live_range(c: Copy, gain: float) -> LiveRange:
    """The range of the uses of a copy; `schedule` copies earlier and later as far as there is room."""
    return LiveRange(c.name, aligned(c.bytes), c.first, c.accesses[-1].position, slot=False, cost=gain)


def latest_copy_position(transfers: list[int], first: int) -> int:
    """Latest position at which the copy that statement `first` uses must be complete: a message may begin earlier than
    its transfer stands. The positions of all `transfers` ascend."""
    n = bisect_left(transfers, first)
    is_transfer = n < len(transfers) and transfers[n] == first
    return transfers[max(0, n - WINDOW)] if is_transfer else first
