"""The bytes of a region that are taken, by time: which gap is the lowest that is free for some live range."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from wscc.analysis.memory.gaps import lowest_gap
from wscc.analysis.memory.live_ranges import LiveRange

# Blocks near a range from which on a look at a table of all takes less time than one at each.
_MANY: Final = 256
# Blocks lie in cells of 2 ** _SHORT statements; those that live in more than two, in cells of 2 ** _LONG.
_SHORT: Final = 6
_LONG: Final = 10
Block: TypeAlias = tuple[int, int, int, int]  # start and end in bytes, first and last statement


class Occupied:
    """Blocks of bytes [start, end), each taken from statement `first` to statement `last`; one that never lives (`last`
    < `first`) meets no other."""

    def __init__(self) -> None:
        # By number of the cell, all blocks that meet it; plain lists, since packing spends most of its time here.
        self._short: defaultdict[int, list[Block]] = defaultdict(list)
        self._long: defaultdict[int, list[Block]] = defaultdict(list)
        # The same as columns: the first so many of a table, those that were added since in a list.
        self._table, self._count = np.empty((4, 0), np.int64), 0
        self._new: list[Block] = []

    def take(self, block: Block) -> None:
        """Add a block."""
        _, _, first, last = block
        if first <= last:
            low, high = first >> _SHORT, last >> _SHORT
            if high - low < 2:
                self._short[low].append(block)
                if low != high:
                    self._short[high].append(block)
            else:
                for n in range(first >> _LONG, (last >> _LONG) + 1):
                    self._long[n].append(block)
            self._new.append(block)

    def free(self, block: Block) -> None:
        """Remove a block that was taken."""
        _, _, first, last = block
        if first <= last:
            for cell in self._cells(first, last):
                cell.remove(block)
            columns = self._columns()
            self._count -= 1
            at = (columns == np.asarray(block)[:, None]).all(axis=0).argmax()
            columns[:, at] = columns[:, self._count]

    def lowest_gap(self, first: int, last: int, size: int) -> int:
        """The lowest offset from which `size` bytes are free of all blocks that live between two statements."""
        around = self._around(first, last)
        if len(around) > _MANY:
            return self._lowest_of_many(first, last, size)
        alive = [x for x in around if x[2] <= last and x[3] >= first]
        alive.sort()
        return lowest_gap(alive, size)

    def _cells(self, first: int, last: int) -> list[list[Block]]:
        """The cells that hold a block with this life."""
        low, high = first >> _SHORT, last >> _SHORT
        if high - low < 2:
            return [self._short[low]] if low == high else [self._short[low], self._short[high]]
        return [self._long[n] for n in range(first >> _LONG, (last >> _LONG) + 1)]

    def _around(self, first: int, last: int) -> list[Block]:
        """The blocks of all cells that meet a life, some of them several times."""
        low, high = first >> _SHORT, last >> _SHORT
        short, long = self._short.get, self._long.get
        if low == high:
            return [*short(low, ()), *long(first >> _LONG, ())]
        found = [*short(low, ()), *short(high, ())]
        for n in range(low + 1, high):
            found += short(n, ())
        for n in range(first >> _LONG, (last >> _LONG) + 1):
            found += long(n, ())
        return found

    def _lowest_of_many(self, first: int, last: int, size: int) -> int:
        starts, ends, born, dead = self._columns()
        alive = np.flatnonzero((born <= last) & (dead >= first))
        alive = alive[np.argsort(starts[alive])]
        # What is free up to each block, then up to a last one with room before it.
        free = np.maximum.accumulate(np.concatenate([[0], ends[alive]]))
        before = np.append(starts[alive], free[-1] + size)
        return int(free[(before - free >= size).argmax()])

    def _columns(self) -> NDArray[np.int64]:
        """The blocks as columns [4, blocks]."""
        count = self._count + len(self._new)
        if self._new:
            if count > self._table.shape[1]:
                self._table = np.concatenate([self._table, np.empty((4, count), np.int64)], axis=1)
            self._table[:, self._count : count] = np.asarray(self._new, np.int64).T
            self._new, self._count = [], count
        return self._table[:, :count]


class Changed:
    """The statements at which one packing takes other bytes than another one.

    What lives at none of them lies in both at the same place, if both placed the same blocks before it: so a packing
    that changes the order of few blocks repeats little of the work.
    """

    def __init__(self, ranges: Iterable[LiveRange]) -> None:
        self._at = bytearray()
        for x in ranges:
            self.add(x)

    def add(self, x: LiveRange) -> None:
        """Count all statements of a range as changed."""
        self._at += bytes(max(0, x.last + 1 - len(self._at)))
        self._at[x.first : x.last + 1] = b"\1" * (x.last + 1 - x.first)

    def touches(self, x: LiveRange) -> bool:
        """Whether a range lives at a changed statement."""
        return self._at.find(1, x.first, x.last + 1) >= 0
