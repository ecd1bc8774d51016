"""The bytes of a region that are taken, by time: which gap is the lowest that is free for some live range."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from wscc.analysis.memory.live_ranges import LiveRange

# The cells of a grid are 2 ** _STEP times as long as those of the next finer one.
_STEP: Final = 4

Block = tuple[int, int, int, int]  # start and end in bytes, first and last statement


class Occupied:
    """Blocks of bytes [start, end), each taken from statement `first` to statement `last`.

    Blocks lie in grids over time, each in the one whose cells are as long as the block lives, so that it meets two
    cells at most. A search looks at the cells near its range alone: it takes time in the blocks that live then, and not
    in all of them.
    """

    def __init__(self) -> None:
        self._grids: dict[
            int, dict[int, list[Block]]
        ] = {}  # by log2 of the length of a cell, and number of the cell

    def take(self, block: Block) -> None:
        """Add a block; one that never lives (`last` < `first`) meets no other."""
        _, _, first, last = block
        if first <= last:
            self._cell(first, last).append(block)

    def free(self, block: Block) -> None:
        """Remove a block that was taken."""
        _, _, first, last = block
        if first <= last:
            self._cell(first, last).remove(block)

    def lowest_gap(self, first: int, last: int, size: int) -> int:
        """The lowest offset from which `size` bytes are free of all blocks that live between two statements."""
        near: list[Block] = []
        for log, grid in self._grids.items():
            # A block of this grid begins in a cell of the range, or in the one before it.
            for number in range((first >> log) - 1, (last >> log) + 1):
                if number in grid:
                    near += grid[number]
        alive = [b for b in near if b[2] <= last and b[3] >= first]
        alive.sort()
        free = 0
        for start, end, _, _ in alive:
            if start - free >= size:
                break
            if end > free:
                free = end
        return free

    def _cell(self, first: int, last: int) -> list[Block]:
        """The cell in which blocks of this range lie."""
        log = _STEP * max(1, -(-(last - first).bit_length() // _STEP))
        return self._grids.setdefault(log, {}).setdefault(first >> log, [])


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
