"""Pack lifetimes into two memories: what gains most lies in the fast one, below, the rest behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from wscc.analysis.memory.live_ranges import Lifetime, live_peak
from wscc.analysis.memory.pack import lowest_gap, pack
from wscc.ir.memory import aligned

# Of the fast memory, the part that only receive slots may use.
_SLOTS: Final = 0.1
# How often a packing is tried to improve, how often in vain on end, and how many buffers are placed in all for it.
_TRIES: Final = 12
_MISSES: Final = 5
_EFFORT: Final = 60_000
# Lives of copies are tried in these parts of the most that they may have: to begin with, and to grow.
_FIRST: Final = (0.5, 0.0)
_GROWN: Final = (1.0, 0.875, 0.75, 0.625)


@dataclass(frozen=True, slots=True)
class Packed:
    """The offset of each buffer, the end of the region, and the lives as they are there."""

    offsets: dict[str, int]
    size: int
    lives: tuple[Lifetime, ...]


def pack_fast(lives: tuple[Lifetime, ...], fast: int) -> Packed:
    """As `pack` where all fit `fast` bytes.

    Else buffers are taken in several orders, each at the lowest gap of the fast memory if it fits there; the order
    that saves most time wins. Lives that may be shorter are, and then grow as far as there is room. What is left is
    packed from `fast` on. No buffer lies across the border.
    """
    if live_peak(lives) <= fast:
        offsets, size = pack(lives)
        if size <= fast:
            return Packed(offsets, size, lives)
    near = _best_region(lives, fast)
    grown = {x.name: x for x in near.grown()}
    slow, end = pack(tuple(x for x in lives if x.name not in near.offsets))
    base = aligned(fast)
    offsets = near.offsets | {name: base + offset for name, offset in slow.items()}
    return Packed(offsets, base + end, tuple(grown.get(x.name, x) for x in lives))


def fill_fast(lives: tuple[Lifetime, ...], fast: int) -> dict[str, int]:
    """The offsets of the buffers that lie in the fast memory, as `pack_fast` would have them."""
    return _best_region(lives, fast).offsets


def _best_region(lives: tuple[Lifetime, ...], fast: int) -> _Region:
    """The fast memory with what lies there: of several orders, the one that saves most time, improved by taking first
    what did not fit."""
    wanted = [x for x in lives if x.cost > 0 or x.slot]
    best = max(
        (_Region.filled(sorted(wanted, key=lambda x: (key(x), x.name)), fast) for key in _ORDERS),
        key=lambda region: region.saved,
    )
    tried: set[str] = set()
    misses = 0
    while len(tried) < _EFFORT // max(len(wanted), 1) and len(tried) < _TRIES and misses < _MISSES:
        left = [x for x in best.order if x.cost > 0 and x.name not in best.offsets and x.name not in tried]
        if not left:
            break
        first = max(left, key=lambda x: (x.cost, x.name))
        tried.add(first.name)
        other = _Region.filled([first, *(x for x in best.order if x.name != first.name)], fast)
        misses = 0 if other.saved > best.saved else misses + 1
        best = other if not misses else best
    return best


_ORDERS: Final[tuple[Callable[[Lifetime], float], ...]] = (
    lambda x: -x.cost / x.size,
    lambda x: -x.cost,
)


class _Region:
    """The fast memory: what lies where, and when."""

    def __init__(self, order: list[Lifetime], fast: int) -> None:
        self.order = order
        self.offsets: dict[str, int] = {}
        self.first = np.zeros(len(order), np.int64)
        self.last = np.zeros(len(order), np.int64)
        self.start = np.zeros(len(order), np.int64)
        self.end = np.zeros(len(order), np.int64)  # of those that do not lie here, empty
        self._limit = {slot: fast if slot else int(fast * (1 - _SLOTS)) for slot in (True, False)}

    @staticmethod
    def filled(order: list[Lifetime], fast: int) -> _Region:
        """With those that fit, in this order."""
        region = _Region(order, fast)
        for i, x in enumerate(order):
            region._place(i, _FIRST if x.later or x.sooner else (0.0,), i)
        return region

    @property
    def saved(self) -> float:
        """The time that it saves, in seconds."""
        return sum(x.cost for x in self.order if x.name in self.offsets)

    def grown(self) -> Iterator[Lifetime]:
        """The lives of those that lie here, longer as far as there is room, in order of need."""
        for i in sorted(range(len(self.order)), key=lambda i: self.order[i].first + self.order[i].later):
            x = self.order[i]
            if x.name in self.offsets and (x.later or x.sooner):
                self._place(i, _GROWN, len(self.order))
                yield x.within(int(self.first[i]), int(self.last[i]))

    def _place(self, i: int, parts: tuple[float, ...], among: int) -> None:
        """Put buffer i at the lowest gap that those before `among` leave, with the first of these parts of what its
        life may be longer for which there is one."""
        x = self.order[i]
        for part in parts:
            first = x.first + x.later - int(part * x.later)
            last = x.last - x.sooner + int(part * x.sooner)
            together = (self.first[:among] <= last) & (self.last[:among] >= first) & (self.end[:among] > 0)
            if i < among:
                together[i] = False
            near = np.flatnonzero(together)
            gap = lowest_gap(self.start[near], self.end[near], x.size)
            if gap + x.size <= self._limit[x.slot]:
                self.first[i], self.last[i] = first, last
                self.start[i], self.end[i] = gap, gap + x.size
                self.offsets[x.name] = gap
                return
