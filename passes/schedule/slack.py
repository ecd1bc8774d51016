"""When the parts of each transfer take place, from the dependencies of the body.

A *moment* is an integer: 2 i is just before statement i of the input, 2 i + 1 is statement i itself (if it is
a kernel) and what follows at once. -1 is the start, 2 n the end of a body of n statements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wscc.analysis.accesses import Accesses
from wscc.analysis.cost import DieRates
from wscc.analysis.memory.access_cost import pace
from wscc.analysis.transfer_groups import group_spans
from wscc.ir.fabric import Transfer
from wscc.ir.module import Procedure
from wscc.machine.wafer import Die

START = -1
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Moments:
    """Invariant: post and send <= 2 i < both waits, for the transfer at position i, unless all are equal."""

    post: int
    send: int
    received: int
    sent: int

    @classmethod
    def in_place(cls, i: int) -> Moments:
        """All at statement i, one after the other."""
        return cls(2 * i, 2 * i, 2 * i, 2 * i)


def moments(procedure: Procedure, found: Accesses, reach: Reach) -> dict[int, Moments]:
    """The moments of each transfer by position. Time grows with statements x regions that meet."""
    bounds = _bounds(procedure, reach)
    waits = _waits(procedure, found, bounds)
    read_until = np.full(len(found.regions), START, np.int64)
    written_until = read_until.copy()
    phase_over = np.full(_phases(procedure), START, np.int64)
    result = {}
    for i, stmt in enumerate(procedure.body):
        touches = found.touches[i]
        if not isinstance(stmt, Transfer):
            # A message still on its way from the same region may end later than this kernel.
            for r in touches.reads:
                read_until[r] = max(read_until[r], 2 * i + 1)
            written_until[list(touches.writes)] = 2 * i + 1
            continue
        (source,), (slot,) = touches.reads, touches.writes
        assert slot not in found.meeting[source], f"transfer {stmt.channel} receives into what it sends"
        received, sent = waits[i]
        slot_free = max(int(a[found.meeting[slot]].max()) for a in (read_until, written_until))
        data_ready = int(written_until[found.meeting[source]].max())
        earlier = int(phase_over[: stmt.phase].max(initial=START)) if stmt.phase > 0 else START
        floor = bounds[i].floor
        result[i] = Moments(max(slot_free, floor), max(data_ready, earlier, floor), received, sent)
        read_until[source] = max(read_until[source], sent)
        written_until[slot] = max(written_until[slot], received)
        if stmt.phase >= 0:
            phase_over[stmt.phase] = max(phase_over[stmt.phase], received)
    return result


def _waits(procedure: Procedure, found: Accesses, bounds: dict[int, Bounds]) -> dict[int, tuple[int, int]]:
    """Of each transfer, the last moments for its waits: received before the first later statement that
    touches the slot or is a transfer of a later phase, sent before the first that overwrites the source.
    """
    body, end = procedure.body, len(procedure.body)
    next_touch = np.full(len(found.regions), end, np.int64)
    next_write = next_touch.copy()
    next_of_phase = np.full(_phases(procedure), end, np.int64)
    result = {}
    for i in range(end - 1, -1, -1):
        touches, stmt = found.touches[i], body[i]
        if isinstance(stmt, Transfer):
            (source,), (slot,) = touches.reads, touches.writes
            later = int(next_of_phase[stmt.phase + 1 :].min(initial=end)) if stmt.phase >= 0 else end
            received = min(int(next_touch[found.meeting[slot]].min()), later, bounds[i].arrival)
            sent = min(int(next_write[found.meeting[source]].min()), bounds[i].release)
            result[i] = (2 * received, 2 * sent)
            if stmt.phase >= 0:
                next_of_phase[stmt.phase] = i
        next_touch[[*touches.reads, *touches.writes]] = i
        next_write[list(touches.writes)] = i
    return result


def _bounds(procedure: Procedure, reach: Reach) -> dict[int, Bounds]:
    """The bounds of each transfer."""
    end = len(procedure.body)
    both = [(i, s) for i, s in enumerate(procedure.body) if isinstance(s, Transfer)]
    transfers = [i for i, s in both if not s.is_local]
    starts = [(span.first, span.transfers) for span in group_spans(procedure)]
    group_of = {i: k for k, (_, members) in enumerate(starts) for i in members}
    firsts = [first for first, _ in starts]
    before = np.cumsum([0, *(s.read.bytes for _, s in both if not s.is_local)])
    result = {}
    for n, i in enumerate(transfers):
        k = group_of[i]
        lo = min(n - reach.transfers, int(np.searchsorted(before, before[n] - reach.bytes)))
        hi = max(
            n + reach.transfers, int(np.searchsorted(before, before[n + 1] + reach.bytes, side="right")) - 2
        )
        floor = max(_get(firsts, k - reach.groups, START), _get(transfers, lo, START))
        release = min(_get(firsts, k + reach.groups + 1, end), _get(transfers, hi + 1, end))
        result[i] = Bounds(2 * floor if floor > START else START, release, end)
    result.update(copy_bounds(procedure, reach))
    return result


def _get(numbers: list[int], index: int, default: int) -> int:
    return numbers[index] if 0 <= index < len(numbers) else default


def _phases(procedure: Procedure) -> int:
    return 1 + max((s.phase for s in procedure.body if isinstance(s, Transfer)), default=-1)


# Few bytes are less than this part of the fast memory.
_FEW: Final = 48


@dataclass(frozen=True, slots=True)
class Reach:
    """How far parts of a transfer may move, since a message on its way occupies memory at both ends: over
    `groups` other groups, and over `transfers` other transfers (of one stream: some rounds), or as many as carry
    few `bytes`. Local ones move over as much work of the `die` as hides them."""

    groups: int
    transfers: int
    die: Die

    @property
    def bytes(self) -> int:
        return self.die.sram // _FEW if self.transfers else 0

    def seconds(self, transfer: Transfer) -> float:
        """What a local transfer takes of its memory."""
        return DieRates.of(self.die).hbm(transfer.read.bytes)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The moment above which a post or send does not move; the statements before which a message has left, and has
    arrived."""

    floor: int
    release: int
    arrival: int


