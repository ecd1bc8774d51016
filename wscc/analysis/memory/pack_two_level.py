"""Packing of live ranges into two memories: the most costly ones in the fast memory, the others behind it.

The two-memory problem is a knapsack over time; the fill is greedy, by cost and by cost per byte, with retries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

import numpy as np

from wscc.analysis.memory.live_ranges import LiveRange, live_peak
from wscc.analysis.memory.occupied import Block, Changed, Occupied
from wscc.analysis.memory.pack import pack
from wscc.analysis.memory.prices import worth
from wscc.ir.memory import aligned

# The part of the fast memory that only receive slots may use.
_SLOTS: Final = 0.1
# Limits of the improvement: retries, failures in succession, and buffers placed in all retries.
_TRIES: Final = 12
_MISSES: Final = 5
_EFFORT: Final = 60_000
# What sums of the same seconds may differ by, as a part of them.
_ROUNDING: Final = 1e-9
# Statements from which on a range is first looked at for whether there is any room.
_LONG: Final = 64
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
    if (packed := _all_fast(ranges, fast)) is not None:
        return packed
    fast_memory = _best_fill(ranges, fast)
    extended = {x.name: x for x in fast_memory.extended()}
    slow, end = pack(tuple(x for x in ranges if x.name not in fast_memory.blocks))
    base = aligned(fast)
    offsets = fast_memory.offsets | {name: base + offset for name, offset in slow.items()}
    return Packed(offsets, base + end, tuple(extended.get(x.name, x) for x in ranges))


def names_in_fast(ranges: tuple[LiveRange, ...], fast: int) -> Set[str]:
    """The names of the buffers that `pack_two_level` puts in the fast memory."""
    packed = _all_fast(ranges, fast, enough=fast)
    return packed.offsets.keys() if packed is not None else _best_fill(ranges, fast).blocks.keys()


def seconds_lost(ranges: tuple[LiveRange, ...], fast: int) -> float:
    """About how many seconds accesses to the buffers that do not fit `fast` bytes cost: those of a quick packing."""
    if live_peak(ranges) <= fast:
        return 0.0
    filled = _quick_fill(ranges, fast)
    return sum(x.cost for x in filled.order) - filled.saved


def _all_fast(ranges: tuple[LiveRange, ...], fast: int, *, enough: int = 0) -> Packed | None:
    """The packing of all ranges in the fast memory, the first one of at most `enough` bytes; None if there is none."""
    if live_peak(ranges) > fast:
        return None
    offsets, size = pack(ranges, enough=enough)
    return Packed(offsets, size, ranges) if size <= fast else None


def _quick_fill(ranges: Iterable[LiveRange], fast: int) -> _FastMemory:
    """The better fill of two orders, without retries: for estimates, which compare many."""
    return _best_of((_by_density, _by_worth), _candidates(ranges), fast)


def _best_fill(ranges: tuple[LiveRange, ...], fast: int) -> _FastMemory:
    """The fill of the fast memory that saves most time: the best of several orders, improved by retries that place the
    costliest rejected buffer first."""
    candidates = _candidates(ranges)
    best = _best_of(_ORDERS, candidates, fast)
    tried: set[str] = set()
    failures = 0
    while len(tried) < _EFFORT // max(len(candidates), 1) and len(tried) < _TRIES and failures < _MISSES:
        rejected = [x for x in best.order if x.cost > 0 and x.name not in best.blocks and x.name not in tried]
        if not rejected:
            break
        costliest = max(rejected, key=lambda x: (x.cost, x.name))
        tried.add(costliest.name)
        retry = best.refilled(costliest)
        failures = 0 if retry.saved > best.saved else failures + 1
        best = retry if not failures else best
    return best


_Key = Callable[[LiveRange, Mapping[str, float]], tuple[float, ...]]


def _best_of(orders: Sequence[_Key], candidates: list[LiveRange], fast: int) -> _FastMemory:
    """The fill that saves most, of those in these orders."""
    values = worth(candidates, fast)
    best = _filled(candidates, values, fast, orders[0])
    for key in orders[1:]:
        region = _filled(candidates, values, fast, key, best.saved)
        best = region if region.saved > best.saved else best
    return best


def _candidates(ranges: Iterable[LiveRange]) -> list[LiveRange]:
    """The ranges that the fast memory is for."""
    return [x for x in ranges if x.cost > 0 or x.slot or x.address >= 0]


def _filled(
    candidates: list[LiveRange], values: Mapping[str, float], fast: int, key: _Key, enough: float = 0.0
) -> _FastMemory:
    """The fast memory with what fits in the order of a key, or with less once it can't save more than `enough`."""
    return _FastMemory.filled(sorted(candidates, key=lambda x: (*key(x, values), x.name)), fast, enough)


def _by_density(x: LiveRange, _: Mapping[str, float]) -> tuple[float, ...]:
    return (-x.cost / x.size,)


def _by_worth(x: LiveRange, values: Mapping[str, float]) -> tuple[float, ...]:
    return sum(values.get(x.name, 0.0) < n for n in (2.5, 1.2)), -x.cost / x.size


