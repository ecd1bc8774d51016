"""Dependences between statements of a scheduled procedure: those that must keep their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wscc.analysis.accesses import Accesses, accesses
from wscc.ir.module import Procedure

Index = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Dependences:
    """Every access of a region, as the number of the statement and of the region, reads apart from writes."""

    accesses: Accesses
    readers: Index
    read: Index
    writers: Index
    written: Index

    @staticmethod
    def of(procedure: Procedure, dies: int, aliases: dict[str, str]) -> Dependences:
        found = accesses(procedure, dies, aliases)
        reads = [(i, r) for i, t in enumerate(found.touches) for r in t.reads]
        writes = [(i, r) for i, t in enumerate(found.touches) for r in t.writes]
        pairs = [np.asarray(x, np.intp).reshape(-1, 2).T for x in (reads, writes)]
        return Dependences(found, *pairs[0], *pairs[1])

    def around(self, members: Sequence[int]) -> tuple[Index, Index]:
        """Other statements that some of these follow, and others that follow some of these, in the given order."""
        touches = self.accesses.touches
        before = np.zeros(len(touches), np.bool_)
        after = before.copy()
        for m in members:
            tied = np.zeros(len(touches), np.bool_)
            tied[self.writers[self._meets(self.written, (*touches[m].reads, *touches[m].writes))]] = True
            tied[self.readers[self._meets(self.read, touches[m].writes)]] = True
            before[:m] |= tied[:m]
            after[m + 1 :] |= tied[m + 1 :]
        before[list(members)] = after[list(members)] = False
        return np.flatnonzero(before), np.flatnonzero(after)

    def _meets(self, regions: Index, own: Sequence[int]) -> NDArray[np.bool_]:
        """Which of the regions meet one of `own`."""
        met = np.zeros(len(self.accesses.regions), np.bool_)
        for r in own:
            met[self.accesses.meeting[r]] = True
        return np.asarray(met[regions], np.bool_)
