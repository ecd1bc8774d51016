"""Equal boxes for the inner axes of a strategy, where a wafer is whole, one for each coordinate of the outer axes.

A tiling of the whole strategy is the case without outer axes. With some, damage spoils a box
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
IsValid = Callable[[Shape, IntArray], bool]


def boxes(topology: Topology, shape: Shape, closed: bool, is_valid: IsValid) -> Iterator[Regions]:
    """Regions for every choice of outer axes that are not rings: boxes of the cheapest tiling of the other axes that
    fits often enough. `is_valid` says whether a box keeps the rules despite dead links."""
    assert topology.grid is not None
    split = [i for i, a in enumerate(shape) if a.size > 1]
    free = [i for i in split if not shape[i].ring]
    for number in range(len(free) + 1):
        for outer in combinations(free, number):
            inner = tuple(i for i in split if i not in outer)
            count = prod(shape[i].size for i in outer)
            small = [shape[i] for i in inner]
            for tiling in best_tilings(small, topology.grid, topology.torus)[:_TILINGS]:
                if closed and tiling.open:
                    break
                fitting = _boxes(topology, tiling, count, lambda dies, s=small: is_valid(s, dies))  # type: ignore[misc]
                if len(fitting.dies) >= count:
                    yield Regions(inner, fitting.dies, "boxes" if outer else "tile", False, fitting.cells)
                    break


def most_boxes(
    topology: Topology, tiling: Tiling, count: int, is_valid: Callable[[IntArray], bool]
) -> IntArray:
    """Up to `count` disjoint boxes that are valid: [boxes, dies of a box]."""
    return _boxes(topology, tiling, count, is_valid).dies[:count]


@dataclass(frozen=True, slots=True)
class _Boxes:
    dies: IntArray
    cells: IntArray | None


def _boxes(topology: Topology, tiling: Tiling, count: int, is_valid: Callable[[IntArray], bool]) -> _Boxes:
    """Disjoint valid boxes, on a lattice or by a scan: of the first layout that has `count`, else of the one that has
    most."""
    assert topology.grid is not None
    cols = topology.grid[1]
    offsets = tiling.offsets[:, 0] * cols + tiling.offsets[:, 1]
    best = _Boxes(np.empty((0, len(offsets)), np.int64), None)
    most = 1 if count == 1 else _SPARE * count
    for corners, lattice in _layouts(live_corners(topology, tiling.extent), tiling.extent, count):
        boxes = ((corner, (corner[0] * cols + corner[1]) + offsets) for corner in _nearest(corners).tolist())
        valid = list(islice((b for b in boxes if is_valid(b[1])), most))
        if len(valid) > len(best.dies):
            cells = (
                np.array([corner for corner, _ in valid], np.int64) // np.array(tiling.extent)
                if lattice
                else None
            )
            best = _Boxes(np.array([dies for _, dies in valid]), cells)
        if len(best.dies) >= count:
            break
    return best


def _layouts(live: Corners, extent: Cell, count: int) -> Iterator[tuple[IntArray, bool]]:
    """Upper left corners of candidate boxes, and whether they are on a lattice: all for one box, disjoint ones for
    several."""
    if count == 1:
        yield np.argwhere(live)[:_MAX_POSITIONS], False
        return
    height, width = extent
    offsets = [(r, c) for r in range(height) for c in range(width)]
    r, c = max(offsets, key=lambda offset: int(live[offset[0] :: height, offset[1] :: width].sum()))
    yield np.argwhere(live[r::height, c::width]) * extent + (r, c), True
    for by_row in (True, False):
        yield _scan(live, extent, by_row), False


def _nearest(corners: IntArray) -> IntArray:
    """The corners, those nearest to the first before others."""
    if not len(corners):
        return corners
    return corners[np.argsort(np.abs(corners - corners[0]).sum(1), kind="stable")]


def _scan(live: Corners, extent: Cell, by_row: bool) -> IntArray:
    """Corners of disjoint boxes, greedily row by row or column by column."""
    free = live.copy()
    height, width = extent
    corners = np.argwhere(live) if by_row else np.argwhere(live.T)[:, ::-1]
    taken = []
    for r, c in corners.tolist():
        if free[r, c]:
            taken.append((r, c))
            free[max(r - height + 1, 0) : r + height, max(c - width + 1, 0) : c + width] = False
    return np.array(taken, np.int64).reshape(-1, 2)
