"""When copies within a die begin and end: behind work, in turn, and as far as there is room for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wscc.ir.fabric import Transfer
from wscc.ir.memory import aligned
from wscc.ir.module import Procedure
from wscc.passes.plan_memory_cost import pace
from wscc.passes.plan_memory_live import touched_from_to
from wscc.passes.schedule_reach import Bounds, Reach

# How much work a copy is given to hide behind, in times of its own.
_EARLY: Final = 1.5  # before it is needed
_LATE: Final = 4  # after those before it are over
# Of the fast memory, the part that copies may fill while they wait.
_ROOM: Final = 0.95


def copy_bounds(procedure: Procedure, reach: Reach) -> dict[int, Bounds]:
    """The bounds of each local transfer. All share the port of one memory, which takes them as they come. So a copy in
    begins early enough for what comes before it, but no earlier than there is room for it in the fast memory."""
    formals = {v.name for v in procedure.formals}
    local = [(i, s) for i, s in enumerate(procedure.body) if isinstance(s, Transfer) and s.is_local]
    if not local:
        return {}
    rhythm, room = pace(procedure, reach.die), _Room.of(procedure, reach)
    outs = [(i, s) for i, s in local if s.read.buffer not in formals]
    port = _Port.of([(float(rhythm.seconds[i]), reach.seconds(s)) for i, s in outs])
    result = {}
    for (i, stmt), over in zip(outs, port.over, strict=True):
        after = room.after(i, rhythm.from_(over + _LATE * reach.seconds(stmt)), stmt.read.bytes)
        result[i] = Bounds(2 * i, after, after)
    free = float(rhythm.seconds[-1])
    for i, stmt in reversed(local):
        if i not in result:
            free = port.begin(min(free, float(rhythm.seconds[i])), _EARLY * reach.seconds(stmt))
            first = room.before(i, rhythm.at(free), stmt.read.bytes)
            # It stands where others may begin to need it.
            result[i] = Bounds(2 * first, i + 1, i + 1)
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


@dataclass(frozen=True, slots=True)
class _Room:
    """How many bytes of the fast memory are taken at each statement, at most `limit` by what need not be there."""

    taken: NDArray[np.int64]
    limit: int

    @staticmethod
    def of(procedure: Procedure, reach: Reach) -> _Room:
        size = {b.name: aligned(b.bytes) for b in procedure.buffers}
        change = np.zeros(len(procedure.body) + 1, np.int64)
        for name, (first, last) in touched_from_to(procedure, reach.transfers).items():
            change[first] += size.get(name, 0)
            change[last + 1] -= size.get(name, 0)
        return _Room(np.cumsum(change), int(_ROOM * reach.die.sram))

    def before(self, at: int, first: int, size: int) -> int:
        """The first statement, not before `first`, from which to `at` there is room for so many bytes more, which
        are taken then."""
        full = np.flatnonzero(self.taken[first:at] + size > self.limit)
        begin = first + int(full[-1]) + 1 if len(full) else first
        self.taken[begin:at] += size
        return begin

    def after(self, at: int, last: int, size: int) -> int:
        """The last statement, not behind `last`, up to which there is room after `at`; at least the next."""
        full = np.flatnonzero(self.taken[at + 1 : last] + size > self.limit)
        end = max(at + 1, at + 1 + int(full[0]) if len(full) else last)
        self.taken[at + 1 : end] += size
        return end
