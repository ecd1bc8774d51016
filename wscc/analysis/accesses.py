"""What the statements of a fabric procedure touch, and which touches meet: the dependencies of a body.

A *region* is a view together with the dies on which it is touched. Two regions meet when on some die both are
touched and share a byte. Arguments that a call may bind to the same bytes count as one buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from wscc.analysis.statement_accesses import accessed, where_of
from wscc.analysis.view_overlap import Dims, dims_of, meets, span
from wscc.ir.die_arrays import as_array
from wscc.ir.module import Procedure
from wscc.ir.per_die import Ints
from wscc.ir.views import View

Index: TypeAlias = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Region:
    """`buffer` is the common name of all arguments that may share its bytes; `where` is 1 on the dies that
    touch it."""

    buffer: str
    offset: Ints
    size: int
    dims: Dims
    where: Ints


@dataclass(frozen=True, slots=True)
class Touches:
    """The regions that one statement reads and writes, by number."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Accesses:
    """`touches[i]` is of statement i; `meeting[r]` are the regions that meet region r, itself included."""

    regions: tuple[Region, ...]
    touches: tuple[Touches, ...]
    meeting: tuple[Index, ...]


def accesses(procedure: Procedure, dies: int, aliases: dict[str, str]) -> Accesses:
    """Analyse a body. `aliases` gives arguments their common name (`wscc.analysis.aliases`); waits touch what their
    message does."""
    numbers: dict[Region, int] = {}

    def number(view: View, where: Ints) -> int:
        buffer = aliases.get(view.buffer, view.buffer)
        region = Region(buffer, view.offset, view.dtype.size, dims_of(view), where)
        return numbers.setdefault(region, len(numbers))

    touches = []
    for stmt, views in zip(procedure.body, accessed(procedure.body), strict=True):
        sides: tuple[list[int], list[int]] = ([], [])
        for view, writes in views:
            sides[writes].append(number(view, where_of(stmt, dies, writes=writes)))
        touches.append(Touches(*map(tuple, sides)))
    regions = tuple(numbers)
    return Accesses(regions, tuple(touches), _meeting(regions, dies))


# Passes one after the other ask for the same regions of every procedure.
@lru_cache(maxsize=64)
def _meeting(regions: tuple[Region, ...], dies: int) -> tuple[Index, ...]:
    by_buffer: dict[str, list[int]] = {}
    for i, region in enumerate(regions):
        by_buffer.setdefault(region.buffer, []).append(i)
    found: dict[int, Index] = {}
    for members in by_buffer.values():
        number = np.asarray(members, np.intp)
        rows = _Layout([regions[i] for i in members], dies)
        found.update((i, number[row]) for i, row in zip(members, rows.meeting(), strict=True))
    return tuple(found[i] for i in range(len(regions)))


class _Layout:
    """The regions of one buffer as byte intervals, one column per class of dies that agree in all of them."""

    def __init__(self, regions: list[Region], dies: int) -> None:
        self.regions = regions
        some = _representatives(regions, dies)
        self.spans = np.asarray([span(r.dims) for r in regions], np.int64)[:, None]
        self.low = np.stack([as_array(r.offset, dies)[some] * r.size for r in regions])
        active = np.stack([as_array(r.where, dies)[some] != 0 for r in regions]) & (self.spans > 0)
        # An interval that ends before all others begin meets none, so inactive dies need no mask.
        self.high = np.where(active, self.low + self.spans, np.iinfo(np.int64).min)
        self.is_run = np.asarray([len(r.dims) <= 1 for r in regions])

    def meeting(self) -> Iterator[Index]:
        """The regions that meet each region, in order."""
        # Intervals are exact for runs; the others are asked byte by byte, each pair once: by the first of the two.
        earlier: list[list[int]] = [[] for _ in self.regions]
        for k in range(len(self.regions)):
            near = (self.low[k] < self.high) & (self.low < self.high[k])
            meets_k = near.any(axis=1)
            unsure = np.flatnonzero(meets_k & ~(self.is_run & self.is_run[k]))
            meets_k[unsure[unsure < k]] = False
            meets_k[earlier[k]] = True
            meets_k[k] = True
            later = unsure[unsure > k]
            meets_k[later] = self._meet(k, later, near[later])
            for other in later[meets_k[later]].tolist():
                earlier[other].append(k)
            yield np.flatnonzero(meets_k)

    def _meet(self, k: int, others: Index, near: NDArray[np.bool_]) -> list[bool]:
        """Whether region k meets each of the others; `near` says on which dies their intervals do."""
        dims = self.regions[k].dims
        shifts = self.low[others] - self.low[k]
        alike = (shifts == shifts[:, :1]).all(axis=1).tolist()  # on all dies, as mostly
        return [
            meets(dims, self.regions[other].dims, shift)
            if same
            else any(meets(dims, self.regions[other].dims, s) for s in set(shifts[n, near[n]].tolist()))
            for n, (other, shift, same) in enumerate(
                zip(others.tolist(), shifts[:, 0].tolist(), alike, strict=True)
            )
        ]


def _representatives(regions: list[Region], dies: int) -> Index:
    """One die of each class."""
    varying = list(dict.fromkeys(i for r in regions for i in (r.offset, r.where) if not isinstance(i, int)))
    if not varying:
        return np.zeros(1, np.intp)
    table = np.stack([as_array(i, dies) for i in varying], axis=1)
    return np.sort(np.unique(table, axis=0, return_index=True)[1])
