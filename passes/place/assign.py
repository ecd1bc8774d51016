"""Assignment of regions to coordinates of the outer axes, and rotation of each ring to suit its peers.

Regions are split recursively along the longer side of the part of the wafer that they cover, major axis
first, so peers of every axis come to lie side by side; then each region is turned to suit its peers, and
regions are exchanged, among one another and with spare ones, by annealing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wscc.machine.topology import Topology
from wscc.passes.place.anneal import Assignment, peers_of
from wscc.passes.place.hops import Hops, Price
from wscc.passes.place.types import IntArray, Shape, dies_of

# Moves of the annealing: for each region, and at most; and how many near regions are tried for a peer.
_MOVES, _MAX_MOVES, _NEAR = 3_000, 200_000, 8
# More than this many are left as they were split: a table of their distances would take too much memory.
_MAX_REGIONS = 2_048


@dataclass(frozen=True, slots=True)
class Regions:
    """`dies[r]` are those of region r, in logical order of the axes `inner`; there may be spare regions.

    Regions that may be `turned` are rings, or paths, of one axis; others are copies of one box. On a lattice,
    `cells[r]` is the (row, column) of region r.
    """

    inner: tuple[int, ...]
    dies: IntArray
    method: str
    turned: bool
    cells: IntArray | None = None


@dataclass(frozen=True, slots=True)
class Assigned:
    """The physical die of each logical one; `order` are the regions in order of the outer coordinates."""

    regions: Regions
    order: tuple[int, ...]
    dies: IntArray
    price: float


def assign(topology: Topology, shape: Shape, regions: Regions, closed: bool, price: Price) -> Assigned:
    """A region for each coordinate of the outer axes, by recursive splitting, each turned to suit its peers."""
    outer = outer_axes(shape, regions)
    count = dies_of(outer)
    chosen = _compact(topology, regions.dies, count)
    order = [chosen[i] for i in _split(topology, regions.dies[chosen], [a.size for a in outer])]
    return in_order(shape, regions, order, closed, price)


def exchange(shape: Shape, start: Assigned, closed: bool, price: Price, *, seed: int) -> Assigned:
    """The cheapest assignment met when annealing exchanges regions, turned anew or as they were, or `start`."""
    regions, outer = start.regions, outer_axes(shape, start.regions)
    if len(start.order) < 2 or len(regions.dies) > _MAX_REGIONS or start.price <= price.least:
        return start
    block = regions.dies.copy()
    by_order = start.dies.reshape([a.size for a in shape])
    by_order = (
        np.moveaxis(by_order, regions.inner, range(-len(regions.inner), 0)) if regions.inner else by_order
    )
    block[list(start.order)] = by_order.reshape(len(start.order), -1)
    table = _distances(block, price.hops)
    near = np.argsort(table, axis=1, kind="stable")[:, 1 : _NEAR + 1].tolist()
    rows: list[list[int]] = table.tolist()
    problem = Assignment(peers_of(outer), lambda a, b: rows[a][b], near)
    moves = min(_MOVES * len(start.order), _MAX_MOVES)
    order = problem.anneal(start.order, range(len(block)), moves=moves, seed=seed)
    turned = Regions(regions.inner, block, regions.method, regions.turned)
    tried = in_order(shape, turned, order, closed, price)
    plain = _assigned(shape, turned, order, price)
    return min((start, plain, tried), key=lambda a: a.price)


def outer_axes(shape: Shape, regions: Regions) -> Shape:
    """The axes that the regions leave out."""
    return [a for i, a in enumerate(shape) if i not in regions.inner]


def _assigned(shape: Shape, regions: Regions, order: Sequence[int], price: Price) -> Assigned:
    dies = _logical(regions.dies[list(order)], shape, regions.inner)
    return Assigned(regions, tuple(order), dies, price.of(dies))


def in_order(shape: Shape, regions: Regions, order: Sequence[int], closed: bool, price: Price) -> Assigned:
    """The assignment of the regions in this order of the outer coordinates, turned if they may be."""
    if not regions.turned:
        return _assigned(shape, regions, order, price)
    block = regions.dies.copy()
    chosen = block[list(order)]
    _turn(chosen, outer_axes(shape, regions), closed, price)
    block[list(order)] = chosen
    return _assigned(shape, Regions(regions.inner, block, regions.method, True), order, price)


def _logical(block: IntArray, shape: Shape, inner: Sequence[int]) -> IntArray:
    """The die of each logical index; `block`: [outer coordinates, position in the region]."""
    outer = [i for i in range(len(shape)) if i not in inner]
    by_axis = block.reshape([shape[i].size for i in (*outer, *inner)])
    return by_axis.transpose(np.argsort([*outer, *inner])).reshape(-1)


def _distances(block: IntArray, hops: Hops) -> IntArray:
    """Hops between two regions, summed over dies at the same position: [regions, regions]."""
    return np.stack([hops.between(region[None], block).sum(1) for region in block])


def _centres(topology: Topology, block: IntArray) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    cols = topology.grid[1] if topology.grid else topology.dies
    return np.stack([(block // cols).mean(1), (block % cols).mean(1)], axis=1)


def _compact(topology: Topology, block: IntArray, count: int) -> list[int]:
    """The `count` regions nearest to the first, in order."""
    if len(block) == count:
        return list(range(count))
    centres = _centres(topology, block)
    distance = np.abs(centres - centres[0]).sum(1)
    return sorted(np.argsort(distance, kind="stable")[:count].tolist())


def _split(topology: Topology, block: IntArray, sizes: Sequence[int]) -> list[int]:
    """The regions in the order of their coordinates, major axis first."""
    centres = _centres(topology, block)

    def parts(members: list[int], sizes: Sequence[int]) -> list[int]:
        if len(members) == 1:
            return members
        extent = np.ptp(centres[members], axis=0)
        along = 0 if extent[0] > extent[1] else 1
        members = sorted(members, key=lambda m: (centres[m, along], centres[m, 1 - along], m))
        share = len(members) // sizes[0]
        return [m for i in range(sizes[0]) for m in parts(members[i * share : (i + 1) * share], sizes[1:])]

    return parts(list(range(len(block))), sizes)


def _turn(block: IntArray, others: Shape, closed: bool, price: Price) -> None:
    """Rotate and reflect each region, in place, to suit those of its peers that come before it."""
    size = block.shape[1]
    strides = [dies_of(others[i + 1 :]) for i in range(len(others))]
    starts = range(size) if closed else range(1)
    turns = [np.roll(order, s) for order in (np.arange(size), np.arange(size)[::-1]) for s in starts]
    choices = np.array(turns)
    for group in range(1, len(block)):
        total = np.zeros(len(choices))
        for stride, other in zip(strides, others, strict=True):
            coordinate = group // stride % other.size
            peers = [(group - stride, other.weight)] if coordinate else []
            if coordinate == other.size - 1 and other.size > 2:
                peers.append((group - coordinate * stride, other.weight * other.closing))
            for peer, weight in peers:
                total += weight * price.hops.between(block[group][choices], block[peer][None]).sum(1)
        block[group] = block[group][choices[int(total.argmin())]]
