"""The live machine as a graph: dies, their live neighbours, islands and paths. A mesh is one constructor.

Invariant: dead dies have no neighbours, links work both ways, and every answer depends on the graph alone,
ties broken by the order in which neighbours are listed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from heapq import heappop, heappush
from itertools import pairwise, product
from math import ceil

from wscc.machine.fold import Fold, Place
from wscc.machine.wafer import OPEN, Coordinate, Hub, Torus, Wafer, ends_around

UNREACHABLE = -1

Path = tuple[int, ...]
Hop = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Slowness:
    """How many times as long as on the wafer's own links a byte takes on a link, and the first byte (its latency)."""

    byte: float
    latency: float

    @property
    def hops(self) -> int:
        """For how many hops the link counts where dies are placed."""
        return max(1, ceil(self.byte), ceil(self.latency))


@dataclass(frozen=True)
class Topology:
    """`neighbours[d]` are the dies with a live link to d, in the order in which paths prefer them.

    `grid` is (rows, columns) where dies lie on one, so that XY paths exist; die d is then row-major, and `torus` says
    which ends of the grid are joined. `wafers` is the extent of one wafer of a system, and `slow` the links between
    them. Of nodes, all whose dies are joined, `hub` is true: they are a grid with more links, and so is a mesh of three
    dimensions, where `fold` says which. A switch is two vertices behind the dies; what joins them leads one way.
    """

    live: tuple[int, ...]
    neighbours: tuple[tuple[int, ...], ...]
    grid: tuple[int, int] | None = None
    torus: Torus = OPEN
    wafers: tuple[int, int] | None = None
    slow: tuple[tuple[Hop, Slowness], ...] = ()
    fold: Fold | None = None
    hub: bool = False
    _distances: dict[int, list[int]] = field(default_factory=dict, compare=False, repr=False)
    _paths: dict[tuple[int, int], Path | None] = field(default_factory=dict, compare=False, repr=False)

    @staticmethod
    def mesh(wafer: Wafer) -> Topology:
        """The live part of a wafer; neighbours along the row come first. `mesh_topology` keeps them."""
        return switched(wafer) if wafer.switch else Topology.corner(wafer, wafer.rows, wafer.cols)

    @staticmethod
    def corner(wafer: Wafer, rows: int, cols: int) -> Topology:
        """The first rows of a wafer, with all dies dead but those of the first `cols` columns; dies keep their
        numbers."""
        neighbours: list[tuple[int, ...]] = [()] * (rows * wafer.cols)
        live = []
        for coordinate in product(range(rows), range(cols)):
            if coordinate not in wafer.dead_dies:
                live.append(die := wafer.number(coordinate))
                neighbours[die] = _mesh_neighbours(wafer, coordinate, (rows, cols))
        is_high, is_wide, fold = rows == wafer.rows, cols == wafer.cols, wafer.fold
        closed = wafer.torus.cols if fold is None else fold.closes_folded
        torus = Torus(wafer.torus.rows and is_wide, closed and is_high)
        if fold is not None and not (is_high and is_wide):
            fold = replace(fold, closed=(False, False, False))
        joint = wafer.joint
        extent = None if joint is None else (joint.rows, joint.cols)
        if wafer.network is not None:
            extent = 1, wafer.cols
        slow = _slow(wafer, ((a, b) for a in live for b in neighbours[a]))
        hub = wafer.hub is not None
        torus = Torus(rows=hub or torus.rows, cols=torus.cols or wafer.network is not None)
        return Topology(tuple(live), tuple(neighbours), (rows, wafer.cols), torus, extent, slow, fold, hub)

    def part(self, dies: Collection[int]) -> Topology:
        """The same machine with all dies but `dies` dead."""
        alive = frozenset(dies)
        if alive == self.live_set:
            return self
        live = tuple(d for d in self.live if d in alive)
        neighbours: list[tuple[int, ...]] = [()] * self.dies
        alive |= self.switches
        for die in alive:
            neighbours[die] = tuple(n for n in self.neighbours[die] if n in alive)
        slow = tuple((hop, s) for hop, s in self.slow if alive.issuperset(hop))
        return replace(self, live=live, neighbours=tuple(neighbours), slow=slow, _distances={}, _paths={})

    @property
    def dies(self) -> int:
        """All dies, dead ones included."""
        return len(self.neighbours)

    @cached_property
    def switches(self) -> frozenset[int]:
        """The vertices that are no dies."""
        entered = {n for near in self.neighbours for n in near}
        return frozenset(n for n in entered if n not in self.live_set)

    @cached_property
    def entering(self) -> tuple[tuple[int, ...], ...]:
        """Of each die, those from which a link leads to it: its neighbours, but for a switch."""
        if not self.switches:
            return self.neighbours
        before: list[list[int]] = [[] for _ in self.neighbours]
        for a, near in enumerate(self.neighbours):
            for b in near:
                before[b].append(a)
        return tuple(map(tuple, before))

    @cached_property
    def live_set(self) -> frozenset[int]:
        return frozenset(self.live)

    @cached_property
    def links(self) -> tuple[tuple[int, int], ...]:
        """Every live link in each of its two directions, sorted."""
        return tuple(sorted((a, b) for a in (*self.live, *self.switches) for b in self.neighbours[a]))

    @cached_property
    def slowness(self) -> Mapping[Hop, Slowness]:
        """The links that are not as those of the wafer itself."""
        return dict(self.slow)

    @cached_property
    def byte_times(self) -> tuple[float, ...] | None:
        """By link, in the order of `links`: how long a byte takes, in byte times of the wafer's own links; None where
        all take one."""
        if all(s.byte == 1 for _, s in self.slow):
            return None
        return tuple(self.slowness[link].byte if link in self.slowness else 1.0 for link in self.links)

    @cached_property
    def islands(self) -> tuple[tuple[int, ...], ...]:
        """The connected parts, each sorted; the largest first, then the one with the lowest die."""
        seen: set[int] = set()
        parts = []
        for die in self.live:
            if die not in seen:
                part = self._reach(die)
                seen.update(part)
                parts.append(tuple(sorted(part - self.switches)))
        return tuple(sorted(parts, key=lambda part: (-len(part), part[0])))

    @cached_property
    def colours(self) -> tuple[int, ...] | None:
        """A 2-colouring: 0 or 1 for each die (dead dies: 0), different at both ends of a link; None if there is none.

        A mesh has one: rings have an even number of dies, and paths alternate. So has a torus of even rows and columns.
        """
        colour = [UNREACHABLE] * self.dies
        for island in self.islands:
            distance = self.distances(island[0])
            start = sum(divmod(island[0], self.grid[1])) % 2 if self.grid else 0
            for die in island:
                colour[die] = (distance[die] + start) % 2
        if any(colour[a] == colour[b] for a, b in self.links):
            return None
        return tuple(max(c, 0) for c in colour)

    def coordinate(self, die: int) -> Coordinate:
        """(row, column); only on a grid."""
        assert self.grid is not None
        return divmod(die, self.grid[1])

    def place(self, die: int) -> Place:
        """(row, column) on a grid, behind the plane if there are any."""
        cell = self.coordinate(die)
        return self.fold.place(cell) if self.fold else cell

    @property
    def extents(self) -> tuple[int, ...]:
        """The extent of each part of a place."""
        assert self.grid is not None
        return self.fold.extents if self.fold else self.grid

    @property
    def closed(self) -> tuple[bool, ...]:
        """Whether links join both ends of each dimension of a place."""
        return self.fold.closed if self.fold else (self.torus.cols, self.torus.rows)

    @cached_property
    def is_whole_mesh(self) -> bool:
        """Whether this is a mesh of two dimensions without damage, open at its ends."""
        if self.grid is None or self.fold is not None or self.hub or self.torus != OPEN:
            return False
        rows, cols = self.grid
        return len(self.links) == 2 * (rows * (cols - 1) + cols * (rows - 1))

    def name_of(self, die: int) -> str:
        """The name of a die in messages: its place on a grid, else the number."""
        return str(self.place(die)) if self.grid else str(die)

    def is_live(self, die: int) -> bool:
        return die in self.live_set

    def are_adjacent(self, a: int, b: int) -> bool:
        """Whether a live link joins `a` and `b`."""
        return b in self.neighbours[a]

    def distances(self, to: int) -> list[int]:
        """Hops from each die to `to`, or `UNREACHABLE`. The list is computed once and shared: do not change it."""
        hops = self._distances.get(to)
        if hops is None:
            hops = self._distances[to] = self._measure(to)
        return hops

    def distance(self, a: int, b: int) -> int:
        """Hops from `a` to `b`, or `UNREACHABLE`."""
        return self.distances(b)[a]

    def lengths(self, to: int) -> list[int]:
        """As `distances`, where a link between wafers counts for as many hops as it is slower. Of nodes, all whose dies
        are neighbours, no die passes on what is another's, and the link of two is what lies between them."""
        if not self.slow:
            return self.distances(to)
        lengths = [UNREACHABLE] * self.dies
        queue = [(0, to)] if self.is_live(to) else []
        while queue:
            length, die = heappop(queue)
            if lengths[die] == UNREACHABLE:
                lengths[die] = length
                for n in self.entering[die] if die == to or not self.hub else ():
                    slow = self.slowness.get((n, die))
                    heappush(queue, (length + (slow.hops if slow else 1), n))
        return lengths

    def shortest_path(self, a: int, b: int) -> Path | None:
        """The dies of a shortest live path, both ends included; the first by the order of neighbours."""
        hops = self.distances(b)
        if hops[a] == UNREACHABLE:
            return None
        path = [a]
        while path[-1] != b:
            die = path[-1]
            path.append(next(n for n in self.neighbours[die] if hops[n] == hops[die] - 1))
        return tuple(path)

    def xy_path(self, a: int, b: int) -> Path | None:
        """The path along the row, then along the column, then through the planes, the shorter way around a torus; None
        where a die or link on it is dead, or without a grid."""
        if self.grid is None or self.hub:
            return None
        path = self._xy(a, b)
        alive = self.is_live(a) and all(self.are_adjacent(x, y) for x, y in pairwise(path))
        return path if alive else None

    def xy_or_shortest(self, a: int, b: int) -> Path | None:
        """The XY path, or the shortest live path where that one is broken; None between islands. It is found once:
        every pass that looks at messages asks for those of the same ends."""
        if (a, b) not in self._paths:
            self._paths[a, b] = self.xy_path(a, b) or self.shortest_path(a, b)
        return self._paths[a, b]

    def _xy(self, a: int, b: int) -> Path:
        here, to, path = list(self.place(a)), self.place(b), []
        for dimension in reversed(range(len(to))):
            steps = _steps(here[dimension], to[dimension], self.extents[dimension], self.closed[dimension])
            for here[dimension] in steps:
                path.append(self._number(here))
            here[dimension] = to[dimension]
        return (*path, b)

    def _number(self, place: Sequence[int]) -> int:
        assert self.grid is not None
        row, col = self.fold.cell(tuple(place)) if self.fold else place
        return row * self.grid[1] + col

    def _measure(self, to: int) -> list[int]:
        hops = [UNREACHABLE] * self.dies
        if self.is_live(to):
            hops[to] = 0
            queue = deque([to])
            while queue:
                die = queue.popleft()
                for n in self.entering[die]:
                    if hops[n] == UNREACHABLE:
                        hops[n] = hops[die] + 1
                        queue.append(n)
        return hops

    def _reach(self, die: int) -> set[int]:
        reached, stack = {die}, [die]
        while stack:
            for n in self.neighbours[stack.pop()]:
                if n not in reached:
                    reached.add(n)
                    stack.append(n)
        return reached


