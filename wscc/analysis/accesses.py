"""Regions of memory that the statements of a fabric procedure access, and the overlaps between them.

A *region* is a view together with the dies on which it is accessed. Two regions overlap if on some die both are
accessed and share a byte. Arguments that a call may bind to the same bytes count as one buffer. Two statements depend
on each other if a region that one of them writes overlaps a region that the other reads or writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from wscc.analysis.interval_grid import Rows, RowsIndex
from wscc.analysis.statement_accesses import accessed, where_of
from wscc.analysis.view_overlap import Dims, dims_of, overlap, span
from wscc.ir.die_arrays import as_array
from wscc.ir.module import Procedure
from wscc.ir.per_die import Ints
from wscc.ir.views import View

Index: TypeAlias = NDArray[np.intp]
# Regions of a buffer from which on an index of them takes less time than a look at all.
_MANY: Final = 64


class Region(NamedTuple):
    """A view of `buffer` (the common name of all arguments that may share its bytes): from element `offset` on,
    elements of `size` bytes, byte dimensions `dims`; `where` is 1 on the dies that access it."""

    buffer: str
    offset: Ints
    size: int
    dims: Dims
    where: Ints


@dataclass(frozen=True, slots=True)
class AccessSet:
    """Numbers of the regions that one statement reads, and of those that it writes."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Accesses:
    """`by_statement[i]` is the access set of statement i; `overlapping[r]` are the numbers of the regions that overlap
    region r, itself included, in order."""

    regions: tuple[Region, ...]
    by_statement: tuple[AccessSet, ...]
    overlapping: tuple[Index, ...]


def accesses(procedure: Procedure, dies: int, aliases: dict[str, str]) -> Accesses:
    """The accesses of all statements of a body on so many `dies`.

    `aliases` gives arguments their common name (`wscc.analysis.aliases`). A wait accesses what its message does.
    """
    numbers: dict[Region, int] = {}

    def number(view: View, where: Ints) -> int:
        buffer = aliases.get(view.buffer, view.buffer)
        region = Region(buffer, view.offset, view.dtype.size, dims_of(view), where)
        return numbers.setdefault(region, len(numbers))

    by_statement = []
    for stmt, views in zip(procedure.body, accessed(procedure.body), strict=True):
        reads_writes: tuple[list[int], list[int]] = ([], [])
        for view, writes in views:
            reads_writes[writes].append(number(view, where_of(stmt, dies, writes=writes)))
        by_statement.append(AccessSet(*map(tuple, reads_writes)))
    regions = tuple(numbers)
    return Accesses(regions, tuple(by_statement), _overlapping(regions, dies))


# Several passes in turn ask for the regions of the same procedures.
@lru_cache(maxsize=64)
def _overlapping(regions: tuple[Region, ...], dies: int) -> tuple[Index, ...]:
    by_buffer: dict[str, list[int]] = {}
    for i, region in enumerate(regions):
        by_buffer.setdefault(region.buffer, []).append(i)
    overlaps: dict[int, Index] = {}
    for members in by_buffer.values():
        numbers = np.asarray(members, np.intp)
        if len(members) == 1:
            overlaps[members[0]] = numbers
            continue
        intervals = _Intervals([regions[i] for i in members], dies)
        overlaps.update((i, numbers[row]) for i, row in zip(members, intervals.overlapping(), strict=True))
    return tuple(overlaps[i] for i in range(len(regions)))


