"""Paths for all_to_all: from every die to every other at once, with the fullest link as empty as possible.

Each die's traffic is cut in equal layers, each sent along a tree of shortest paths. Trees are laid one at a
time and then laid anew, round by round, under lengths that grow exponentially with the load of a link: the
multiplicative-weights method for concurrent flow (Plotkin, Shmoys, Tardos 1995; Garg and Konemann 2007), in
place. Any lengths met on the way also give a lower bound (`length_bound`), and the best ones are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from math import exp

from wscc.collectives.plan import Link
from wscc.collectives.trees import OutTree, beside_of, out_tree
from wscc.machine.topology import Topology

Lengths = dict[Link, float]

LAYERS = 8
_ROUNDS = 40
_CLOSE = 1.004  # of the bound: no more rounds
_SHARPNESS = 30.0  # growth of the lengths: a link e-fold longer is 1 / 30 fuller
_WORK = 40_000  # trees laid at most, so that large meshes end too


@dataclass(frozen=True)
class Balance:
    """`trees[die]` are the out-trees of its layers; `most` is the load of the fullest link where every die
    sends 1 to every other; `lengths` prove a bound on it."""

    trees: dict[int, list[OutTree]]
    most: float
    lengths: Lengths


@lru_cache(maxsize=8)
def balance(topology: Topology) -> Balance:
    """Layered trees from every die. Stops within 0.4 % of its own bound, or after a fixed number of rounds."""
    return _Balancing(topology).run()


def length_bound(topology: Topology, lengths: Lengths) -> float:
    """No routing of 1 from every die to every other loads its fullest link less (rounded down).

    Computed from the lengths alone by Dijkstra's algorithm.
    """
    far = 0.0
    for die in topology.live:
        far += sum(_nearest(topology, lengths, die)[1].values())
    total = sum(lengths.values())
    return far / total * (1 - 1e-12) if total else 0.0


class _Balancing:
    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.layers = max(1, min(LAYERS, _WORK // (4 * len(topology.live))))
        self.load: dict[Link, float] = dict.fromkeys(topology.links, 0.0)
        self.trees: dict[int, list[OutTree]] = {}
        beside = [beside_of(topology), {d: _far_first(topology, d) for d in topology.live}]
        for die in topology.live:
            # Rows first and columns first in turn: so links of both ways have work from the start.
            self.trees[die] = [out_tree(beside[i % 2], die) for i in range(self.layers)]
            for tree in self.trees[die]:
                self._add(tree, 1)

    def run(self) -> Balance:
        best_trees, most = self._snapshot(), self._most()
        lengths = self._lengths()
        proven = length_bound(self.topology, lengths)
        for one in _cuts(self.topology):
            if (value := length_bound(self.topology, one)) > proven:
                proven, lengths = value, one
        rounds = min(_ROUNDS, _WORK // max(1, self.layers * len(self.topology.live)))
        for _ in range(rounds):
            if most <= _CLOSE * proven:
                break
            self._again()
            if self._most() < most:
                best_trees, most = self._snapshot(), self._most()
            found = self._lengths()
            if (value := length_bound(self.topology, found)) > proven:
                proven, lengths = value, found
        return Balance(best_trees, most, lengths)

    def _again(self) -> None:
        """Lay every tree anew under the lengths that the others make, a die at a time in each layer."""
        for layer in range(self.layers):
            for die in self.topology.live:
                self._add(self.trees[die][layer], -1)
                tree = _nearest(self.topology, self._lengths(), die)[0]
                self.trees[die][layer] = tree
                self._add(tree, 1)

    def _add(self, tree: OutTree, sign: int) -> None:
        below = dict.fromkeys(tree, 1)
        for child, parent in reversed(tree.items()):
            self.load[parent, child] += sign * below[child]
            if parent in below:
                below[parent] += below[child]

    def _most(self) -> float:
        return max(self.load.values(), default=0.0) / self.layers

    def _lengths(self) -> Lengths:
        most = max(self.load.values(), default=0.0) or 1.0
        return {link: exp(_SHARPNESS * (load / most - 1)) for link, load in self.load.items()}

    def _snapshot(self) -> dict[int, list[OutTree]]:
        return {die: list(trees) for die, trees in self.trees.items()}


def _cuts(topology: Topology) -> list[Lengths]:
    """Lengths that are 1 across one line through the mesh and 0 elsewhere: the bisections."""
    if topology.grid is None:
        return []
    cols = topology.grid[1]
    sides = [[d % cols <= c for d in range(topology.dies)] for c in range(cols - 1)]
    sides += [[d // cols <= r for d in range(topology.dies)] for r in range(topology.grid[0] - 1)]
    return [{(a, b): float(s[a] != s[b]) for a, b in topology.links} for s in sides]


def _far_first(topology: Topology, die: int) -> list[int]:
    """Neighbours with the largest difference of number first: those of the column, on a mesh."""
    return sorted(topology.neighbours[die], key=lambda n: (-abs(n - die), n))


def _nearest(topology: Topology, lengths: Lengths, die: int) -> tuple[OutTree, dict[int, float]]:
    """Dijkstra: the out-tree of shortest paths, parents before children, and the distances."""
    tree, done = OutTree(), dict[int, float]()
    heap = [(0.0, 0, die, die)]
    while heap:
        far, hops, here, parent = heappop(heap)
        if here in done:
            continue
        done[here] = far
        if here != die:
            tree[here] = parent
        for n in topology.neighbours[here]:
            if n not in done:
                heappush(heap, (far + lengths[here, n], hops + 1, n, here))
    return tree, done