# How much work a copy is given to hide behind, in times of its own.
_EARLY: Final = 1.5  # before it is needed


_LATE: Final = 4  # after those before it are over


def copy_bounds(procedure: Procedure, reach: Reach) -> dict[int, Bounds]:
    """The bounds of each local transfer. All share the port of one memory, which takes them as they come. So a copy in
    begins early enough for what comes before it; `plan_memory` lets it begin later where there is no room for it."""
    arguments = {v.name for v in procedure.arguments}
    local = [(i, s) for i, s in enumerate(procedure.body) if isinstance(s, Transfer) and s.is_local]
    if not local:
        return {}
    rhythm = pace(procedure, reach.die)
    outs = [(i, s) for i, s in local if s.read.buffer not in arguments]
    port = _Port.of([(float(rhythm.seconds[i]), reach.seconds(s)) for i, s in outs])
    result = {}
    for (i, stmt), over in zip(outs, port.over, strict=True):
        after = max(i + 1, rhythm.from_(over + _LATE * reach.seconds(stmt)))
        result[i] = Bounds(2 * i, after, after)
    free = float(rhythm.seconds[-1])
    for i, stmt in reversed(local):
        if i not in result:
            free = port.begin(min(free, float(rhythm.seconds[i])), _EARLY * reach.seconds(stmt))
            # It stands where others may begin to need it.
            result[i] = Bounds(2 * rhythm.at(free), i + 1, i + 1)
    return result


@dataclass(frozen=True, slots=True)
class _Port:
    """Copies out, by when they begin to wait for the port of the memory, and when each is over."""

    ready: NDArray[np.float64]
    over: tuple[float, ...]

    @staticmethod
    def of(copies: list[tuple[float, float]]) -> _Port:
        over: list[float] = []
        for ready, seconds in copies:
            over.append(max(ready, over[-1] if over else 0.0) + seconds)
        return _Port(np.array([ready for ready, _ in copies]), tuple(over))

    def begin(self, end: float, seconds: float) -> float:
        """The latest time from which on a copy in is over by `end`, or the time of the first copy out."""
        begin = end - seconds
        k = int(np.searchsorted(self.ready, begin)) - 1
        while k >= 0 and self.over[k] + seconds > end:
            begin = float(np.nextafter(self.ready[k], 0))  # before that copy out
            k -= 1
        return begin
