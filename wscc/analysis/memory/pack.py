"""Packing of live ranges into one region: offline dynamic storage allocation, by first fit in several orders.

The problem is NP-complete (M. Garey, D. Johnson, "Computers and Intractability", 1979, problem SR2); the orders and the
retries are heuristics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wscc.analysis.memory.gaps import lowest_gap
from wscc.analysis.memory.live_ranges import LiveRange, live_peak

Numbers = NDArray[np.int64]

# Limits of the improvement: repackings, and buffers placed in all of them.
_TRIES: Final = 32
_EFFORT: Final = 4000

# Orders in which buffers are placed, each in the lowest gap that fits; the one with the smallest region wins.
_ORDERS: Final[tuple[Callable[[LiveRange], tuple[int, ...]], ...]] = (
    lambda x: (-x.size, x.first - x.last, x.first),
    lambda x: (x.size * (x.first - x.last - 1), -x.size, x.first),
    lambda x: (x.first - x.last, -x.size, x.first),
    lambda x: (x.first, -x.size, x.last),
)


def pack(ranges: tuple[LiveRange, ...], *, reuse: bool = True) -> tuple[dict[str, int], int]:
    """The offset of each buffer by name, and the size of the region, in bytes.

    Invariant: buffers that are live together share no byte; without `reuse`, no two buffers do. Of packings of equal
    size, one with the receive slots lowest is taken.
    """
    if not reuse:
        placed = [x for x in ranges if x.address >= 0]
        others = [x for x in ranges if x.address < 0]
        first = max((x.address + x.size for x in placed), default=0)
        ends = np.cumsum([first, *(x.size for x in others)]).tolist()
        offsets = {x.name: offset for x, offset in zip(others, ends, strict=False)}
        return offsets | {x.name: x.address for x in placed}, ends[-1]
    bound = live_peak(ranges)
    best = current = _smallest(ranges, bound)
    for _ in range(min(_TRIES, _EFFORT // max(len(ranges), 1))):
        if best.size == bound:
            break
        current = current.repacked()
        best = min(best, current, key=lambda packed: packed.size)
    return best.offsets, best.size


def _smallest(ranges: tuple[LiveRange, ...], bound: int) -> _Packed:
    """The first of the smallest packings in the given orders, receive slots first and not; none is below the bound."""
    packings: list[_Packed] = []
    for slots_first, order in product((True, False), _ORDERS):
        ordered = sorted(ranges, key=lambda x: (slots_first and not x.slot, *order(x), x.name))
        packings.append(_first_fit(ordered))
        if packings[-1].size == bound:
            return packings[-1]
    return min(packings, key=lambda packed: packed.size)


@dataclass(frozen=True, slots=True)
class _Packed:
    """A packing: buffers in the order in which they were placed, their offsets, and the size of the region."""

    order: list[LiveRange]
    offsets: dict[str, int]
    size: int

    def repacked(self) -> _Packed:
        """The packing that places the buffers which end highest first: they were placed too late."""
        return _first_fit(sorted(self.order, key=lambda x: self.offsets[x.name] + x.size < self.size))


def _first_fit(ranges: list[LiveRange]) -> _Packed:
    ranges = sorted(ranges, key=lambda x: x.address < 0)  # those that have their places first
    first = np.asarray([x.first for x in ranges], np.int64)
    last = np.asarray([x.last for x in ranges], np.int64)
    start = np.zeros(len(ranges), np.int64)
    end = np.zeros(len(ranges), np.int64)
    for i, x in enumerate(ranges):
        concurrent = np.flatnonzero((first[:i] <= x.last) & (last[:i] >= x.first))
        start[i] = lowest_gap(start[concurrent], end[concurrent], x.size) if x.address < 0 else x.address
        end[i] = start[i] + x.size
    offsets = {x.name: int(offset) for x, offset in zip(ranges, start, strict=True)}
    return _Packed(ranges, offsets, int(end.max(initial=0)))
