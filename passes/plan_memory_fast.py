"""Pack lifetimes into two memories: what gains most lies in the fast one, below, the rest behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from wscc.ir.memory import aligned
from wscc.passes.plan_memory_live import Lifetime
from wscc.passes.plan_memory_pack import lowest_gap, pack

# Of the fast memory, the part that only receive slots may use.
_SLOTS: Final = 0.1


def pack_fast(lives: tuple[Lifetime, ...], fast: int) -> tuple[dict[str, int], int]:
    """The offset of each buffer and the end of the region; as `pack` where all fit `fast` bytes.

    Else buffers are taken in several orders, each at the lowest gap of the fast memory if it fits there, and the
    order that saves most time wins; what is left is packed from `fast` on. No buffer lies across the border.
    """
    offsets, size = pack(lives)
    if size <= fast:
        return offsets, size
    best = fill_fast(lives, fast)
    slow, end = pack(tuple(x for x in lives if x.name not in best))
    base = aligned(fast)
    return best | {name: base + offset for name, offset in slow.items()}, base + end


def fill_fast(lives: tuple[Lifetime, ...], fast: int) -> dict[str, int]:
    """The offsets of those buffers that lie in the fast memory: of several orders, the one that saves most."""
    return max((_filled(lives, order, fast) for order in _ORDERS), key=lambda found: _saved(lives, found))


_ORDERS: Final[tuple[Callable[[Lifetime], tuple[float, ...]], ...]] = (
    lambda x: (not x.slot, -x.cost / (x.size * max(x.last - x.first + 1, 1))),
    lambda x: (-x.cost / (x.size * max(x.last - x.first + 1, 1)),),
    lambda x: (-x.cost / x.size,),
    lambda x: (-x.cost,),
)


def _saved(lives: tuple[Lifetime, ...], found: dict[str, int]) -> float:
    return sum(x.cost for x in lives if x.name in found)


def _filled(
    lives: tuple[Lifetime, ...], order: Callable[[Lifetime], tuple[float, ...]], fast: int
) -> dict[str, int]:
    """The offsets of those that fit, in this order; what costs nothing in the slow memory stays there."""
    others = int(fast * (1 - _SLOTS))
    wanted = sorted((x for x in lives if x.cost > 0 or x.slot), key=lambda x: (*order(x), x.name))
    first = np.array([x.first for x in wanted], np.int64)
    last = np.array([x.last for x in wanted], np.int64)
    start = np.zeros(len(wanted), np.int64)
    end = np.zeros(len(wanted), np.int64)  # of those that do not fit, empty
    found: dict[str, int] = {}
    for i, x in enumerate(wanted):
        together = np.flatnonzero((first[:i] <= x.last) & (last[:i] >= x.first) & (end[:i] > 0))
        gap = lowest_gap(start[together], end[together], x.size)
        if gap + x.size <= (fast if x.slot else others):
            start[i], end[i] = gap, gap + x.size
            found[x.name] = gap
    return found
