"""Search among intervals of integers, and among strided ranges of bytes, for those that may meet a given one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from wscc.analysis.view_overlap import Dims

# The cells of a grid are 2 ** _STEP times as long as those of the next finer one.
_STEP: Final = 4
T = TypeVar("T")


class IntervalGrid(Generic[T]):
    """Items that each have an interval of integers, both ends included.

    They lie in grids, each in the one whose cells are about as long as its interval, in the cells that this meets: two
    at most. A search looks at the cells that meet its own interval alone: it takes time in the items that lie there,
    not in all.
    """

    def __init__(self) -> None:
        # By log2 of the length of a cell, and number of the cell.
        self._grids: dict[int, dict[int, list[tuple[int, int, T]]]] = {}

    def add(self, first: int, last: int, item: T) -> None:
        """Add an item; one with an empty interval is never found."""
        if first <= last:
            log = _STEP * max(1, -(-(last - first).bit_length() // _STEP))
            grid = self._grids.setdefault(log, {})
            low, high = first >> log, last >> log
            grid.setdefault(low, []).append((first, last, item))
            if high != low:
                grid.setdefault(high, []).append((first, last, item))

    def remove(self, first: int, last: int, item: T) -> None:
        """Remove an item that was added with this interval."""
        if first <= last:
            log = _STEP * max(1, -(-(last - first).bit_length() // _STEP))
            for number in {first >> log, last >> log}:
                self._grids[log][number].remove((first, last, item))

    def near(self, first: int, last: int) -> set[T]:
        """The items whose intervals meet that one."""
        return {item for low, high, item in self.around(first, last) if low <= last and high >= first}

    def around(self, first: int, last: int) -> list[tuple[int, int, T]]:
        """The items, each behind the ends of its interval, of all cells that meet that one, some of them twice."""
        found: list[tuple[int, int, T]] = []
        for log, grid in self._grids.items():
            for number in range(first >> log, (last >> log) + 1):
                if number in grid:
                    found += grid[number]
        return found


@dataclass(frozen=True, slots=True)
class Rows:
    """Bytes from `low` to `high` - 1, or some of them: if `period` is not 0, only `width` bytes of each `period`, those
    from `low` on."""

    low: int
    high: int
    period: int = 0
    width: int = 0

    @staticmethod
    def of(low: int, high: int, dims: Dims) -> Rows:
        """The rows of byte dimensions `dims` from byte `low` on; plain bytes where they are not such rows."""
        if len(dims) < 2:
            return Rows(low, high)
        (width, _), period = dims[-1], dims[-2][1]
        if width >= period or any(stride % period for _, stride in dims[:-1]):
            return Rows(low, high)
        return Rows(low, high, period, width)


class RowsIndex:
    """Numbers of rows of bytes, found by bytes that they may share: columns of a matrix by their place in its rows."""

    def __init__(self) -> None:
        # By period: all by their bytes, and by their place in a period.
        self._grids: dict[int, tuple[IntervalGrid[int], IntervalGrid[int]]] = {}

    def add(self, number: int, rows: Rows) -> None:
        """Add rows with a number of theirs."""
        by_byte, by_column = self._grids.setdefault(rows.period, (IntervalGrid(), IntervalGrid()))
        by_byte.add(rows.low, rows.high - 1, number)
        if rows.period:
            for first, last in _columns(rows.low, rows.width, rows.period):
                by_column.add(first, last, number)

    def near(self, rows: Rows) -> set[int]:
        """The numbers of all rows that share a byte with these, and of others."""
        found: set[int] = set()
        for period, (by_byte, by_column) in self._grids.items():
            width = rows.width if rows.period == period else rows.high - rows.low
            if width < period:
                for first, last in _columns(rows.low, width, period):
                    found.update(by_column.near(first, last))
            else:
                found.update(by_byte.near(rows.low, rows.high - 1))
        return found


def _columns(low: int, width: int, period: int) -> list[tuple[int, int]]:
    """The places in a period of `width` bytes from `low` on, as one or two intervals."""
    first = low % period
    last = first + width - 1
    return [(first, last)] if last < period else [(first, period - 1), (0, last - period)]
