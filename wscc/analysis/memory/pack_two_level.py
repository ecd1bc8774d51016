"""Packing of live ranges into two memories: the most costly ones in the fast memory, the others behind it.

The two-memory problem is a knapsack over time; the fill is greedy, by cost and by cost per byte, with retries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from wscc.analysis.memory.gaps import lowest_gap
from wscc.analysis.memory.live_ranges import LiveRange, live_peak
from wscc.analysis.memory.pack import pack
from wscc.ir.memory import aligned

# The part of the fast memory that only receive slots may use.
_SLOTS: Final = 0.1
# Limits of the improvement: retries, failures in succession, and buffers placed in all retries.
_TRIES: Final = 12
_MISSES: Final = 5
_EFFORT: Final = 60_000
# Fractions of the slack by which ranges of copies are extended beyond the shortest: at first, and at the end.
_INITIAL: Final = (0.5, 0.0)
_EXTENDED: Final = (1.0, 0.875, 0.75, 0.625)


@dataclass(frozen=True, slots=True)
class Packed:
    """The offset of each buffer by name, the end of the region, and the live ranges with their final bounds."""

    offsets: dict[str, int]
    size: int
    ranges: tuple[LiveRange, ...]


def pack_two_level(ranges: tuple[LiveRange, ...], fast: int) -> Packed:
    """The packing of `pack` where all ranges fit `fast` bytes, else one that fills the fast memory first.

    Buffers are then taken in several orders, each at the lowest gap of the fast memory if it fits there; the order that
    saves most time wins. Ranges with slack start shorter and are extended as far as there is room. All others
    are packed from offset `fast` on. No buffer crosses the border.
    """
    if live_peak(ranges) <= fast:
        offsets, size = pack(ranges)
        if size <= fast:
            return Packed(offsets, size, ranges)
    fast_memory = _best_fill(ranges, fast)
    extended = {x.name: x for x in fast_memory.extended()}
    slow, end = pack(tuple(x for x in ranges if x.name not in fast_memory.offsets))
    base = aligned(fast)
    offsets = fast_memory.offsets | {name: base + offset for name, offset in slow.items()}
    return Packed(offsets, base + end, tuple(extended.get(x.name, x) for x in ranges))


def fast_offsets(ranges: tuple[LiveRange, ...], fast: int) -> dict[str, int]:
    """The offsets of the buffers that `pack_two_level` puts in the fast memory."""
    return _best_fill(ranges, fast).offsets


def _best_fill(ranges: tuple[LiveRange, ...], fast: int) -> _FastMemory:
    """The fill of the fast memory that saves most time: the best of several orders, improved by retries that place the
    costliest rejected buffer first."""
    candidates = [x for x in ranges if x.cost > 0 or x.slot or x.address >= 0]
    best = max(
        (_FastMemory.filled(sorted(candidates, key=lambda x: (key(x), x.name)), fast) for key in _ORDERS),
        key=lambda region: region.saved,
    )
    tried: set[str] = set()
    failures = 0
    while len(tried) < _EFFORT // max(len(candidates), 1) and len(tried) < _TRIES and failures < _MISSES:
        rejected = [
            x for x in best.order if x.cost > 0 and x.name not in best.offsets and x.name not in tried
        ]
        if not rejected:
            break
        costliest = max(rejected, key=lambda x: (x.cost, x.name))
        tried.add(costliest.name)
        retry = _FastMemory.filled([costliest, *(x for x in best.order if x.name != costliest.name)], fast)
        failures = 0 if retry.saved > best.saved else failures + 1
        best = retry if not failures else best
    return best


_ORDERS: Final[tuple[Callable[[LiveRange], float], ...]] = (
    lambda x: -x.cost / x.size,
    lambda x: -x.cost,
)


class _FastMemory:
    """A fill of the fast memory: offsets, and by number of the buffer the range in time and in bytes."""

    def __init__(self, order: list[LiveRange], fast: int) -> None:
        self.order = order
        self.offsets: dict[str, int] = {}
        self.first = np.zeros(len(order), np.int64)
        self.last = np.zeros(len(order), np.int64)
        self.start = np.zeros(len(order), np.int64)
        self.end = np.zeros(len(order), np.int64)  # 0 of buffers that do not lie here
        self._limit = {slot: fast if slot else int(fast * (1 - _SLOTS)) for slot in (True, False)}

    @staticmethod
    def filled(order: list[LiveRange], fast: int) -> _FastMemory:
        """The fast memory with the buffers that fit, placed in this order."""
        order = sorted(order, key=lambda x: x.address < 0)  # those that have their places first
        region = _FastMemory(order, fast)
        for i, x in enumerate(order):
            region._place(i, _INITIAL if x.start_slack or x.end_slack else (0.0,), i)
        return region

    @property
    def saved(self) -> float:
        """Seconds that the buffers in it would cost in the slow memory."""
        return sum(x.cost for x in self.order if x.name in self.offsets)

    def extended(self) -> Iterator[LiveRange]:
        """The ranges with slack that lie here, extended as far as there is room, in the order in which they are
        needed."""
        for i in sorted(
            range(len(self.order)), key=lambda i: self.order[i].first + self.order[i].start_slack
        ):
            x = self.order[i]
            if x.name in self.offsets and (x.start_slack or x.end_slack):
                self._place(i, _EXTENDED, len(self.order))
                yield x.within(int(self.first[i]), int(self.last[i]))

    def _place(self, i: int, fractions: tuple[float, ...], among: int) -> None:
        """Place buffer i in the lowest gap that the buffers numbered below `among` leave, extended by the first of
        these fractions of its slack for which there is one; not at all if there is none."""
        x = self.order[i]
        if x.address >= 0:
            self._set(i, x.first, x.last, x.address)
            return
        for fraction in fractions:
            first = x.first + x.start_slack - int(fraction * x.start_slack)
            last = x.last - x.end_slack + int(fraction * x.end_slack)
            concurrent = (self.first[:among] <= last) & (self.last[:among] >= first) & (self.end[:among] > 0)
            if i < among:
                concurrent[i] = False
            gap = lowest_gap(self.start[:among][concurrent], self.end[:among][concurrent], x.size)
            if gap + x.size <= self._limit[x.slot]:
                self._set(i, first, last, gap)
                return

    def _set(self, i: int, first: int, last: int, address: int) -> None:
        x = self.order[i]
        self.first[i], self.last[i] = first, last
        self.start[i], self.end[i] = address, address + x.size
        self.offsets[x.name] = address