class _Intervals:
    """Byte intervals [low, high) of the regions of one buffer: arrays of [regions, classes of dies that agree in
    all]."""

    def __init__(self, regions: list[Region], dies: int) -> None:
        self.regions = regions
        representatives = _representatives(regions, dies)
        self.spans = np.asarray([span(r.dims) for r in regions], np.int64)[:, None]
        self.low = np.stack([as_array(r.offset, dies)[representatives] * r.size for r in regions])
        active = np.stack([as_array(r.where, dies)[representatives] != 0 for r in regions]) & (self.spans > 0)
        # An interval that ends before all others begin overlaps none, so inactive dies need no mask.
        self.high = np.where(active, self.low + self.spans, np.iinfo(np.int64).min)
        self.is_run = np.asarray([len(r.dims) <= 1 for r in regions])
        # Rows, distance of rows and bytes of a row of regions that are matrices; 0 of others.
        self.rows, self.stride, self.width = np.asarray([_matrix(r.dims) for r in regions], np.int64).T

    def overlapping(self) -> Iterator[Index]:
        """The regions that overlap each region, by position in the buffer's list."""
        # Each pair is looked at once, by the first of it.
        earlier: list[list[int]] = [[] for _ in self.regions]
        for k, others in enumerate(self._later()):
            intersects = (self.low[k] < self.high[others]) & (self.low[others] < self.high[k])
            hit = np.flatnonzero(intersects.any(axis=1))
            later = hit + (k + 1) if isinstance(others, slice) else others[hit]
            if later.size:
                later = later[self._overlaps(k, later, intersects[hit])]
            for other in later.tolist():
                earlier[other].append(k)
            yield np.asarray([*earlier[k], k, *later.tolist()], np.intp)

    def _later(self) -> Iterator[slice | Index]:
        """For each region those behind it that may overlap it, ascending: all, or if they are many, those near it."""
        count = len(self.regions)
        if count < _MANY:
            yield from (slice(k + 1, count) for k in range(count))
            return
        index, rows = RowsIndex(), [self._rows(k) for k in range(count)]
        for k, own in enumerate(rows):
            if own is not None:
                index.add(k, own)
        for k, own in enumerate(rows):
            near = index.near(own) if own is not None else set()
            if 2 * len(near) < count - k:
                yield np.asarray(sorted(x for x in near if x > k), np.intp)
            else:
                yield slice(k + 1, count)

    def _rows(self, k: int) -> Rows | None:
        """The bytes of a region on all dies together, as rows if these lie in the same columns on all; None where no
        die accesses it."""
        low = self.low[k][self.high[k] > self.low[k]]
        if not low.size:
            return None
        first, last = int(low.min()), int(low.max())
        rows = Rows.of(first, last + int(self.spans[k, 0]), self.regions[k].dims)
        in_columns = first == last or not rows.period or not ((low - first) % rows.period).any()
        return rows if in_columns else Rows(rows.low, rows.high)

    def _overlaps(self, k: int, others: Index, intersects: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether region k overlaps each of the others; `intersects`: the classes of dies on which their intervals
        do. Intervals are exact for runs; strided regions are compared byte by byte."""
        overlaps = np.ones(len(others), np.bool_)
        strided = overlaps if not self.is_run[k] else ~self.is_run[others]
        is_matrix = strided & (self.stride[others] == self.stride[k]) & (self.rows[k] > 0)
        for alike, among in ((is_matrix, self._overlap_of_rows), (strided & ~is_matrix, self._overlap)):
            if alike.any():
                overlaps[alike] = among(k, others[alike], intersects[alike])
        return overlaps

    def _overlap_of_rows(self, k: int, others: Index, intersects: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether matrix k overlaps each of the others, whose rows are as far apart: their columns meet in a row that
        both have, or those of the other begin in the row before."""
        shift, distance = self.low[others] - self.low[k], self.stride[k]
        row, column = np.divmod(shift, distance)
        first = -self.rows[others][:, None]
        in_row = (column < self.width[k]) & (first < row) & (row < self.rows[k])
        width = self.width[others][:, None]
        wrapped = (column + width > distance) & (first < row + 1) & (row + 1 < self.rows[k])
        overlaps: NDArray[np.bool_] = ((in_row | wrapped) & intersects).any(axis=1)
        return overlaps

    def _overlap(self, k: int, others: Index, intersects: NDArray[np.bool_]) -> list[bool]:
        """Whether region k overlaps each of the others; `intersects`: the classes of dies on which their intervals
        do."""
        dims = self.regions[k].dims
        shifts = self.low[others] - self.low[k]
        is_uniform = (shifts == shifts[:, :1]).all(axis=1).tolist()  # on all dies, as mostly
        return [
            overlap(dims, self.regions[other].dims, shift)
            if uniform
            else any(
                overlap(dims, self.regions[other].dims, s) for s in set(shifts[n, intersects[n]].tolist())
            )
            for n, (other, shift, uniform) in enumerate(
                zip(others.tolist(), shifts[:, 0].tolist(), is_uniform, strict=True)
            )
        ]


def _matrix(dims: Dims) -> tuple[int, int, int]:
    """Rows, their distance and their bytes, if the dimensions are those of a matrix whose rows do not overlap."""
    if len(dims) != 2 or dims[1][0] > dims[0][1]:
        return 0, 0, 0
    (rows, distance), (width, _) = dims
    return rows, distance, width


def _representatives(regions: list[Region], dies: int) -> Index:
    """One die of each class of dies that agree in all offsets and masks, ascending."""
    varying = list(dict.fromkeys(i for r in regions for i in (r.offset, r.where) if not isinstance(i, int)))
    if not varying:
        return np.zeros(1, np.intp)
    table = np.stack([as_array(i, dies) for i in varying], axis=1)
    return np.sort(np.unique(table, axis=0, return_index=True)[1])
