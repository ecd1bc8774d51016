"""Equal boxes for the inner axes of a strategy, set down wherever a wafer is whole, one for each coordinate of
the outer axes.

A tiling of the whole strategy (`place_tiles`) is the case without outer axes. With some, damage spoils a box
and not the lattice: the smaller the box, the more damage is survived, the larger, the closer lie its peers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, islice
from math import prod

import numpy as np
import numpy.typing as npt

from wscc.machine.topology import Topology
from wscc.passes.place.assign import Regions
from wscc.passes.place.lattice import Cell, Tiling, best_tilings, live_corners
from wscc.passes.place.types import IntArray, Shape

# The best tilings of each choice of outer axes that are tried.
_TILINGS = 6
# Boxes kept for each that is needed, to choose from.
_SPARE = 3
# Positions of a single box that are tried where dead links spoil some.
_MAX_POSITIONS = 2_000

Corners = npt.NDArray[np.bool_]
Keeps = Callable[[Shape, IntArray], bool]


def boxes(topology: Topology, shape: Shape, closed: bool, keeps: Keeps) -> Iterator[Regions]:
    """For every choice of outer axes that are not rings, the boxes of the cheapest tiling of the others that can
    be set down often enough. `keeps` says whether a box keeps the rules despite dead links."""
    assert topology.grid is not None
    split = [i for i, a in enumerate(shape) if a.size > 1]
    free = [i for i in split if not shape[i].ring]
    for some in range(len(free) + 1):
        for outer in combinations(free, some):
            inner = tuple(i for i in split if i not in outer)
            count = prod(shape[i].size for i in outer)
            small = [shape[i] for i in inner]
            for tiling in best_tilings(small, topology.grid)[:_TILINGS]:
                if closed and tiling.open:
                    break
                found = _boxes(topology, tiling, count, lambda dies, s=small: keeps(s, dies))  # type: ignore[misc]
                if len(found.dies) >= count:
                    yield Regions(inner, found.dies, "boxes" if outer else "tile", False, found.cells)
                    break


def most_boxes(topology: Topology, tiling: Tiling, count: int, keeps: Callable[[IntArray], bool]) -> IntArray:
    """Up to `count` disjoint boxes that keep the rules: [boxes, dies of a box]."""
    return _boxes(topology, tiling, count, keeps).dies[:count]


@dataclass(frozen=True, slots=True)
class _Boxes:
    dies: IntArray
    cells: IntArray | None


def _boxes(topology: Topology, tiling: Tiling, count: int, keeps: Callable[[IntArray], bool]) -> _Boxes:
    """Disjoint boxes that keep the rules, on a lattice or as a scan finds them: of the first layout that has
    `count`, else of the one that has most."""
    assert topology.grid is not None
    cols = topology.grid[1]
    offsets = tiling.offsets[:, 0] * cols + tiling.offsets[:, 1]
    best = _Boxes(np.empty((0, len(offsets)), np.int64), None)
    wanted = 1 if count == 1 else _SPARE * count
    for corners, lattice in _layouts(live_corners(topology, tiling.extent), tiling.extent, count):
        boxes = ((at, (at[0] * cols + at[1]) + offsets) for at in _nearest(corners).tolist())
        kept = list(islice((b for b in boxes if keeps(b[1])), wanted))
        if len(kept) > len(best.dies):
            cells = np.array([at for at, _ in kept], np.int64) // np.array(tiling.extent) if lattice else None
            best = _Boxes(np.array([dies for _, dies in kept]), cells)
        if len(best.dies) >= count:
            break
    return best


def _layouts(live: Corners, extent: Cell, count: int) -> Iterator[tuple[IntArray, bool]]:
    """Upper left corners of boxes to choose from, and whether they are on a lattice: for one box, all; for
    several, disjoint ones."""
    if count == 1:
        yield np.argwhere(live)[:_MAX_POSITIONS], False
        return
    height, width = extent
    offsets = [(r, c) for r in range(height) for c in range(width)]
    r, c = max(offsets, key=lambda at: int(live[at[0] :: height, at[1] :: width].sum()))
    yield np.argwhere(live[r::height, c::width]) * extent + (r, c), True
    for by_row in (True, False):
        yield _scan(live, extent, by_row), False


def _nearest(corners: IntArray) -> IntArray:
    """Those nearest to the first come first."""
    if not len(corners):
        return corners
    return corners[np.argsort(np.abs(corners - corners[0]).sum(1), kind="stable")]


def _scan(live: Corners, extent: Cell, by_row: bool) -> IntArray:
    """Row by row, or column by column, every box that none before it touches."""
    free = live.copy()
    height, width = extent
    corners = np.argwhere(live) if by_row else np.argwhere(live.T)[:, ::-1]
    taken = []
    for r, c in corners.tolist():
        if free[r, c]:
            taken.append((r, c))
            free[max(r - height + 1, 0) : r + height, max(c - width + 1, 0) : c + width] = False
    return np.array(taken, np.int64).reshape(-1, 2)
