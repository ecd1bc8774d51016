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

from wscc.analysis.memory.live_ranges import LiveRange, live_peak
from wscc.analysis.memory.occupied import Block, Changed, Occupied

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


def pack(ranges: tuple[LiveRange, ...], *, reuse: bool = True, enough: int = 0) -> tuple[dict[str, int], int]:
    """The offset of each buffer by name, and the size of the region, in bytes.

    Invariant: buffers that are live together share no byte; without `reuse`, no two buffers do. Of packings of equal
    size, one with the receive slots lowest is taken. No smaller one is looked for than the first of at most `enough`
    bytes.
    """
    if not reuse:
        others = [x for x in ranges if x.address < 0]
        placed = {x.name: x.address for x in ranges if x.address >= 0}
        first = max((x.address + x.size for x in ranges if x.address >= 0), default=0)
        ends = np.cumsum([first, *(x.size for x in others)]).tolist()
        return placed | {x.name: offset for x, offset in zip(others, ends, strict=False)}, ends[-1]
    bound = max(live_peak(ranges), enough)
    best = current = _smallest(ranges, bound)
    for _ in range(min(_TRIES, _EFFORT // max(len(ranges), 1))):
        if best.size <= bound:
            break
        current = current.repacked()
        best = min(best, current, key=lambda packed: packed.size)
    return best.offsets, best.size


def _smallest(ranges: tuple[LiveRange, ...], bound: int) -> _Packed:
    """The first of the smallest packings in the given orders, receive slots first and not, or the first one of at most
    `bound` bytes."""
    best: _Packed | None = None
    for slots_first, order in product((True, False), _ORDERS):
        ordered = sorted(ranges, key=lambda x: (slots_first and not x.slot, *order(x), x.name))
        packed = _first_fit(ordered, best.size if best else None)
        best = packed or best
        if best and best.size <= bound:
            break
    assert best is not None, "the first order has nothing to be smaller than"
    return best


@dataclass(frozen=True, slots=True)
class _Packed:
    """A packing: buffers in the order in which they were placed, their offsets, and the size of the region."""

    order: list[LiveRange]
    offsets: dict[str, int]
    size: int

    def repacked(self) -> _Packed:
        """The packing that places the buffers which end highest first: they were placed too late."""
        placed = [x for x in self.order if x.address >= 0]
        free = [x for x in self.order if x.address < 0]
        late = [x for x in free if self.offsets[x.name] + x.size == self.size]
        rest = [x for x in free if self.offsets[x.name] + x.size < self.size]
        occupied, offsets, changed = Occupied(), dict[str, int](), Changed(late)
        for x in (*placed, *late, *rest):
            if x.address < 0 and changed.touches(x):
                offsets[x.name] = occupied.lowest_gap(x.first, x.last, x.size)
                if offsets[x.name] != self.offsets[x.name]:
                    changed.add(x)
            else:
                offsets[x.name] = self.offsets[x.name]
            occupied.take(_block(x, offsets[x.name]))
        return _Packed([*placed, *late, *rest], offsets, max(offsets[x.name] + x.size for x in self.order))


def _first_fit(ranges: list[LiveRange], smaller_than: int | None) -> _Packed | None:
    """The packing in this order; None as soon as it is no smaller than that."""
    occupied, offsets, size = Occupied(), dict[str, int](), 0
    ranges = sorted(ranges, key=lambda x: x.address < 0)  # those that have their places first
    for x in ranges:
        offsets[x.name] = x.address if x.address >= 0 else occupied.lowest_gap(x.first, x.last, x.size)
        occupied.take(_block(x, offsets[x.name]))
        size = max(size, offsets[x.name] + x.size)
        if smaller_than is not None and size >= smaller_than:
            return None
    return _Packed(ranges, offsets, size)


def _block(x: LiveRange, offset: int) -> Block:
    return offset, offset + x.size, x.first, x.last
