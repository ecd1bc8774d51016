"""Pack lifetimes into one region: dynamic storage allocation, offline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wscc.passes.plan_memory_live import Lifetime

Numbers = NDArray[np.int64]

# Orders in which buffers are placed, each at the lowest gap that fits; the one that needs least memory wins.
_ORDERS: Final[tuple[Callable[[Lifetime], tuple[int, ...]], ...]] = (
    lambda x: (-x.size, x.first - x.last, x.first),
    lambda x: (x.size * (x.first - x.last - 1), -x.size, x.first),
    lambda x: (x.first - x.last, -x.size, x.first),
    lambda x: (x.first, -x.size, x.last),
)


def pack(lives: tuple[Lifetime, ...], *, reuse: bool = True) -> tuple[dict[str, int], int]:
    """The offset of each buffer and the size of the region.

    Invariant: buffers that are live together share no byte. Without `reuse`, no buffers do.
    """
    if not reuse:
        ends = np.cumsum([0, *(x.size for x in lives)]).tolist()
        return {x.name: offset for x, offset in zip(lives, ends, strict=False)}, ends[-1]
    best: tuple[dict[str, int], int] | None = None
    for order in _ORDERS:
        found = _first_fit(sorted(lives, key=lambda x: (not x.slot, *order(x), x.name)))
        if best is None or found[1] < best[1]:
            best = found
    assert best is not None
    return best


def _first_fit(lives: list[Lifetime]) -> tuple[dict[str, int], int]:
    first = np.asarray([x.first for x in lives], np.int64)
    last = np.asarray([x.last for x in lives], np.int64)
    start = np.zeros(len(lives), np.int64)
    end = np.zeros(len(lives), np.int64)
    for i, life in enumerate(lives):
        together = np.flatnonzero((first[:i] <= life.last) & (last[:i] >= life.first))
        start[i] = _lowest_gap(start[together], end[together], life.size)
        end[i] = start[i] + life.size
    offsets = {x.name: int(offset) for x, offset in zip(lives, start, strict=True)}
    return offsets, int(end.max(initial=0))


def _lowest_gap(
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
