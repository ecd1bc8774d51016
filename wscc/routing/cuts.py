"""Cuts: sets of dies that many bytes must enter through few links. A cut bounds the load as link prices do (1 on the
links into the set, 0 elsewhere), and where many dies receive the same bytes it proves more than shortest paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nlargest
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wscc.machine.topology import Topology
from wscc.routing.flows import Demand, Floats
from wscc.routing.negotiation import Prices

Mask = NDArray[np.bool_]  # over dies: which are in the set

_RECTANGLES: Final = 40_000  # edges are thinned out where a mesh has more than that
_WORK: Final = 20_000_000_000  # multiplications that all rectangles together may cost
_BATCH: Final = 256
_STARTS: Final = 8  # rectangles that are improved, and the steps of each
_STEPS: Final = 50


def best_simple_cut(topology: Topology, demands: Sequence[Demand], fixed: Floats) -> Prices:
    """The cut that proves most among: one die, all dies but one, and on a grid one side of a straight line.

    `fixed`: byte times by link of pinned flows. Takes time in proportion to the demands."""
    best = _BestCut(topology, fixed)
    sizes, sources = _sizes(demands), _sources(demands)
    ends = np.array([end for d in demands for end in d.destinations], np.int64)
    received = np.repeat(sizes, [len(d.destinations) for d in demands])
    into = np.bincount(ends, received, minlength=topology.dies)
    out = np.bincount(sources, sizes, minlength=topology.dies)
    for die in topology.live:
        mask = np.arange(topology.dies) == die
        best.offer(mask, float(into[die]))
        best.offer(~mask, float(out[die]))
    if topology.grid is not None:
        starts = np.cumsum([0, *(len(d.destinations) for d in demands)])[:-1]
        for axis, extent in enumerate(topology.grid):
            along = np.array(divmod(np.arange(topology.dies), topology.grid[1])[axis])
            low, high = np.minimum.reduceat(along[ends], starts), np.maximum.reduceat(along[ends], starts)
            for line in range(1, extent):
                best.offer(along >= line, float(sizes[(along[sources] < line) & (high >= line)].sum()))
                best.offer(along < line, float(sizes[(along[sources] >= line) & (low < line)].sum()))
    return best.prices


def best_block(topology: Topology, demands: Sequence[Demand], fixed: Floats) -> Prices:
    """The cut that proves most, by local search from rectangles of a grid and their complements.

    The best rectangles take in or give up one die at a time while that proves more. Zero prices without a grid."""
    best = _BestCut(topology, fixed)
    if topology.grid is None:
        return best.prices
    arrays = _DemandArrays(topology, demands)
    masks = _rectangles(topology.grid, max(1, min(_RECTANGLES, _WORK // (len(demands) * topology.dies))))
    ranked: list[tuple[float, int, Mask]] = []
    while batch := list(islice(masks, _BATCH)):
        for mask, amount in zip(batch, arrays.entering(np.array(batch)), strict=True):
            ranked.append((best.offer(mask, amount), -len(ranked), mask))
    for proven, _, mask in nlargest(_STARTS, ranked, key=lambda entry: entry[:2]):
        _climb(best, arrays, mask, proven)
    return best.prices


def _climb(best: _BestCut, arrays: _DemandArrays, mask: Mask, proven: float) -> None:
    """Move one die over the border of a set as long as that proves more."""
    for _ in range(_STEPS):
        border = mask[best.heads] != mask[best.tails]
        dies = np.unique(best.heads[border])
        if not len(dies):
            return
        moved = np.repeat(mask[None, :], len(dies), axis=0)
        moved[np.arange(len(dies)), dies] ^= True
        bounds = [best.offer(m, n) for m, n in zip(moved, arrays.entering(moved), strict=True)]
        top = int(np.argmax(bounds))
        if bounds[top] <= proven:
            return
        mask, proven = moved[top], bounds[top]


class _DemandArrays:
    """Demands as arrays: the bytes that each die sends to one other alone ([source, die]), and of the demands with
    several destinations `ends`, 1 at [demand, die] where the die is one of them."""

    def __init__(self, topology: Topology, demands: Sequence[Demand]) -> None:
        self.single = np.zeros((topology.dies, topology.dies))
        for d in demands:
            if len(d.destinations) == 1:
                self.single[d.source, d.destinations[0]] += d.bytes
        several = [d for d in demands if len(d.destinations) > 1]
        self.sizes, self.sources = _sizes(several), _sources(several)
        self.ends = np.zeros((len(several), topology.dies), np.float32)
        for i, d in enumerate(several):
            self.ends[i, list(d.destinations)] = 1.0

    def entering(self, inside: NDArray[np.bool_]) -> list[float]:
        """Bytes of the demands from outside a set with a destination in it, by set (`inside`: [sets, dies])."""
        amounts = ((~inside).astype(np.float64) @ self.single * inside).sum(axis=1)
        if len(self.sizes):
            enters = (self.ends @ inside.T.astype(np.float32) > 0) & ~inside[:, self.sources].T
            amounts += self.sizes @ enters
        result: list[float] = amounts.tolist()
        return result


class _BestCut:
    """The cut that proves most of those offered so far."""

    def __init__(self, topology: Topology, fixed: Floats) -> None:
        self.tails, self.heads = np.array(topology.links, np.int64).reshape(-1, 2).T
        # Byte times of pinned flows; what a link carries in a byte time, and what of pinned flows it does.
        slow = np.ones(len(fixed)) if topology.byte_times is None else np.array(topology.byte_times)
        self.capacity, self.fixed = 1 / slow, fixed / slow
        self.prices = Prices(np.zeros(len(fixed)), 0.0)

    def offer(self, mask: Mask, enters: float) -> float:
        """The bound that a set of dies proves, which `enters` bytes have to enter; kept if it is the best."""
        into = mask[self.heads] & ~mask[self.tails]
        capacity = float(self.capacity[into].sum())
        proven = (enters + float(self.fixed[into].sum())) / capacity if capacity else 0.0
        if proven > self.prices.bound:
            self.prices = Prices(into * self.capacity / capacity, proven)
        return proven


def _sizes(demands: Sequence[Demand]) -> Floats:
    return np.array([d.bytes for d in demands], float)


def _sources(demands: Sequence[Demand]) -> NDArray[np.int64]:
    return np.array([d.source for d in demands], np.int64)


def _rectangles(grid: tuple[int, int], most: int) -> Iterator[Mask]:
    """Rectangles of a grid and their complements, about `most` at the most."""
    rows, cols = grid
    step = 1
    while ((rows // step + 1) * (cols // step + 1)) ** 2 // 2 > most and step < max(grid):
        step += 1
    for top, bottom in _ranges(rows, step):
        for left, right in _ranges(cols, step):
            mask = np.zeros((rows, cols), np.bool_)
            mask[top:bottom, left:right] = True
            yield mask.ravel()
            yield ~mask.ravel()


def _ranges(count: int, step: int) -> Iterator[tuple[int, int]]:
    edges = sorted({*range(0, count, step), count})
    yield from ((low, high) for low in edges for high in edges if high > low)
