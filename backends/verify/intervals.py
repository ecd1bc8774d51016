"""Intervals of addresses between the points at which the operands of a procedure begin or end.

An operand is a set of whole intervals, so that few intervals carry the state of all bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from wscc.backends.verify.views import Ints, Runs

# Numbers of intervals: a range, or a list in ascending order.
Intervals = slice | NDArray[np.int64]


class Grid:
    """The intervals of several spaces (each with addresses of its own), numbered space by space."""

    def __init__(self, accesses: Iterable[tuple[int, Runs]]) -> None:
        cuts: dict[int, list[Ints]] = {}
        for space, (starts, ends) in accesses:
            cuts.setdefault(space, []).extend((starts, ends))
        self._cuts = {space: _distinct(np.concatenate(points)) for space, points in sorted(cuts.items())}
        self._first: dict[int, int] = {}
        self.count = 0
        for space, edges in self._cuts.items():
            self._first[space] = self.count
            self.count += max(len(edges) - 1, 0)

    @property
    def spaces(self) -> Iterable[int]:
        return self._cuts

    def intervals(self, space: int, runs: Runs) -> Intervals:
        """The intervals that make up the runs."""
        edges, first = self._cuts[space], self._first[space]
        low, high = edges.searchsorted(runs[0]) + first, edges.searchsorted(runs[1]) + first
        if len(low) == 1:
            return slice(int(low[0]), int(high[0]))
        lengths = high - low
        if not lengths.size:
            return slice(0, 0)
        skipped = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        numbers = np.repeat(low - skipped, lengths) + np.arange(int(lengths.sum()))
        if len(numbers) == numbers[-1] - numbers[0] + 1:
            return slice(int(numbers[0]), int(numbers[-1]) + 1)
        return numbers

    def whole(self, space: int) -> slice:
        """All intervals of a space."""
        return slice(self._first[space], self._first[space] + max(len(self._cuts[space]) - 1, 0))

    def address(self, interval: int) -> int:
        """The address at which an interval begins."""
        space = max((s for s in self._cuts if self._first[s] <= interval), key=self._first.__getitem__)
        return int(self._cuts[space][interval - self._first[space]])

    def ranges(self, space: int, mark: NDArray[np.int8]) -> Iterator[tuple[int, int, int]]:
        """(start, end, value) of the longest ranges of intervals of the space with one value other than 0."""
        edges, values = self._cuts[space], mark[self.whole(space)]
        if not len(values):
            return
        new = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
        bounds = np.append(new, len(values))
        for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            if values[a]:
                yield int(edges[a]), int(edges[b]), int(values[a])


def _distinct(values: Ints) -> Ints:
    """The distinct values in ascending order; `np.unique` hashes first, which takes longer."""
    if not values.size:
        return values
    values = np.sort(values)
    distinct: Ints = values[np.concatenate([[True], values[1:] != values[:-1]])]
    return distinct


def size(intervals: Intervals) -> int:
    return intervals.stop - intervals.start if isinstance(intervals, slice) else len(intervals)


def within(inner: Intervals, outer: Intervals) -> bool:
    """True if `outer` contains all intervals of `inner`."""
    if isinstance(outer, slice):
        if isinstance(inner, slice):
            return bool(outer.start <= inner.start and inner.stop <= outer.stop)
        return bool(outer.start <= inner[0] and inner[-1] < outer.stop)
    numbers = np.arange(inner.start, inner.stop) if isinstance(inner, slice) else inner
    positions = outer.searchsorted(numbers)
    return bool((positions < len(outer)).all() and (outer[positions] == numbers).all())


def overlap(a: Intervals, b: Intervals) -> bool:
    """True if an interval is in both."""
    if isinstance(a, slice) and isinstance(b, slice):
        return bool(a.start < b.stop and b.start < a.stop)
    if isinstance(a, slice):
        a, b = b, a
    assert not isinstance(a, slice)
    if isinstance(b, slice):
        return bool(a.searchsorted(b.start) < a.searchsorted(b.stop))
    return bool(np.isin(a, b, assume_unique=True).any())


def equal(a: Intervals, b: Intervals) -> bool:
    return size(a) == size(b) and within(a, b)
