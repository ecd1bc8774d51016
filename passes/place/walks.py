"""Groups of a streaming axis where damage leaves neither rings nor paths of neighbours: pieces of one walk over the
live dies, whose next die is as near as can be.

A walk goes on to the neighbour that has fewest neighbours left (H. Warnsdorff's rule, 1823), else to the nearest die
left, from each die once; and around a spanning tree, where no die is more than three hops from the next (M. Sekanina,
"On an ordering of the set of vertices of a connected graph", 1960). Of all walks, that with the shortest farthest hop
within a group is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from wscc.machine.topology import Topology
from wscc.passes.place.assign import Regions, assign, exchange
from wscc.passes.place.describe import describe
from wscc.passes.place.hops import Hops, Price
from wscc.passes.place.types import Placement, Shape, dies_of, opened

# Dies from which a walk is begun; on a larger wafer some are left out.
_STARTS = 64


def place_apart(topology: Topology, shape: Shape, why: str, seed: int) -> Placement:
    """The placement whose ring axis lies along pieces of a walk on the first island that is large enough; with several
    ring axes, the last of them. `why` there are neither rings nor paths."""
    island = topology.part(next(part for part in topology.islands if len(part) >= dies_of(shape)))
    axis = max(i for i, a in enumerate(shape) if a.ring and a.size > 1)
    size, count = shape[axis].size, dies_of(shape) // shape[axis].size
    walk = min(_walks(island), key=lambda w: _farthest(island, w[: size * count], size))
    pieces = np.array(walk[: size * count]).reshape(count, size)
    price, regions = Price(Hops(island), opened(shape)), Regions((axis,), pieces, "walk", turned=True)
    begun = assign(island, shape, regions, False, price)
    found = exchange(shape, begun, False, price, seed=seed)
    return describe(island, shape, price, found.dies, "walk", optimal=False, open_reason=why)


def _farthest(topology: Topology, walk: list[int], size: int) -> tuple[int, int]:
    """The farthest hop from a die to the next of its group, and all these hops together."""
    hops = [topology.distance(a, b) for i, (a, b) in enumerate(pairwise(walk), 1) if i % size]
    return max(hops), sum(hops)


def _walks(topology: Topology) -> Iterator[list[int]]:
    yield _around_tree(topology)
    for start in topology.live[:: -(-len(topology.live) // _STARTS)]:
        yield _greedy(topology, start)


def _greedy(topology: Topology, start: int) -> list[int]:
    left, walk = set(topology.live) - {start}, [start]
    while left:
        near = [n for n in topology.neighbours[walk[-1]] if n in left]
        if near:
            die = min(near, key=lambda n: (sum(m in left for m in topology.neighbours[n]), n))
        else:
            distance = topology.distances(walk[-1])
            die = min(left, key=lambda n: (distance[n], n))
        left.discard(die)
        walk.append(die)
    return walk


def _around_tree(topology: Topology) -> list[int]:
    """The dies of a spanning tree: those an even number of hops from its root before their children, others behind."""
    root = topology.live[0]
    children: dict[int, list[int]] = {die: [] for die in topology.live}
    seen, stack = {root}, [root]
    while stack:
        die = stack.pop()
        for n in topology.neighbours[die]:
            if n not in seen:
                seen.add(n)
                children[die].append(n)
                stack.append(n)
    walk: list[int] = []
    todo = [(root, 0, False)]
    while todo:
        die, depth, is_done = todo.pop()
        if is_done:
            walk.append(die)
            continue
        below = [(child, depth + 1, False) for child in reversed(children[die])]
        if depth % 2:
            todo += [(die, depth, True), *below]
        else:
            todo += [*below, (die, depth, True)]
    return walk
