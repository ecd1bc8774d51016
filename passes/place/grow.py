"""Disjoint rings or paths of neighbours on any live part of a wafer, grown one after the other.

A ring starts as a square of four dies and grows by *dominoes*: two neighbouring free dies beside a step a - b
turn it into a - a' - b' - b. Paths grow so too, and at their ends. What grows takes the dies that are hemmed
in most, so that the rest stays in one piece; several scan orders are tried. That is enough unless the wafer
is both full and ragged: then `cpsat_rings` searches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from wscc.machine.topology import Topology

Region = tuple[int, ...]

# How far a random scan may put a die from its place, in dies.
_JITTER = 6.0


@dataclass(frozen=True, slots=True)
class RegionSpec:
    """The regions to find: `count` disjoint ones of `size` dies each, in order along the ring (`closed`) or path."""

    size: int
    count: int
    closed: bool


def grow_regions(
    topology: Topology, island: Sequence[int], spec: RegionSpec, *, seed: int, tries: int
) -> list[Region] | None:
    """The regions, in the order of a scan; None if none of `tries` scans finds enough (some may exist)."""
    for rank in _scans(topology, island, seed, tries):
        regions = _Grower(topology, set(island), rank, spec).fill()
        if len(regions) == spec.count:
            return regions
    return None


def _scans(topology: Topology, island: Sequence[int], seed: int, tries: int) -> Iterator[dict[int, float]]:
    """Priorities of the dies, low first: by rows, by columns, from each end, and then shuffled a little."""
    rows, cols = topology.grid or (1, topology.dies)
    random = Random(seed)
    for attempt in range(tries):
        by_row, backward = attempt % 2 == 0, attempt % 4 > 1
        jitter = _JITTER if attempt >= 4 else 0.0
        rank = {}
        for die in island:
            r, c = divmod(die, cols)
            index = r * cols + c if by_row else c * rows + r
            rank[die] = (-index if backward else index) + jitter * random.random()
        yield rank


@dataclass
class _Grower:
    """`free` are the dies that no region has; of equal candidates the one of lowest `rank` grows first."""

    topology: Topology
    free: set[int]
    rank: dict[int, float]
    spec: RegionSpec

    def fill(self) -> list[Region]:
        """Grow regions until there are enough or no die is left to start from."""
        regions: list[Region] = []
        for start in sorted(self.rank, key=lambda d: (self.rank[d], d)):
            if len(regions) == self.spec.count:
                break
            if start in self.free:
                free_before = set(self.free)
                region = self._grow(start)
                if region is None:
                    self.free = free_before
                else:
                    regions.append(region)
        return regions

    def _grow(self, start: int) -> Region | None:
        walk = self._square(start) if self.spec.closed and self.spec.size > 2 else [start]
        if walk is None or len(walk) > self.spec.size:
            return None
        self.free.difference_update(walk)
        while len(walk) < self.spec.size:
            move = min(self._moves(walk, self.spec.size - len(walk)), default=None)
            if move is None:
                return None
            _, _, position, added = move
            walk[position:position] = added
            self.free.difference_update(added)
        return tuple(walk)

    def _square(self, start: int) -> list[int] | None:
        """Four free dies in a ring through `start`."""
        squares = (
            [start, b, c, d]
            for b in self._free_neighbours(start)
            for c in self._free_neighbours(b)
            for d in self._free_neighbours(c)
            if c != start and d != b and start in self.topology.neighbours[d]
        )
        return min(squares, key=self._cost, default=None)

    def _moves(self, walk: list[int], room: int) -> Iterator[tuple[float, float, int, list[int]]]:
        """(freedom per die, rank, position, dies to insert there) of every possible step of growth."""
        is_path = not self.spec.closed or self.spec.size == 2
        if is_path:
            yield from ((*self._cost([n]), len(walk), [n]) for n in self._free_neighbours(walk[-1]))
            yield from ((*self._cost([n]), 0, [n]) for n in self._free_neighbours(walk[0]))
        if room < 2:
            return
        steps = list(enumerate(pairwise(walk), 1))
        if not is_path:
            steps.append((len(walk), (walk[-1], walk[0])))
        for position, (a, b) in steps:
            for x in self._free_neighbours(a):
                for y in self._free_neighbours(x):
                    if b in self.topology.neighbours[y]:
                        yield (*self._cost([x, y]), position, [x, y])

    def _free_neighbours(self, die: int) -> list[int]:
        return [n for n in self.topology.neighbours[die] if n in self.free]

    def _cost(self, dies: Sequence[int]) -> tuple[float, float]:
        freedom = sum(len(self._free_neighbours(d)) for d in dies)
        return freedom / len(dies), sum(self.rank[d] for d in dies) / len(dies)
