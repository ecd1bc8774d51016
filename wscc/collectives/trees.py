"""Out-trees over the live dies, by algorithm, and the routes of chunks along them."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from wscc.collectives.arrange import Arc, Route
from wscc.collectives.plan import REDUCE
from wscc.machine.topology import Topology
from wscc.machine.walks import path_order, ring_order

# By die its parent, in the order of a breadth-first walk; the root is left out.
OutTree = dict[int, int]
Adjacency = Mapping[int, Sequence[int]]
# The out-tree from a die for the piece of a shard with this number.
Guide = Callable[[int, int], OutTree]

# Beyond this many dies the exact search for a ring or path through a damaged mesh may take long.
_SEARCHED = 36


def out_tree(neighbours: Adjacency, root: int) -> OutTree:
    """A breadth-first tree: every die by a shortest path, over the neighbours listed first."""
    tree: OutTree = {}
    queue = deque([root])
    while queue:
        die = queue.popleft()
        for n in neighbours[die]:
            if n != root and n not in tree:
                tree[n] = die
                queue.append(n)
    return tree


def adjacency(topology: Topology) -> Adjacency:
    """The live neighbours of each live die."""
    return {d: topology.neighbours[d] for d in topology.live}


def centre(topology: Topology) -> int:
    """A die of least eccentricity; of these the one with the least sum of distances, then the lowest."""
    return min(topology.live, key=lambda d: (*_eccentricity(topology, d), d))


def _eccentricity(topology: Topology, die: int) -> tuple[int, int]:
    """The largest distance to `die`, and the sum of all."""
    hops = [topology.distance(d, die) for d in topology.live]
    return max(hops), sum(hops)


def undirected(tree: OutTree) -> dict[int, list[int]]:
    """The neighbours of each die in the tree."""
    neighbours: dict[int, list[int]] = {}
    for child, parent in tree.items():
        neighbours.setdefault(child, []).append(parent)
        neighbours.setdefault(parent, []).append(child)
    return neighbours


def broadcast_route(tree: OutTree) -> Route:
    """The route from the root to all dies."""
    return Route(tuple(Arc(parent, child) for child, parent in tree.items()))


def path_route(tree: OutTree, target: int) -> Route:
    """The route from the root to one die."""
    path = [target]
    while path[-1] in tree:
        path.append(tree[path[-1]])
    path.reverse()
    return Route(tuple(Arc(a, b) for a, b in itertools.pairwise(path)))


def reduce_route(tree: OutTree) -> Route:
    """The route from all dies to the root, adding up."""
    return Route(tuple(Arc(child, parent, REDUCE) for child, parent in reversed(tree.items())))


def up_and_down(tree: OutTree) -> Route:
    """The route of an all_reduce: up to the root, adding, and down again."""
    return Route(reduce_route(tree).arcs + broadcast_route(tree).arcs)


# ---- the trees of each algorithm


def direct_guide(topology: Topology) -> Guide:
    """A tree of shortest paths from each die, along the rows first."""
    neighbours = adjacency(topology)
    trees = {d: out_tree(neighbours, d) for d in topology.live}
    return lambda home, piece: trees[home]


def tree_guide(topology: Topology) -> Guide:
    """One tree for all homes: that of shortest paths to the centre."""
    neighbours = undirected(out_tree(adjacency(topology), centre(topology)))
    trees = {d: out_tree(neighbours, d) if neighbours else {} for d in topology.live}
    return lambda home, piece: trees[home]


def chain_guide(topology: Topology) -> Guide | None:
    """Trees both ways along a Hamiltonian path of the dies; None where none is known."""
    order = _chain(topology)
    if order is None:
        return None
    neighbours = _along(order)
    trees = {d: out_tree(neighbours, d) for d in order}
    return lambda home, piece: trees[home]


def ring_guide(topology: Topology) -> Guide | None:
    """Trees both ways round a Hamiltonian cycle of the dies, half of it each; None where none is known.

    In an even ring the two halves differ by one die, so pieces take turns.
    """
    order = _ring(topology)
    if order is None or len(order) < 3:
        return None
    n, position = len(order), {d: i for i, d in enumerate(order)}

    def guide(home: int, piece: int) -> OutTree:
        forward = n // 2 if piece % 2 else (n - 1) // 2
        index, tree = position[home], OutTree()
        for step in range(1, n):
            if step <= forward:
                tree[order[(index + step) % n]] = order[(index + step - 1) % n]
            if step <= n - 1 - forward:
                tree[order[(index - step) % n]] = order[(index - step + 1) % n]
        return tree

    return guide


def _along(order: Sequence[int]) -> Adjacency:
    return {d: [*order[max(i - 1, 0) : i], *order[i + 1 : i + 2]] for i, d in enumerate(order)}


def _chain(topology: Topology) -> Sequence[int] | None:
    snake = _snake(topology, range(topology.grid[1])) if topology.grid else None
    if snake is not None and _is_walk(topology, snake):
        return snake
    return path_order(topology, topology.live) if len(topology.live) <= _SEARCHED else None


def _ring(topology: Topology) -> Sequence[int] | None:
    for grid in ring_candidates(topology):
        if _is_walk(topology, grid) and topology.are_adjacent(grid[-1], grid[0]):
            return grid
    return ring_order(topology, topology.live) if len(topology.live) <= _SEARCHED else None


def ring_candidates(topology: Topology) -> list[list[int]]:
    """Cycles down a comb of the columns from 1 on and back up column 0, and the same with rows for columns."""
    if topology.grid is None:
        return []
    rows, cols = topology.grid
    comb = _snake(topology, range(1, cols)) + [r * cols for r in reversed(range(rows))]
    turned = [(d % rows) * cols + d // rows for d in range(rows * cols)]
    flat = [turned[c * rows + (r if c % 2 == 0 else rows - r)] for c in range(cols) for r in range(1, rows)]
    return [comb, flat + list(reversed(range(cols)))]


def _snake(topology: Topology, columns: range) -> list[int]:
    assert topology.grid is not None
    rows, cols = topology.grid
    return [r * cols + c for r in range(rows) for c in (columns if r % 2 == 0 else reversed(columns))]


def _is_walk(topology: Topology, order: Sequence[int]) -> bool:
    """Whether the dies are all live ones, once each, every one next to the one before."""
    if sorted(order) != sorted(topology.live):
        return False
    return all(topology.are_adjacent(a, b) for a, b in itertools.pairwise(order))


GUIDES: Final[dict[str, Callable[[Topology], Guide | None]]] = {
    "ring": ring_guide,
    "chain": chain_guide,
    "tree": tree_guide,
    "direct": direct_guide,
}
