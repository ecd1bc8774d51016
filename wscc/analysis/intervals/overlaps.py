"""Search for overlaps among strided regions of one buffer, on dies that have them at different places.

Pairs that may are found by sweeps over sorted intervals, in time that grows with the regions on all classes of dies and
with the pairs found; these are then compared exactly. A sweep goes over the bytes of the buffer or, for columns of
matrices, which all reach over the same bytes, over the places in a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from wscc.analysis.intervals.grid import Rows
from wscc.analysis.view_overlap import Dims, overlap, span

Index: TypeAlias = NDArray[np.intp]
Bytes: TypeAlias = NDArray[np.int64]
# Regions, each with another one, and whether the bytes from the first to the last of both are known to meet on a die.
Pairs: TypeAlias = tuple[Index, Index, bool]
# Numbers that an array holds at a time; what is larger is done in parts.
_BLOCK: Final = 1 << 21
# Lengths of rows that are tried as a place to sweep over, the most frequent ones.
_MOST_PERIODS: Final = 4


def overlapping(low: Bytes, active: NDArray[np.bool_], dims: Sequence[Dims]) -> list[Index]:
    """The regions that overlap each region, itself included, ascending.

    `low[r, c]` is the first byte of region r on the dies of class c, `active[r, c]` whether these access it, and
    `dims[r]` its byte dimensions on all.
    """
    firsts, seconds = [], []
    compared = _Compared.of(low, active, dims)
    for k, others, met in _candidates(low, active, dims):
        meet = compared.overlap(k, others, met=met)
        firsts.append(k[meet])
        seconds.append(others[meet])
    own = np.arange(len(dims), dtype=np.intp)
    first, second = np.concatenate([own, *firsts, *seconds]), np.concatenate([own, *seconds, *firsts])
    order = np.lexsort((second, first))
    return np.split(second[order], np.cumsum(np.bincount(first, minlength=len(dims)))[:-1])


def _candidates(low: Bytes, active: NDArray[np.bool_], dims: Sequence[Dims]) -> Iterator[Pairs]:
    """Blocks of all pairs that may overlap, each pair once."""
    count, classes = low.shape
    rows = [Rows.of(0, span(d), d) for d in dims]
    periods = Counter(r.period for r in rows if r.period).most_common(_MOST_PERIODS)
    sweeps = [_Sweep.over(low, active, [r.high for r in rows])]
    sweeps += [_Sweep.over(low, active, _widths(rows, p), p) for p, times in periods if times > 1]
    best = min(sweeps, key=lambda s: s.candidates)
    if best.candidates < count * (count - 1) // 2:
        keys = best.pairs(count)
        step = max(1, _BLOCK // classes)
        for i in range(0, len(keys), step):
            yield *np.divmod(keys[i : i + step], count), best.in_bytes
        return
    step = max(1, _BLOCK // (classes * count))
    for first in range(0, count, step):
        k, others = np.nonzero(np.arange(first, min(first + step, count))[:, None] < np.arange(count))
        yield k + first, others, False


def _widths(rows: Sequence[Rows], period: int) -> list[int]:
    """The bytes of a row of `period` that each region reaches over, if it lies in the same place of all rows."""
    return [r.width if r.period and not r.period % period else r.high for r in rows]


@dataclass(frozen=True, eq=False)
class _Sweep:
    """Regions on classes of dies, of which number i is `regions[i]`, by the places where they begin: entry `sorted[j]`
    is a number, or with the numbers behind all others the same one a row further; the entries from `first[i]` to
    `end[i]` - 1 begin inside of number i, behind it."""

    regions: Index
    sorted: Index
    first: Index
    end: Index
    in_bytes: bool

    @classmethod
    def over(cls, low: Bytes, active: NDArray[np.bool_], width: list[int], period: int = 0) -> _Sweep:
        """The sweep over all bytes, or over places in a row of `period` bytes, for regions of so many bytes."""
        reach = np.asarray(width, np.int64)[:, None]
        regions, classes = np.nonzero(active & (reach > 0))
        begin, reach = low[regions, classes], reach[regions, 0]
        begin = begin % period if period else begin - begin.min(initial=0)
        reach = np.minimum(reach, period) if period else reach
        # The classes one behind the other.
        begin += classes * (2 * period if period else (begin + reach).max(initial=0))
        places = np.concatenate([begin, begin + period]) if period else begin
        order = np.argsort(places, kind="stable")
        position = np.empty(len(order), np.intp)
        position[order] = np.arange(len(order))
        end = np.searchsorted(places[order], begin + reach)
        return cls(regions, order, position[: len(begin)] + 1, end, not period)

    @property
    def candidates(self) -> int:
        """How many times two regions meet."""
        return int((self.end - self.first).sum())

    def pairs(self, count: int) -> NDArray[np.int64]:
        """All pairs k < l of regions that meet on a class, as k * count + l, ascending."""
        times = self.end - self.first
        blocks = (np.cumsum(times) - times) // _BLOCK
        starts = np.searchsorted(blocks, np.arange(blocks[-1] + 2 if len(blocks) else 1))
        keys = [self._pairs(a, b, count) for a, b in pairwise(starts)]
        return _distinct(np.concatenate([np.empty(0, np.int64), *keys]))

    def _pairs(self, start: int, stop: int, count: int) -> NDArray[np.int64]:
        times = self.end[start:stop] - self.first[start:stop]
        behind = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        entries = self.sorted[np.repeat(self.first[start:stop], times) + behind]
        one, other = np.repeat(self.regions[start:stop], times), self.regions[entries % len(self.regions)]
        keys = np.minimum(one, other) * count + np.maximum(one, other)
        return _distinct(keys[one != other])


@dataclass(frozen=True, eq=False)
class _Compared:
    """What an exact comparison of regions takes: bytes [low, high) by region and class, empty where inactive; of
    matrices the rows, their distance and their bytes, else 0; and the number of the dimensions among different ones."""

    low: Bytes
    high: Bytes
    dims: Sequence[Dims]
    is_run: NDArray[np.bool_]
    rows: Bytes
    stride: Bytes
    width: Bytes
    form: Index

    @classmethod
    def of(cls, low: Bytes, active: NDArray[np.bool_], dims: Sequence[Dims]) -> _Compared:
        numbers: dict[Dims, int] = {}
        form = np.asarray([numbers.setdefault(d, len(numbers)) for d in dims], np.intp)
        forms = list(numbers)
        spans = np.asarray([span(d) for d in forms], np.int64)[form][:, None]
        # An interval that ends before all others begin overlaps none, so inactive dies need no mask.
        high = np.where(active & (spans > 0), low + spans, np.iinfo(np.int64).min)
        rows, stride, width = np.asarray([_matrix(d) for d in forms], np.int64)[form].T
        return cls(
            low, high, forms, np.asarray([len(d) <= 1 for d in forms])[form], rows, stride, width, form
        )

    def overlap(self, k: Index, others: Index, *, met: bool) -> NDArray[np.bool_]:
        """Whether the regions of each pair overlap; with `met`, their intervals are known to. That is exact for runs;
        strided regions are compared byte by byte."""
        strided = ~(self.is_run[k] & self.is_run[others])
        if not met:
            return self._compared(k, others, strided)
        overlaps = np.ones(len(k), np.bool_)
        overlaps[strided] = self._compared(k[strided], others[strided], strided[strided])
        return overlaps

    def _compared(self, k: Index, others: Index, strided: NDArray[np.bool_]) -> NDArray[np.bool_]:
        intersects = (self.low[k] < self.high[others]) & (self.low[others] < self.high[k])
        overlaps = np.asarray(intersects.any(axis=1))
        strided = strided & overlaps
        alike = strided & (self.stride[others] == self.stride[k]) & (self.rows[k] > 0)
        for chosen, compare in ((alike, self._matrices), (strided & ~alike, self._any)):
            if chosen.any():
                overlaps[chosen] = compare(k[chosen], others[chosen], intersects[chosen])
        return overlaps

    def _matrices(self, k: Index, others: Index, intersects: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether matrices overlap whose rows are as far apart: their columns meet in a row that both have, or those of
        the other begin in the row before."""
        distance, own_rows, own_width = (x[k][:, None] for x in (self.stride, self.rows, self.width))
        row, column = np.divmod(self.low[others] - self.low[k], distance)
        first, width = -self.rows[others][:, None], self.width[others][:, None]
        in_row = (column < own_width) & (first < row) & (row < own_rows)
        wrapped = (column + width > distance) & (first < row + 1) & (row + 1 < own_rows)
        return np.asarray(((in_row | wrapped) & intersects).any(axis=1))

    def _any(self, k: Index, others: Index, intersects: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether regions of any dimensions overlap, from distances on classes of dies where their intervals do."""
        pair, die = np.nonzero(intersects)
        shift = self.low[others[pair], die] - self.low[k[pair], die]
        forms = self.form[k[pair]] * len(self.dims) + self.form[others[pair]]
        order = np.lexsort((shift, forms))
        forms, shift = forms[order], shift[order]
        # Few forms are compared at few distances.
        number = np.cumsum(_is_new(forms) | _is_new(shift)) - 1
        first = np.flatnonzero(np.diff(number, prepend=-1))
        compared = [
            overlap(*(self.dims[form] for form in divmod(both, len(self.dims))), distance)
            for both, distance in zip(forms[first].tolist(), shift[first].tolist(), strict=True)
        ]
        hit = pair[order[np.asarray(compared, np.bool_)[number]]]
        return np.bincount(hit, minlength=len(k)) > 0


def _is_new(column: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """Whether each number differs from the one before it; the first does."""
    return np.concatenate([np.ones(len(column[:1]), np.bool_), column[1:] != column[:-1]])


def _distinct(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """The different ones of many numbers, ascending."""
    keys = np.sort(keys)
    return keys[_is_new(keys)]


def _matrix(dims: Dims) -> tuple[int, int, int]:
    """Rows, their distance and their bytes, if the dimensions are those of a matrix whose rows do not overlap."""
    if len(dims) != 2 or dims[1][0] > dims[0][1]:
        return 0, 0, 0
    (rows, distance), (width, _) = dims
    return rows, distance, width
