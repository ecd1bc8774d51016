"""Pack lifetimes into one region: dynamic storage allocation, offline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wscc.analysis.memory.live_ranges import Lifetime, live_peak

Numbers = NDArray[np.int64]

# How often a packing is improved, and how many buffers are placed in all for it.
_TRIES: Final = 32
_EFFORT: Final = 4000

# Orders in which buffers are placed, each at the lowest gap that fits; the one that needs least memory wins.
_ORDERS: Final[tuple[Callable[[Lifetime], tuple[int, ...]], ...]] = (
    lambda x: (-x.size, x.first - x.last, x.first),
    lambda x: (x.size * (x.first - x.last - 1), -x.size, x.first),
    lambda x: (x.first - x.last, -x.size, x.first),
    lambda x: (x.first, -x.size, x.last),
)


def pack(lives: tuple[Lifetime, ...], *, reuse: bool = True) -> tuple[dict[str, int], int]:
    """The offset of each buffer and the size of the region.

    Invariant: buffers that are live together share no byte. Without `reuse`, no buffers do. Of packings of
    equal size, one with the receive slots lowest is taken.
    """
    if not reuse:
        ends = np.cumsum([0, *(x.size for x in lives)]).tolist()
        return {x.name: offset for x, offset in zip(lives, ends, strict=False)}, ends[-1]
    least = live_peak(lives)
    starts = [
        _first_fit(sorted(lives, key=lambda x: (slots_first and not x.slot, *order(x), x.name)))
        for slots_first in (True, False)
        for order in _ORDERS
    ]
    best = current = min(starts, key=lambda packed: packed.size)
    for _ in range(min(_TRIES, _EFFORT // max(len(lives), 1))):
        if best.size == least:
            break
        current = current.retried()
        best = min(best, current, key=lambda packed: packed.size)
    return best.offsets, best.size


@dataclass(frozen=True, slots=True)
class _Packed:
    """Buffers in the order in which they were placed, with what came of it."""

    order: list[Lifetime]
    offsets: dict[str, int]
    size: int

    def retried(self) -> _Packed:
        """Packed again, beginning with the buffers that end highest: they were placed too late."""
        return _first_fit(sorted(self.order, key=lambda x: self.offsets[x.name] + x.size < self.size))


def _first_fit(lives: list[Lifetime]) -> _Packed:
    first = np.asarray([x.first for x in lives], np.int64)
    last = np.asarray([x.last for x in lives], np.int64)
    start = np.zeros(len(lives), np.int64)
    end = np.zeros(len(lives), np.int64)
    for i, life in enumerate(lives):
        together = np.flatnonzero((first[:i] <= life.last) & (last[:i] >= life.first))
        start[i] = lowest_gap(start[together], end[together], life.size)
        end[i] = start[i] + life.size
    offsets = {x.name: int(offset) for x, offset in zip(lives, start, strict=True)}
    return _Packed(lives, offsets, int(end.max(initial=0)))


def lowest_gap(
    start: np.ndarray[tuple[int], np.dtype[np.int64]],
    end: np.ndarray[tuple[int], np.dtype[np.int64]],
    size: int,
) -> int:
    """The lowest offset from which `size` bytes are free of the intervals [start, end)."""
    order = np.argsort(start, kind="stable")
    # Before interval k (or behind all), everything from `free_from` on is free.
    free_from = np.concatenate([[0], np.maximum.accumulate(end[order])])
    room = np.concatenate([start[order], [np.iinfo(np.int64).max]]) - free_from
    return int(free_from[int(np.argmax(room >= size))])
