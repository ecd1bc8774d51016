"""Which turns, from a link to the next, a virtual channel allows: sets that never close a cycle.

A message holds a link while it waits for the next, so that deadlock needs a cycle of turns on one channel
(W. Dally, C. Seitz, "Deadlock-Free Message Routing in Multiprocessor Interconnection Networks", 1987, theorem 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from wscc.machine.topology import Path, Topology
from wscc.routing.loads import Hop

Turn = tuple[
    int, int
]  # two links, by their place in `topology.links`; the second starts where the first ends
Rule = Callable[[Hop, Hop], bool]


class Turns:
    """A set of turns without a cycle. It keeps a topological order of the links, repaired around each turn that
    is added against it (D. Pearce, P. Kelly, "A Dynamic Topological Sort Algorithm for Directed Acyclic Graphs",
    JEA 11, 2006)."""

    def __init__(self, links: int, sure: Iterable[Turn] = ()) -> None:
        """An empty set, in whose order the `sure` turns lead forward; they have no cycle."""
        self.place = _places(links, sure)
        self.after: list[list[int]] = [[] for _ in range(links)]
        self.before: list[list[int]] = [[] for _ in range(links)]
        self.known: set[Turn] = set()

    def add(self, turn: Turn) -> bool:
        """Add a turn unless that would close a cycle; whether it is in the set now."""
        if turn in self.known:
            return True
        if self.place[turn[0]] > self.place[turn[1]] and not self._reorder(*turn):
            return False
        self.known.add(turn)
        self.after[turn[0]].append(turn[1])
        self.before[turn[1]].append(turn[0])
        return True

    def add_all(self, turns: Iterable[Turn]) -> bool:
        """Add all of the turns, or none of them."""
        new = [t for t in turns if t not in self.known]
        for i, turn in enumerate(new):
            if not self.add(turn):
                for done in new[:i]:
                    self._remove(done)
                return False
        return True

    def _remove(self, turn: Turn) -> None:
        self.known.discard(turn)
        self.after[turn[0]].remove(turn[1])
        self.before[turn[1]].remove(turn[0])

    def _reorder(self, first: int, second: int) -> bool:
        """Put `first` before `second`; False if `second` leads to `first`."""
        low, high = self.place[second], self.place[first]
        ahead = self._reach(self.after, second, low, high)
        if first in ahead:
            return False
        behind = self._reach(self.before, first, low, high)
        moved = [*sorted(behind, key=self.place.__getitem__), *sorted(ahead, key=self.place.__getitem__)]
        for link, place in zip(moved, sorted(self.place[link] for link in moved), strict=True):
            self.place[link] = place
        return True

    def _reach(self, edges: list[list[int]], start: int, low: int, high: int) -> set[int]:
        found, stack = {start}, [start]
        while stack:
            for n in edges[stack.pop()]:
                if n not in found and low <= self.place[n] <= high:
                    found.add(n)
                    stack.append(n)
        return found


def _places(links: int, turns: Iterable[Turn]) -> list[int]:
    """By link, its place in a topological order (A. Kahn, 1962)."""
    after: list[list[int]] = [[] for _ in range(links)]
    waiting = [0] * links
    for first, second in turns:
        after[first].append(second)
        waiting[second] += 1
    order = [i for i in range(links) if not waiting[i]]
    for link in order:
        for n in after[link]:
            waiting[n] -= 1
            if not waiting[n]:
                order.append(n)
    assert len(order) == links, "sure turns have no cycle"
    place = [0] * links
    for i, link in enumerate(order):
        place[link] = i
    return place


def all_turns(topology: Topology, numbers: dict[Hop, int]) -> list[tuple[Hop, Hop]]:
    """Every pair of consecutive links that does not turn back, sorted."""
    return [
        ((a, b), (b, c))
        for a, b in topology.links
        for c in topology.neighbours[b]
        if c != a and (b, c) in numbers
    ]


def turns_of(path: Path, numbers: dict[Hop, int]) -> list[Turn]:
    """The turns that a path takes."""
    return [(numbers[a, b], numbers[b, c]) for a, b, c in zip(path, path[1:], path[2:], strict=False)]


def first_direction_rule(topology: Topology, step: int) -> Rule:
    """On a grid: a path may move along its row by `step` (-1 west, 1 east) only before any other move.

    The west-first turn model (C. Glass, L. Ni, "The Turn Model for Adaptive Routing", ISCA 1992, section 4) and
    its mirror image: acyclic, and on a whole mesh not one more turn would be.
    """

    def is_allowed(first: Hop, second: Hop) -> bool:
        return not _moves(topology, second, step) or _moves(topology, first, step)

    return is_allowed


def _moves(topology: Topology, hop: Hop, step: int) -> bool:
    (r, c), (to_r, to_c) = topology.coordinate(hop[0]), topology.coordinate(hop[1])
    return r == to_r and to_c - c == step


def up_down_rule(topology: Topology, end: int) -> Rule:
    """On any graph: up towards a root, then down; `end` 0 or -1 takes the first or last die of an island for it.

    Acyclic, and joins every pair of an island (M. Schroeder et al., "Autonet", JSAC 9(8), 1991, section 4.2).
    """
    rank: dict[int, tuple[int, int]] = {}
    for island in topology.islands:
        steps = topology.distances(island[end])
        rank |= {die: (steps[die], die) for die in island}

    def is_allowed(first: Hop, second: Hop) -> bool:
        went_down = rank[first[1]] > rank[first[0]]
        return not (went_down and rank[second[1]] < rank[second[0]])

    return is_allowed
