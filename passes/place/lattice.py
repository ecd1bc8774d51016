"""Placement on a lattice: the closed form for wafers, or parts of them, that are whole.

Each axis becomes a small grid of h x w = size cells, nested: a cell of one axis is a whole copy of the axes
inside it. Peers of an axis then lie as far apart as the block inside is high or wide, so an axis that
must be neighbours may step only in a direction in which the blocks inside it are one die thick.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, permutations, product

import numpy as np
import numpy.typing as npt

from wscc.machine.topology import Topology
from wscc.machine.wafer import OPEN, Torus
from wscc.passes.place.types import IntArray, Shape, dies_of

Cell = tuple[int, int]
Cells = tuple[Cell, ...]
Nesting = dict[int, Cell]  # axis to its grid, innermost first; axes of size 1 are left out


@dataclass(frozen=True, slots=True)
class Tiling:
    """`offsets[i]` is the (row, column) of logical die i in a box of `extent`. `open` counts ring axes whose
    groups are only paths, `price` is traffic x hops on a whole mesh."""

    extent: Cell
    offsets: IntArray
    open: int
    price: float


def walk_grid(height: int, width: int) -> Cells:
    """The cells of a grid in the order of a ring if there is one (each next to the one before), else of a path."""
    if height > 1 and width > 1 and height % 2 == 0:
        inner = [(r, c) for r in range(height) for c in _there_and_back(1, width, r)]
        return ((0, 0), *inner, *((r, 0) for r in range(height - 1, 0, -1)))
    if height > 1 and width > 1 and width % 2 == 0:
        return tuple((r, c) for c, r in walk_grid(width, height))
    return tuple((r, c) for r in range(height) for c in _there_and_back(0, width, r))


def best_tilings(shape: Shape, grid: Cell, torus: Torus = OPEN) -> list[Tiling]:
    """Every tiling that fits the grid: fewest open rings first, then cheapest, then flattest, then that with
    the last axis innermost. On a torus a walk through a whole row or column is closed."""
    split = [i for i, a in enumerate(shape) if a.size > 1]
    nestings = [
        dict(zip(order, grids, strict=True))
        for order in permutations(reversed(split))
        for grids in product(*(list(_grids(shape[i].size, grid)) for i in order))
    ]
    evaluated = [(_evaluate(shape, nesting, grid, torus), nesting) for nesting in nestings]
    ranked = sorted((j, n) for n, (j, _) in enumerate(evaluated) if j is not None)
    return [Tiling(j[2], _offsets(shape, evaluated[n][1]), j[0], j[1]) for j, n in ranked]


def live_corners(topology: Topology, extent: Cell) -> npt.NDArray[np.bool_]:
    """Whether all dies of a box of that extent are live, by its upper left corner: [rows, columns]. A box that a wafer
    of a system has room for lies on one."""
    assert topology.grid is not None
    (rows, cols), (height, width) = topology.grid, extent
    live = np.zeros(rows * cols, np.int64)
    live[list(topology.live)] = 1
    # Sums of all cells above and left of a corner: four of them give the live dies of a box.
    sums = np.zeros((rows + 1, cols + 1), np.int64)
    sums[1:, 1:] = live.reshape(rows, cols).cumsum(0).cumsum(1)
    count = sums[height:, width:] - sums[:-height, width:] - sums[height:, :-width] + sums[:-height, :-width]
    fits = np.asarray(count == height * width)
    wafer = topology.wafers
    if wafer is not None and height <= wafer[0] and width <= wafer[1]:
        fits &= (np.arange(len(fits)) % wafer[0] + height <= wafer[0])[:, None]
        fits &= (np.arange(fits.shape[1]) % wafer[1] + width <= wafer[1])[None, :]
    return fits


def _there_and_back(start: int, stop: int, row: int) -> Sequence[int]:
    return range(start, stop) if row % 2 == 0 else range(stop - 1, start - 1, -1)


def _grids(size: int, limit: Cell) -> Iterator[Cell]:
    for height in range(1, min(size, limit[0]) + 1):
        if size % height == 0 and size // height <= limit[1]:
            yield height, size // height


def _evaluate(shape: Shape, nesting: Nesting, limit: Cell, torus: Torus) -> tuple[int, float, Cell] | None:
    """(open rings, price, extent); None if a ring axis steps over blocks, or the box does not fit."""
    high, wide, open_rings, price = 1, 1, 0, 0.0
    total = dies_of(shape)
    for i, grid in nesting.items():
        axis, steps = shape[i], _steps(grid)
        if axis.ring and ((steps.down and high > 1) or (steps.right and wide > 1)):
            return None
        back = (
            _back(steps.closing[0] * high, limit[0], torus.cols),
            _back(steps.closing[1] * wide, limit[1], torus.rows),
        )
        open_rings += axis.ring and axis.size > 2 and sum(back) != 1
        hops = steps.down * high + axis.closing * back[0]
        hops += steps.right * wide + axis.closing * back[1]
        price += axis.weight * (total // axis.size) * hops
        high, wide = high * grid[0], wide * grid[1]
        if high > limit[0] or wide > limit[1]:
            return None
    return open_rings, price, (high, wide)


def _back(distance: int, extent: int, closed: bool) -> int:
    """The hops of a closing step, the shorter way around."""
    return min(distance, extent - distance) if closed else distance


@dataclass(frozen=True, slots=True)
class _Steps:
    """The numbers of steps of a grid's walk to another row or column, and its closing step (two cells: none)."""

    down: int
    right: int
    closing: Cell


@lru_cache(maxsize=4096)
def _steps(grid: Cell) -> _Steps:
    cells = walk_grid(*grid)
    down = sum(a[0] != b[0] for a, b in pairwise(cells))
    (r0, c0), (r1, c1) = cells[0], cells[-1]
    closing = (abs(r1 - r0), abs(c1 - c0)) if len(cells) > 2 else (0, 0)
    return _Steps(down, len(cells) - 1 - down, closing)


def _offsets(shape: Shape, nesting: Nesting) -> IntArray:
    """The (row, column) of each logical die in the box: [dies, 2]."""
    offsets = np.zeros((*(a.size for a in shape), 2), np.int64)
    high, wide = 1, 1
    for i, grid in nesting.items():
        cells = np.array(walk_grid(*grid)) * np.array((high, wide))
        along = [1] * len(shape) + [2]
        along[i] = shape[i].size
        offsets += cells.reshape(along)
        high, wide = high * grid[0], wide * grid[1]
    return offsets.reshape(-1, 2)