# By cost, by cost per byte, by cost per byte and statement; and by these after what is worth more than its bytes while
# it lives: far more, for what does not fit in the end leaves its place to others.
_ORDERS: Final[tuple[_Key, ...]] = (
    _by_density,
    lambda x, _: (-x.cost,),
    lambda x, _: (-x.cost / (x.size * max(1, x.last - x.first + 1)),),
    _by_worth,
    lambda x, values: (0, -x.cost) if values.get(x.name, 0.0) >= 2 else (1, -values.get(x.name, 0.0)),
)


class _FastMemory:
    """A fill of the fast memory, in some order of the buffers: those that fit have a block of it each. It stops where
    it can no longer save the seconds `least`: it then saves less than that."""

    def __init__(self, order: list[LiveRange], fast: int, least: float) -> None:
        self.order = order
        total = sum(x.cost for x in order)
        # Seconds that it may lose, and a little more than sums in another order may differ by.
        self._may_lose = total - least + _ROUNDING * total
        self.fast = fast
        self.blocks: dict[str, Block] = {}  # of the buffers that lie in it
        self._occupied = Occupied()
        # Bytes that blocks take by statement, without those that only slots may use.
        self._taken = np.zeros(1 + max((x.last for x in order), default=0), np.int64)
        self._common = int(fast * (1 - _SLOTS))
        self._limit = {True: fast, False: self._common}

    @staticmethod
    def filled(order: list[LiveRange], fast: int, least: float = 0.0) -> _FastMemory:
        """The fast memory with the buffers that fit, placed in this order."""
        order = sorted(order, key=lambda x: x.address < 0)  # those that have their places first
        region = _FastMemory(order, fast, least)
        for x in order:
            if not region._place_at_first(x) and region._loses(x):
                break
        return region

    def refilled(self, front: LiveRange) -> _FastMemory:
        """The fast memory filled in the same order but for one buffer, which is placed before all others, as long as it
        can save more than this one."""
        order = [front, *(x for x in self.order if x.name != front.name)]
        order.sort(key=lambda x: x.address < 0)
        region, changed = _FastMemory(order, self.fast, self.saved), Changed((front,))
        for x in order:
            if changed.touches(x):
                region._place_at_first(x)
                if region.blocks.get(x.name) != self.blocks.get(x.name):
                    changed.add(x)
            elif x.name in self.blocks:
                region._put(x, self.blocks[x.name])
            if x.name not in region.blocks and region._loses(x):
                break
        return region

    @property
    def offsets(self) -> dict[str, int]:
        """The offsets of the buffers that lie in it."""
        return {name: start for name, (start, *_) in self.blocks.items()}

    @property
    def saved(self) -> float:
        """Seconds that the buffers in it would cost in the slow memory."""
        return sum(x.cost for x in self.order if x.name in self.blocks)

    def extended(self) -> Iterator[LiveRange]:
        """The ranges with slack that lie here, extended as far as there is room, in the order in which they are
        needed."""
        for x in sorted(self.order, key=lambda x: x.first + x.start_slack):
            if x.name in self.blocks and (x.start_slack or x.end_slack):
                block = self.blocks[x.name]
                self._free(block)
                if not self._place(x, _EXTENDED):
                    self._put(x, block)
                _, _, first, last = self.blocks[x.name]
                yield x.within(first, last)

    def _loses(self, x: LiveRange) -> bool:
        """Whether too much is lost without the buffer x as well."""
        self._may_lose -= x.cost
        return self._may_lose < 0

    def _place_at_first(self, x: LiveRange) -> bool:
        if x.address >= 0:
            self._put(x, (x.address, x.address + x.size, x.first, x.last))
            return True
        if x.start_slack or x.end_slack:
            return self._place(x, _INITIAL)
        return self._place_within(x, x.first, x.last)

    def _place(self, x: LiveRange, fractions: tuple[float, ...]) -> bool:
        """Place a buffer in the lowest gap, extended by the first of these fractions of its slack for which there is
        one; not at all if there is none."""
        return any(
            self._place_within(
                x,
                x.first + x.start_slack - int(fraction * x.start_slack),
                x.last - x.end_slack + int(fraction * x.end_slack),
            )
            for fraction in fractions
        )

    def _place_within(self, x: LiveRange, first: int, last: int) -> bool:
        size, limit = x.size, self._limit[x.slot]
        if last - first > _LONG and self._taken[first : last + 1].max() + size > limit:
            return False  # seen at once, where a search would go through all that lives in the range
        gap = self._occupied.lowest_gap(first, last, size)
        if gap + size > limit:
            return False
        self._put(x, (gap, gap + size, first, last))
        return True

    def _put(self, x: LiveRange, block: Block) -> None:
        start, end, first, last = block
        self._occupied.take(block)
        self._taken[first : last + 1] += end - start if end <= self._common else self._shared(start, end)
        self.blocks[x.name] = block

    def _free(self, block: Block) -> None:
        start, end, first, last = block
        self._occupied.free(block)
        self._taken[first : last + 1] -= self._shared(start, end)

    def _shared(self, start: int, end: int) -> int:
        """The bytes of a block that others than slots might use."""
        return min(end, self._common) - min(start, self._common)
