"""Sets of turns (from a link to the next) that close no cycle, and rules that give such sets.

A message holds a link while it waits for the next, so that deadlock needs a cycle of turns on one channel
(W. Dally, C. Seitz, "Deadlock-Free Message Routing in Multiprocessor Interconnection Networks", 1987, theorem 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from wscc.machine.topology import Hop, Path, Topology

# Two links, by their number in `topology.links`; the second starts where the first ends.
Turn = tuple[int, int]
Rule = Callable[[Hop, Hop], bool]


class Turns:
    """A set of turns without a cycle. It keeps a topological order of the links, repaired around each turn that
    is added against it (D. Pearce, P. Kelly, "A Dynamic Topological Sort Algorithm for Directed Acyclic Graphs",
    JEA 11, 2006)."""

    def __init__(self, links: int, acyclic: Iterable[Turn] = ()) -> None:
        """An empty set, in whose topological order the turns `acyclic` (without a cycle) lead forward."""
        self.position = _positions(links, acyclic)
        self.successors: list[list[int]] = [[] for _ in range(links)]
        self.predecessors: list[list[int]] = [[] for _ in range(links)]
        self.allowed: set[Turn] = set()

    def add(self, turn: Turn) -> bool:
        """Add a turn unless that closes a cycle; returns whether it is in the set now."""
        if turn in self.allowed:
            return True
        if self.position[turn[0]] > self.position[turn[1]] and not self._reorder(*turn):
            return False
        self.allowed.add(turn)
        self.successors[turn[0]].append(turn[1])
        self.predecessors[turn[1]].append(turn[0])
        return True

    def add_all(self, turns: Iterable[Turn]) -> bool:
        """Add all of the turns, or none of them if one closes a cycle; returns whether they are in the set."""
        new = [t for t in turns if t not in self.allowed]
        for i, turn in enumerate(new):
            if not self.add(turn):
                for added in new[:i]:
                    self._remove(added)
                return False
        return True

    def _remove(self, turn: Turn) -> None:
        self.allowed.discard(turn)
        self.successors[turn[0]].remove(turn[1])
        self.predecessors[turn[1]].remove(turn[0])

    def _reorder(self, first: int, second: int) -> bool:
        """Put `first` before `second`; False if `second` leads to `first`."""
        low, high = self.position[second], self.position[first]
        ahead = self._reach(self.successors, second, low, high)
        if first in ahead:
            return False
        behind = self._reach(self.predecessors, first, low, high)
        moved = [
            *sorted(behind, key=self.position.__getitem__),
            *sorted(ahead, key=self.position.__getitem__),
        ]
        for link, position in zip(moved, sorted(self.position[link] for link in moved), strict=True):
            self.position[link] = position
        return True

    def _reach(self, edges: list[list[int]], start: int, low: int, high: int) -> set[int]:
        """The links that edges lead to from `start` within positions `low` to `high`."""
        reached, stack = {start}, [start]
        while stack:
            for n in edges[stack.pop()]:
                if n not in reached and low <= self.position[n] <= high:
                    reached.add(n)
                    stack.append(n)
        return reached


def _positions(links: int, turns: Iterable[Turn]) -> list[int]:
    """The position of each link in a topological order (A. Kahn, "Topological sorting of large networks", 1962)."""
    successors: list[list[int]] = [[] for _ in range(links)]
    in_degree = [0] * links
    for first, second in turns:
        successors[first].append(second)
        in_degree[second] += 1
    order = [i for i in range(links) if not in_degree[i]]
    for link in order:
        for n in successors[link]:
            in_degree[n] -= 1
            if not in_degree[n]:
                order.append(n)
    assert len(order) == links, "the turns have no cycle"
    position = [0] * links
    for i, link in enumerate(order):
        position[link] = i
    return position


def all_turns(topology: Topology, numbers: dict[Hop, int]) -> list[tuple[Hop, Hop]]:
    """Every pair of consecutive links that does not turn back, sorted; `numbers` are those of the live links. Beside
    switches, dies pass nothing on."""
    ends = topology.live_set if topology.switches else frozenset()
    return [
        ((a, b), (b, c))
        for a, b in topology.links
        if b not in ends
        for c in topology.neighbours[b]
        if c != a and (b, c) in numbers
    ]


def turns_of(path: Path, numbers: dict[Hop, int]) -> list[Turn]:
    """The turns that a path takes."""
    return [(numbers[a, b], numbers[b, c]) for a, b, c in zip(path, path[1:], path[2:], strict=False)]


def first_direction_rule(topology: Topology, step: int, cut: Sequence[int]) -> Rule:
    """The rule that a path may move along its row by `step` (-1 west, 1 east) only before any other move, and with
    three dimensions along its column by `step` only before any other but those along rows.

    The west-first turn model (C. Glass, L. Ni, "The Turn Model for Adaptive Routing", ISCA 1992, section 4) and
    its mirror image: acyclic, and on a whole mesh not one more turn would be. In three dimensions a circle cannot move
    along rows, since it could not come back, and then it lies in two. On a torus the place `cut` is where each
    dimension begins: no path passes from there to the end on the other side.
    """
    extents = topology.extents

    def move(hop: Hop) -> tuple[int, int]:
        """The dimension of a hop, columns first, and its direction; no unit step where it crosses a cut."""
        ends = zip(topology.place(hop[0]), topology.place(hop[1]), cut, extents, strict=True)
        steps = [(b - k) % n - (a - k) % n for a, b, k, n in ends]
        return next((d, s) for d, s in enumerate(reversed(steps)) if s)

    moves = {hop: move(hop) for hop in topology.links}

    def is_allowed(first: Hop, second: Hop) -> bool:
        before, after = moves[first], moves[second]
        if max(abs(before[1]), abs(after[1])) > 1:
            return False
        is_first = after[1] == step and after[0] < len(extents) - 1
        return not is_first or before == after or before[0] < after[0]

    return is_allowed


def up_down_rule(topology: Topology, end: int) -> Rule:
    """The rule, on any graph, that a path moves up towards a root, then down; the root is die `end` of an island.

    Acyclic, and joins every pair of an island (M. Schroeder et al., "Autonet", JSAC 9(8), 1991, section 4.2).
    """
    rank: dict[int, tuple[int, int]] = {}
    if topology.switches:  # messages go up into switches, and down through the highest and out of them
        rank = {v: (-height, v) for v, height in _heights(topology).items()}
    for island in () if rank else topology.islands:
        depth = topology.distances(island[end])
        rank |= {die: (depth[die], die) for die in island}

    def is_allowed(first: Hop, second: Hop) -> bool:
        went_down = rank[first[1]] > rank[first[0]]
        return not (went_down and rank[second[1]] < rank[second[0]])

    return is_allowed


def _heights(topology: Topology) -> dict[int, int]:
    """Of each die and vertex of a switch, how many switches above the dies it is."""
    height = dict.fromkeys(topology.live, 0)
    frontier = [*topology.live]
    while frontier:
        near = (n for v in frontier for n in (*topology.neighbours[v], *topology.entering[v]))
        found = dict.fromkeys((n for n in near if n not in height), height[frontier[0]] + 1)
        height |= found
        frontier = [*found]
    return height
