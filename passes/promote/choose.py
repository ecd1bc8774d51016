"""Copies of arguments that are worth a place in the fast memory, in competition with the locals of a procedure.

Seconds are those of `access_cost`, at the rates of the wafer. The waits of copies for one another are an average queue;
messages at the same port, and positions in the body where copies coincide, are left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from wscc.analysis.cost import Rates
from wscc.analysis.memory.access_cost import CumulativeWork, cumulative_work, statement_costs
from wscc.analysis.memory.handed import Handed
from wscc.analysis.memory.likely_ranges import ranges_of_locals, spans_of_use
from wscc.analysis.memory.live_ranges import LiveRange, handed_ranges
from wscc.analysis.memory.pack_two_level import names_in_fast
from wscc.analysis.statement_accesses import Access, accesses_by_buffer, where_of
from wscc.analysis.transfer_groups import WINDOW
from wscc.ir.die_arrays import as_array
from wscc.ir.fabric import Buffer
from wscc.ir.memory import aligned
from wscc.ir.module import Procedure
from wscc.ir.views import View
from wscc.machine.wafer import Die
from wscc.passes.promote.boxes import Argument
from wscc.passes.promote.phases import Copy, DieMask, by_box, copies_of_local, split_by_work

# Work hides copies as far as there is any; at least this fraction of their time is counted all the same.
_MIN_EXPOSED: Final = 0.25
_NO_TIME: Final = 1e-30
# A copy that saves less than this fraction of a link's latency is not worth its instructions.
_WORTH: Final = 0.1
# Memory is tight where locals that do not fit cost at least this part of a procedure's work. They are split, and this
# part of the SRAM may be full: ranges are longer once messages overlap work, and what does not fit then goes from HBM
# to HBM.
_TIGHT: Final = 0.1
_ROOM: Final = 0.9
# Uses of a box that is only read get a copy each if the work between them hides copies of this part of the SRAM.
_APART: Final = 0.7


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
    dies: int
    work: CumulativeWork
    by_buffer: dict[str, list[Access]]
    costs: list[tuple[int, View, float]]
    spans: dict[str, tuple[int, int]]

    @staticmethod
    def of(procedure: Procedure, die: Die, dies: int) -> Measured:
        """What is known of a procedure on so many dies of a kind."""
        by_buffer = accesses_by_buffer(procedure.body)
        work, costs = cumulative_work(procedure, die), list(statement_costs(procedure, die))
        return Measured(procedure, dies, work, by_buffer, costs, spans_of_use(procedure, by_buffer))

    def where(self, a: Access) -> DieMask:
        """The dies on which a statement makes an access."""
        where = where_of(self.procedure.body[a.position], self.dies, writes=a.writes)
        return as_array(where, self.dies).astype(np.bool_)


def profitable_copies(
    measured: Measured,
    arguments: list[Argument],
    rates: Rates[float],
    die: Die,
    handed: Iterable[Handed] = (),
) -> Choice:
    """The copies that save time and fit the fast memory, beside what calls hand on and locals that save more.

    Where many locals do not fit, they are split into the phases of their use.
    """
    candidates = list(copies(measured.by_buffer, arguments, measured.work, rates.die.hbm(_APART * die.sram)))
    offer = _Offer(measured, rates, die, handed, candidates)
    best, spilled = offer.choice({}, 1.0)
    tight = sum(spilled.values()) > _TIGHT * float(measured.work.seconds[-1])
    return offer.in_phases(_ROOM) if tight else best


@dataclass(frozen=True, slots=True)
class _Offer:
    """What competes for the fast memory: copies of arguments, locals of a procedure, and what calls hand on."""

    measured: Measured
    rates: Rates[float]
    die: Die
    handed: Iterable[Handed]
    candidates: list[Copy]
    _by_local: dict[str, list[Copy]] = field(default_factory=dict)

    def in_phases(self, room: float) -> Choice:
        """The best choice where locals that do not fit are split, as long as that saves time."""
        best, spilled = self.choice({}, room)
        parts: dict[str, list[Copy]] = {}
        while more := self._split(spilled):
            choice, spilled = self.choice(parts | more, room)
            if choice.lost >= best.lost:
                break
            best, parts = choice, parts | more
        return best

    def _split(self, spilled: Mapping[str, float]) -> dict[str, list[Copy]]:
        """Copies of locals in the phases of their use, of those that have any. Messages arrive in slots, and go on from
        there at once."""
        buffers = (b for b in self.measured.procedure.buffers if b.name in spilled and not b.slot)
        return {b.name: copies for b in buffers if (copies := self._copies(b))}

    def _copies(self, b: Buffer) -> list[Copy]:
        m = self.measured
        if b.name not in self._by_local:
            local = Argument(b.name, b.elements, b.dtype, live_in=False, live_out=False)
            # Work between phases hides its copies out and in.
            apart = self.rates.die.hbm(2 * local.bytes)
            self._by_local[b.name] = list(copies_of_local(local, m.by_buffer[b.name], m.work, apart, m.where))
        return self._by_local[b.name]

    def choice(self, split: Mapping[str, list[Copy]], room: float) -> tuple[Choice, dict[str, float]]:
        """The best choice if some locals are offered as these copies and this part of the fast memory may be full, and
        what the other locals that do not fit cost."""
        m, rates = self.measured, self.rates
        total = float(m.work.seconds[-1])
        candidates = [*self.candidates, *(c for cs in split.values() for c in cs)]
        seconds = {c.name: rates.die.hbm(c.times * c.bytes) for c in candidates}
        queue = _queue(seconds, total)
        costs, costs_of_locals = _costs(m.costs, {c.argument.name for c in candidates})
        accessed = {c.name: sum(costs[a.position, a.view] for a in c.accesses) for c in candidates}
        locals_ = [x for x in ranges_of_locals(m.procedure, m.spans, costs_of_locals) if x.name not in split]
        ranges = [*locals_, *handed_ranges(self.handed, m.spans, len(m.procedure.body))]

        def gain(c: Copy, exposed: float) -> float:
            saved = accessed[c.name] + len(c.accesses) * queue[c.name]
            return saved - exposed * (seconds[c.name] + c.times * queue[c.name])

        def fitting(exposed: float) -> tuple[Choice, dict[str, float], float]:
            """The choice if this fraction of the time of copies is exposed, the costs of locals that do not fit,
            and the seconds that the memory's port is then busy."""
            gains = {c.name: gain(c, exposed) for c in candidates}
            profitable = [c for c in candidates if gains[c.name] > _WORTH * rates.link.latency]
            offered = (*ranges, *(_live_range(c, gains[c.name]) for c in profitable))
            fits = names_in_fast(offered, int(room * self.die.sram))
            fitted = [c for c in profitable if c.name in fits]
            spilled = {x.name: x.cost for x in locals_ if x.cost and x.name not in fits}
            copied = sum(seconds[c.name] for c in fitted)
            left = sum(accessed.values()) - sum(accessed[c.name] for c in fitted)
            busy = copied + sum(spilled.values())
            return Choice(tuple(fitted), left + busy - (1 - exposed) * copied), spilled, busy

        first = _exposed(total, sum(seconds.values()))
        choice, spilled, busy = fitting(first)
        # Locals that do not fit keep the port busy as well, so that less of the copies is hidden: a second round.
        second = _exposed(total, busy)
        return fitting(second)[:2] if second > first else (choice, spilled)


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
    by_buffer: dict[str, list[Access]], arguments: Iterable[Argument], work: CumulativeWork, apart: float
) -> Iterator[Copy]:
    """All candidates: a copy for each box, or of a box that is only read, for each cluster of uses that are more than
    `apart` seconds of work from the others."""
    for argument in arguments:
        for n, box, inside in by_box(argument, by_buffer.get(argument.name, [])):
            writes = any(a.writes for a in inside)
            clusters = [inside] if writes or not argument.live_in else split_by_work(inside, work, apart)
            for k, cluster in enumerate(clusters):
                yield Copy(
                    f"{argument.name}.{n}.{k}", argument, box, tuple(cluster), argument.live_in, writes
                )


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
