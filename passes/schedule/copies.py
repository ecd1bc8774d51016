"""When copies within a die should begin and end: behind work, and in turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wscc.analysis.memory.access_cost import pace
from wscc.ir.fabric import Transfer
from wscc.ir.module import Procedure
from wscc.passes.schedule.window import Bounds, Reach

# How much work a copy is given to hide behind, in times of its own.
_EARLY: Final = 1.5  # before it is needed
_LATE: Final = 4  # after those before it are over


def copy_bounds(procedure: Procedure, reach: Reach) -> dict[int, Bounds]:
    """The bounds of each local transfer. All share the port of one memory, which takes them as they come. So a copy in
    begins early enough for what comes before it; `plan_memory` lets it begin later where there is no room for it."""
    formals = {v.name for v in procedure.formals}
    local = [(i, s) for i, s in enumerate(procedure.body) if isinstance(s, Transfer) and s.is_local]
    if not local:
        return {}
    rhythm = pace(procedure, reach.die)
    outs = [(i, s) for i, s in local if s.read.buffer not in formals]
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