@lru_cache(maxsize=64)
def mesh_topology(wafer: Wafer) -> Topology:
    """`Topology.mesh`, sharing the distances that were measured before."""
    return Topology.mesh(wafer)


def switched(wafer: Wafer) -> Topology:
    """Nodes whose dies have a link each to the switch of their node and to one of the network, and one back: no die
    passes on what is another's. Links up into a switch, through it and down out of it follow one another, and no circle
    is left."""
    live = tuple(wafer.live_numbers())
    hops = tuple(wafer.switches.hops(live))
    neighbours: list[list[int]] = [[] for _ in range(wafer.vertices)]
    for a, b in hops:
        neighbours[a].append(b)
    return Topology(live, tuple(map(tuple, neighbours)), slow=_slow(wafer, hops))


def neighbour_topology(wafer: Wafer) -> Topology:
    """The graph that dies are placed on: all dies of nodes are neighbours, those of one node or leaf nearer ones."""
    return mesh_topology(replace(wafer, hub=Hub()) if wafer.switch else wafer)


def _mesh_neighbours(wafer: Wafer, die: Coordinate, extent: tuple[int, int]) -> tuple[int, ...]:
    return tuple(
        wafer.number(n)
        for n in ends_around(wafer, die)
        if n[0] < extent[0] and n[1] < extent[1] and n not in wafer.dead_dies and not wafer.is_missing(die, n)
    )


def _slow(wafer: Wafer, hops: Iterable[Hop]) -> tuple[tuple[Hop, Slowness], ...]:
    if len(wafer.links) == 1:
        return ()
    own, *others = wafer.links
    ratios = [
        Slowness(own.bandwidth / link.bandwidth, link.latency / own.latency if own.latency else 1.0)
        for link in others
    ]
    return tuple((h, ratios[c - 1]) for h in hops if (c := wafer.link_class(*h)))


def _steps(a: int, b: int, extent: int, closed: bool) -> Iterable[int]:
    """The positions from `a` on to `b`, which is left out; the shorter way where the ends are joined."""
    step = 1 if b >= a else -1
    if closed and 2 * abs(b - a) > extent:
        return [(a - step * i) % extent for i in range(extent - abs(b - a))]
    return range(a, b, step)
