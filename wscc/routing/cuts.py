"""Cuts: sets of dies that much must enter through few links. A cut bounds the load as link prices do (1 on the
links into the set, 0 elsewhere), and where many dies receive the same bytes it proves more than shortest paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wscc.machine.topology import Topology
from wscc.routing.flows import Demand, Floats
from wscc.routing.spread import Prices

_RECTANGLES: Final = 40_000  # corners are thinned out on meshes with more than that


def best_cut(
    topology: Topology, demands: Sequence[Demand], fixed: Floats, *, rectangles: bool = True
) -> Prices:
    """What the links into a set of dies prove, for the set that proves most: each die, and on a grid each rectangle
    of dies (unless only dies are asked for), and all dies but these. `fixed`: bytes by link that are there anyhow."""
    tails, heads = np.array(topology.links, np.int64).reshape(-1, 2).T
    sizes = np.array([d.bytes for d in demands], float)
    sources = np.array([d.source for d in demands], np.int64)
    ends = np.zeros((len(demands), topology.dies), np.float32)
    for i, d in enumerate(demands):
        ends[i, list(d.destinations)] = 1.0
    best = Prices(np.zeros(len(topology.links)), 0.0)
    for inside in _rectangles(topology.grid) if rectangles and topology.grid else _dies(topology):
        into = inside[heads] & ~inside[tails]
        links = int(into.sum())
        if links:
            enters = ~inside[sources] & (ends @ inside.astype(np.float32) > 0)
            proven = float(sizes[enters].sum() + fixed[into].sum()) / links
            if proven > best.bound:
                best = Prices(into / links, proven)
    return best


def _dies(topology: Topology) -> Iterator[NDArray[np.bool_]]:
    """Masks over dies: each die, and all the others."""
    for die in topology.live:
        mask = np.arange(topology.dies) == die
        yield mask
        yield ~mask


def _rectangles(grid: tuple[int, int]) -> Iterator[NDArray[np.bool_]]:
    """Masks over dies: each rectangle, and all that is outside."""
    rows, cols = grid
    for top, bottom in _ranges(rows, _thinning(rows, cols)):
        for left, right in _ranges(cols, _thinning(rows, cols)):
            mask = np.zeros((rows, cols), np.bool_)
            mask[top:bottom, left:right] = True
            yield mask.ravel()
            yield ~mask.ravel()


def _thinning(rows: int, cols: int) -> int:
    """Rectangles begin and end at multiples of this, or are one die high or wide."""
    step = 1
    while ((rows // step + 1) * (cols // step + 1)) ** 2 // 4 > _RECTANGLES:
        step += 1
    return step


def _ranges(count: int, step: int) -> Iterator[tuple[int, int]]:
    edges = sorted({*range(0, count, step), count})
    for low in edges:
        yield from ((low, high) for high in edges if high > low)
        if step > 1 and low < count:
            yield low, low + 1
