"""The bytes of a region that are taken, by time: which gap is the lowest that is free for some live range."""

from __future__ import annotations

from collections.abc import Iterable

from wscc.analysis.interval_grid import IntervalGrid
from wscc.analysis.memory.gaps import lowest_gap
from wscc.analysis.memory.live_ranges import LiveRange

Block = tuple[int, int, int, int]  # start and end in bytes, first and last statement


class Occupied:
    """Blocks of bytes [start, end), each taken from statement `first` to statement `last`; one that never lives (`last`
    < `first`) meets no other."""

    def __init__(self) -> None:
        self._blocks: IntervalGrid[tuple[int, int]] = IntervalGrid()

    def take(self, block: Block) -> None:
        """Add a block."""
        start, end, first, last = block
        self._blocks.add(first, last, (start, end))

    def free(self, block: Block) -> None:
        """Remove a block that was taken."""
        start, end, first, last = block
        self._blocks.remove(first, last, (start, end))

    def lowest_gap(self, first: int, last: int, size: int) -> int:
        """The lowest offset from which `size` bytes are free of all blocks that live between two statements."""
        alive = self._blocks.near(first, last)
        alive.sort()
        return lowest_gap(alive, size)


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
