"""Which statements of a scheduled procedure must keep their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wscc.analysis.accesses import Accesses, Touches, accesses
from wscc.ir.fabric import Post, Send, Wait
from wscc.ir.module import Procedure

Index = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Order:
    """Every touch of a region, as the number of the statement and of the region, reads apart from writes. A message
    touches its slot from its post to the wait that ends it, its source from its send."""

    found: Accesses
    touches: tuple[Touches, ...]
    readers: Index
    read: Index
    writers: Index
    written: Index

    @staticmethod
    def of(procedure: Procedure, dies: int, aliases: dict[str, str]) -> Order:
        found = accesses(procedure, dies, aliases)
        touches = list(found.touches)
        began: dict[tuple[int, bool], Touches] = {}
        for i, stmt in enumerate(procedure.body):
            if isinstance(stmt, Post | Send):
                began[stmt.channel, isinstance(stmt, Send)] = touches[i]
            elif isinstance(stmt, Wait):
                touches[i] = began[stmt.channel, stmt.sent]
        reads = [(i, r) for i, t in enumerate(touches) for r in t.reads]
        writes = [(i, r) for i, t in enumerate(touches) for r in t.writes]
        pairs = [np.asarray(x, np.intp).reshape(-1, 2).T for x in (reads, writes)]
        return Order(found, tuple(touches), *pairs[0], *pairs[1])

    def around(self, members: Sequence[int]) -> tuple[Index, Index]:
        """Other statements that some of these follow, and others that follow some of these, in the given order."""
        before = np.zeros(len(self.touches), np.bool_)
        after = before.copy()
        for m in members:
            tied = np.zeros(len(self.touches), np.bool_)
            tied[
                self.writers[self._meets(self.written, (*self.touches[m].reads, *self.touches[m].writes))]
            ] = True
            tied[self.readers[self._meets(self.read, self.touches[m].writes)]] = True
            before[:m] |= tied[:m]
            after[m + 1 :] |= tied[m + 1 :]
        before[list(members)] = after[list(members)] = False
        return np.flatnonzero(before), np.flatnonzero(after)

    def _meets(self, regions: Index, own: Sequence[int]) -> NDArray[np.bool_]:
        """Which of the regions meet one of `own`."""
        met = np.zeros(len(self.found.regions), np.bool_)
        for r in own:
            met[self.found.meeting[r]] = True
        return np.asarray(met[regions], np.bool_)
