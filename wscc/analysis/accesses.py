"""Regions of memory that the statements of a fabric procedure access, and the overlaps between them.

A *region* is a view together with the dies on which it is accessed. Two regions overlap if on some die both are
accessed and share a byte. Arguments that a call may bind to the same bytes count as one buffer. Two statements depend
on each other if a region that one of them writes overlaps a region that the other reads or writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np

from wscc.analysis.intervals.overlaps import Index, overlapping
from wscc.analysis.statement_accesses import accessed, where_of
from wscc.analysis.view_overlap import Dims, dims_of
from wscc.ir.die_arrays import as_array
from wscc.ir.module import Procedure
from wscc.ir.per_die import Ints
from wscc.ir.views import View

# The offset, the bytes of an element, the dimensions and the dies of a region.
Place: TypeAlias = tuple[Ints, int, Dims, Ints]


class Region(NamedTuple):
    """A view of `buffer` (the common name of all arguments that may share its bytes): from element `offset` on,
    elements of `size` bytes, byte dimensions `dims`; `where` is 1 on the dies that access it."""

    buffer: str
    offset: Ints
    size: int
    dims: Dims
    where: Ints

    @property
    def place(self) -> Place:
        """What it takes of its buffer, whichever that is."""
        return self[1:]


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
    of_views: dict[tuple[View, Ints], int] = {}

    def number(view: View, where: Ints) -> int:
        if (known := of_views.get((view, where))) is not None:
            return known
        buffer = aliases.get(view.buffer, view.buffer)
        region = Region(buffer, view.offset, view.dtype.size, dims_of(view), where)
        return of_views.setdefault((view, where), numbers.setdefault(region, len(numbers)))

    by_statement = []
    for stmt, (writes, reads) in zip(procedure.body, accessed(procedure.body), strict=True):
        where = where_of(stmt, dies, writes=True) if writes else 1
        written = tuple([number(view, where) for view in writes])
        where = where_of(stmt, dies, writes=False) if reads else 1
        by_statement.append(AccessSet(tuple([number(view, where) for view in reads]), written))
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
        rows = _overlapping_in_buffer(tuple([regions[i].place for i in members]), dies)
        overlaps.update((i, numbers[row]) for i, row in zip(members, rows, strict=True))
    return tuple(overlaps[i] for i in range(len(regions)))


# The slots and sums of a stream are accessed alike.
@lru_cache(maxsize=4096)
def _overlapping_in_buffer(places: tuple[Place, ...], dies: int) -> list[Index]:
    representatives = _representatives(places, dies)
    low = np.stack([as_array(offset, dies)[representatives] * size for offset, size, _, _ in places])
    active = np.stack([as_array(where, dies)[representatives] != 0 for *_, where in places])
    return overlapping(low, active, [dims for _, _, dims, _ in places])


def _representatives(places: Iterable[Place], dies: int) -> Index:
    """One die of each class of dies that agree in all offsets and masks, ascending."""
    varying = list(
        dict.fromkeys(i for offset, _, _, where in places for i in (offset, where) if not isinstance(i, int))
    )
    if not varying:
        return np.zeros(1, np.intp)
    table = np.stack([as_array(i, dies) for i in varying], axis=1)
    first: dict[bytes, int] = {}
    for die, row in enumerate(table):
        first.setdefault(row.tobytes(), die)
    return np.asarray(list(first.values()), np.intp)
