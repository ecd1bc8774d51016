"""Packings of spanning trees with few of them on any link, along which an all_reduce goes up and down.

By Nash-Williams and Tutte (1961), k spanning trees with every link in at most `cap` of them exist exactly when
each partition of the dies has cap x (links between parts) >= k x (parts - 1). They are found as in matroid
union (Edmonds 1965; Schrijver, Combinatorial Optimization, section 42.3): a link in too many trees is exchanged
along a shortest chain of swaps until a link with room takes its place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from wscc.collectives.plan import Link
from wscc.collectives.trees import OutTree, out_tree, undirected
from wscc.disjoint_sets import DisjointSets
from wscc.machine.topology import Topology

_MOST_TREES = 24

# Links without direction, as (lower, higher) die.
Tree = set[Link]


@dataclass(frozen=True)
class TreePacking:
    """Spanning trees of equal shares, each rooted at its centre, and the largest
    (parts - 1) / (links between parts) of all partitions of the dies: no packing loads links less."""

    trees: tuple[OutTree, ...]
    strength: Fraction


def pack(topology: Topology) -> TreePacking:
    """The packing of up to 24 trees that loads the fullest link least.

    A ratio `strength` is guessed from below. Where trees for it cannot be packed, the swaps that were tried
    name a partition that forbids it, whose ratio is the next guess (Dinkelbach's iteration): exact, in few steps.
    """
    links = [(a, b) for a, b in topology.links if a < b]
    if not links:
        return TreePacking((), Fraction(0))
    strength = Fraction(len(topology.live) - 1, len(links))
    while True:
        count = min(range(1, _MOST_TREES + 1), key=lambda k: (Fraction(ceil(k * strength), k), k))
        packing = _Packing(topology.live, links, count, ceil(count * strength))
        if packing.obstacle is None:
            return TreePacking(tuple(rooted_at_centre(tree) for tree in packing.trees), strength)
        strength = packing.obstacle


def rooted_at_centre(links: Tree) -> OutTree:
    """The tree rooted at its centre, the middle of a longest path, which gives it the least height."""
    neighbours: dict[int, list[int]] = {}
    for a, b in sorted(links):
        neighbours.setdefault(a, []).append(b)
        neighbours.setdefault(b, []).append(a)
    end = [min(neighbours), *out_tree(neighbours, min(neighbours))][-1]
    tree = out_tree(neighbours, end)
    path = [list(tree)[-1]]
    while path[-1] in tree:
        path.append(tree[path[-1]])
    return out_tree(undirected(tree), path[len(path) // 2])


class _Packing:
    """`count` spanning trees with every link in at most `cap` of them, or the `obstacle`: the ratio of a partition that
    forbids them."""

    def __init__(self, dies: tuple[int, ...], links: list[Link], count: int, cap: int) -> None:
        self.dies, self.links, self.cap = dies, links, cap
        self.load = dict.fromkeys(links, 0)
        self.trees = [self._lightest() for _ in range(count)]
        self.obstacle: Fraction | None = None
        while self.obstacle is None and (over := next((e for e in links if self.load[e] > cap), None)):
            self._relieve(over)

    def _lightest(self) -> Tree:
        """A spanning tree of the links used least so far (Kruskal)."""
        parts = DisjointSets(self.dies)
        tree: Tree = set()
        for a, b in sorted(self.links, key=lambda e: (self.load[e], e)):
            if parts[a] != parts[b]:
                parts.union(a, b)
                tree.add((a, b))
        for e in tree:
            self.load[e] += 1
        return tree

    def _relieve(self, over: Link) -> None:
        """Take `over` out of one tree by a shortest chain of swaps, or find the partition that forbids it.

        If no chain ends at a link with room, the links reached are those between the parts of a partition:
        every tree has exactly parts - 1 of them, and they are all full.
        """
        swaps: dict[Link, tuple[Link, int]] = {}
        queue = deque([over])
        while queue:
            leaving = queue.popleft()
            for entering, t in self._swaps(leaving):
                if entering == over or entering in swaps:
                    continue
                swaps[entering] = (leaving, t)
                if self.load[entering] < self.cap:
                    self._apply(entering, over, swaps)
                    return
                queue.append(entering)
        reached = {over, *swaps}
        rest = [e for e in self.links if e not in reached]
        self.obstacle = Fraction(_parts(self.dies, rest) - 1, len(reached))

    def _swaps(self, leaving: Link) -> Iterator[tuple[Link, int]]:
        """The links that may replace `leaving`, each with the tree in which they do."""
        for t, tree in enumerate(self.trees):
            if leaving in tree:
                side = _side(tree - {leaving}, leaving[0])
                for e in self.links:
                    if e not in tree and (e[0] in side) != (e[1] in side):
                        yield e, t

    def _apply(self, last: Link, first: Link, swaps: dict[Link, tuple[Link, int]]) -> None:
        self.load[last] += 1
        self.load[first] -= 1
        while last != first:
            leaving, t = swaps[last]
            self.trees[t].remove(leaving)
            self.trees[t].add(last)
            last = leaving


def _side(tree: Tree, die: int) -> set[int]:
    """The dies that links of a forest join with `die`."""
    neighbours: dict[int, list[int]] = {die: []}
    for a, b in tree:
        neighbours.setdefault(a, []).append(b)
        neighbours.setdefault(b, []).append(a)
    return {die, *out_tree(neighbours, die)}


def _parts(dies: tuple[int, ...], links: list[Link]) -> int:
    """The number of connected parts of the dies."""
    parts = DisjointSets(dies)
    for link in links:
        parts.union(*link)
    return sum(1 for _ in parts.to_sets())
