"""Dependences between statements of a scheduled procedure: pairs of statements that must keep their order."""

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
    """Accesses of a body as pairs of numbers: statement `readers[k]` reads region `read[k]`, and statement `writers[k]`
    writes region `written[k]`."""

    accesses: Accesses
    readers: Index
    read: Index
    writers: Index
    written: Index

    @staticmethod
    def of(procedure: Procedure, dies: int, aliases: dict[str, str]) -> Dependences:
        """The dependences of a body on so many `dies`, with the common names of its arguments."""
        scan = accesses(procedure, dies, aliases)
        reads = [(i, r) for i, a in enumerate(scan.by_statement) for r in a.reads]
        writes = [(i, r) for i, a in enumerate(scan.by_statement) for r in a.writes]
        pairs = [np.asarray(x, np.intp).reshape(-1, 2).T for x in (reads, writes)]
        return Dependences(scan, *pairs[0], *pairs[1])

    def neighbours(self, members: Sequence[int]) -> tuple[Index, Index]:
        """Predecessors and successors: the other statements that some member depends on, and those that depend on some
        member, each ascending."""
        count = len(self.accesses.by_statement)
        predecessors = np.zeros(count, np.bool_)
        successors = predecessors.copy()
        for m in members:
            own = self.accesses.by_statement[m]
            dependent = np.zeros(count, np.bool_)
            dependent[self.writers[self._overlap(self.written, (*own.reads, *own.writes))]] = True
            dependent[self.readers[self._overlap(self.read, own.writes)]] = True
            predecessors[:m] |= dependent[:m]
            successors[m + 1 :] |= dependent[m + 1 :]
        predecessors[list(members)] = successors[list(members)] = False
        return np.flatnonzero(predecessors), np.flatnonzero(successors)

    def _overlap(self, regions: Index, others: Sequence[int]) -> NDArray[np.bool_]:
        """A mask of those `regions` that overlap one of `others`."""
        overlaps = np.zeros(len(self.accesses.regions), np.bool_)
        for r in others:
            overlaps[self.accesses.overlapping[r]] = True
        return np.asarray(overlaps[regions], np.bool_)
