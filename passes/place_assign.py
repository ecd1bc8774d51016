"""Which region serves which coordinates of the other axes, and where each ring starts.

Regions are split recursively along the longer side of the part of the wafer that they cover, major axis
first, so peers of every axis come to lie side by side; then each region is turned to suit its peers, and
pairs of regions are exchanged while that pays.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from wscc.machine.topology import Topology
from wscc.passes.place_hops import Price
from wscc.passes.place_types import IntArray, Shape

# Exchanges tried; a pair costs some 50 us on a thousand dies.
_MAX_EXCHANGES = 6_000


def assign(
    topology: Topology, shape: Shape, axis: int, regions: Sequence[Sequence[int]], closed: bool, price: Price
) -> IntArray:
    """The physical die of each logical die: one region per group of `axis`, in its own order up to a turn."""
    others = [a.size for i, a in enumerate(shape) if i != axis]
    block = np.array(regions, np.int64)
    block = block[_split(topology, block, others)]
    weights = [a.weight for i, a in enumerate(shape) if i != axis]
    _turn(block, others, weights, closed, price)
    best = _logical(block, shape, axis)
    return _exchange(block, shape, axis, best, price)


def _logical(block: IntArray, shape: Shape, axis: int) -> IntArray:
    """[groups, position along axis] to one die per logical index."""
    others = [a.size for i, a in enumerate(shape) if i != axis]
    return np.moveaxis(block.reshape(*others, shape[axis].size), -1, axis).reshape(-1)


def _split(topology: Topology, block: IntArray, sizes: Sequence[int]) -> list[int]:
    """The regions in the order of their coordinates, major axis first."""
    cols = topology.grid[1] if topology.grid else topology.dies
    centres = np.stack([(block // cols).mean(1), (block % cols).mean(1)], axis=1)

    def parts(members: list[int], sizes: Sequence[int]) -> list[int]:
        if len(members) == 1:
            return members
        spread = np.ptp(centres[members], axis=0)
        along = 0 if spread[0] > spread[1] else 1
        members = sorted(members, key=lambda m: (centres[m, along], centres[m, 1 - along], m))
        share = len(members) // sizes[0]
        return [m for i in range(sizes[0]) for m in parts(members[i * share : (i + 1) * share], sizes[1:])]

    return parts(list(range(len(block))), sizes)


def _turn(
    block: IntArray, sizes: Sequence[int], weights: Sequence[float], closed: bool, price: Price
) -> None:
    """Rotate and reflect each region, in place, to suit those of its peers that come before it."""
    size = block.shape[1]
    strides = [int(np.prod(sizes[i + 1 :])) for i in range(len(sizes))]
    starts = range(size) if closed else range(1)
    turns = [np.roll(order, s) for order in (np.arange(size), np.arange(size)[::-1]) for s in starts]
    choices = np.array(turns)
    for group in range(1, len(block)):
        total = np.zeros(len(choices))
        for stride, extent, weight in zip(strides, sizes, weights, strict=True):
            coordinate = group // stride % extent
            peers = [group - stride] if coordinate else []
            if coordinate == extent - 1 and extent > 2:
                peers.append(group - coordinate * stride)
            for peer in peers:
                total += weight * price.hops.between(block[group][choices], block[peer][None]).sum(1)
        block[group] = block[group][choices[int(total.argmin())]]


def _exchange(block: IntArray, shape: Shape, axis: int, best: IntArray, price: Price) -> IntArray:
    """Swap the places of two regions while that lowers the price."""
    lowest, left, better = price.of(best), _MAX_EXCHANGES, True
    while better and lowest > price.least:
        better = False
        for a, b in combinations(range(len(block)), 2):
            if left == 0:
                return best
            left -= 1
            block[[a, b]] = block[[b, a]]
            trial = _logical(block, shape, axis)
            cost = price.of(trial)
            if cost < lowest:
                best, lowest, better = trial, cost, True
            else:
                block[[a, b]] = block[[b, a]]
    return best
