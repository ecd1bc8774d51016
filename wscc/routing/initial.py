"""Initial routes of flows, the virtual channels that allow them, and candidate detours around damage.

The initial route runs along the row, then along the column (XY); where that path is dead it is the shortest live
path, ties by the order of neighbours; where no virtual channel allows the turns of that, the shortest path that
the last channel allows. Flows of the same bytes are sent one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

import numpy as np

from wscc.machine.topology import Hop, Path, Topology
from wscc.routing.channels import Channel, channel_of, make_channels
from wscc.routing.columns import Column, Pool, is_simple
from wscc.routing.flows import Demand, Floats, Flow, Ints, Piece, merged_demands, single_demands
from wscc.routing.live_paths import live_path
from wscc.routing.loads import link_numbers
from wscc.routing.negotiation import negotiate
from wscc.routing.search import Search
from wscc.routing.split import split
from wscc.routing.trees import Trees
from wscc.routing.turns import turns_of
from wscc.routing.unrestricted import UnrestrictedSearch

Pair = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Ways:
    """Virtual channels that join the ends of some flows, and the initial route between two dies: its path, its channel
    and the numbers of its links. Each is found once, since phases of a program ask for the same ones."""

    topology: Topology
    channels: tuple[Channel, ...]
    numbers: dict[Hop, int]
    _routes: dict[Pair, tuple[Path, int, Ints]] = field(default_factory=dict)

    def route(self, pair: Pair) -> tuple[Path, int, Ints]:
        """The initial route from a source to a destination."""
        if pair not in self._routes:
            path = live_path(self.topology, *pair)
            channel = channel_of(self.channels, turns_of(path, self.numbers))
            if channel is None:
                path, channel = _shortest_allowed(self.topology, self.channels, pair)
            links = np.array([self.numbers[hop] for hop in pairwise(path)], np.int64)
            links.flags.writeable = False
            self._routes[pair] = path, channel, links
        return self._routes[pair]


@dataclass(frozen=True, eq=False)
class InitialRoutes:
    """The initial routes that flows take; `pieces`: one of every flow that crosses a link."""

    ways: Ways
    pieces: tuple[Piece, ...]

    @property
    def topology(self) -> Topology:
        return self.ways.topology

    @property
    def numbers(self) -> dict[Hop, int]:
        """The index of every directed link in `topology.links`."""
        return self.ways.numbers

    @property
    def channels(self) -> tuple[Channel, ...]:
        return self.ways.channels

    @property
    def links(self) -> tuple[Hop, ...]:
        return self.topology.links

    def candidates(self, flows: Sequence[Flow]) -> tuple[tuple[Demand, ...], list[Column]]:
        """The demands of flows that are not pinned, and a first column of each: its initial route.

        Flows of the same bytes are merged where their initial routes are a tree on one channel, or another tree is
        found."""
        demands: list[Demand] = []
        columns: list[Column] = []
        multicasts: list[Demand] = []
        for demand in merged_demands(flows):
            column = self._initial_column(len(demands), demand)
            if column is None:
                multicasts.append(demand)
            else:
                demands.append(demand)
                columns.append(column)
        for demand, tree in zip(multicasts, self._first_trees(multicasts), strict=True):
            if tree is not None and is_simple(tree, self.links):
                columns.append(replace(tree, demand=len(demands)))
                demands.append(demand)
                continue
            for end, ends in zip(demand.destinations, demand.flows, strict=True):
                single = Demand(demand.source, demand.bytes, (end,), (ends,))
                column = self._initial_column(len(demands), single)
                assert column is not None, "a path is a tree"
                columns.append(column)
                demands.append(single)
        return tuple(demands), columns

    def _initial_column(self, number: int, demand: Demand) -> Column | None:
        """The initial routes of a demand as a column; None unless together they are one tree on one channel."""
        routes = [self.ways.route((demand.source, d)) for d in demand.destinations]
        if len(routes) == 1:  # a path is a tree
            _, channel, links = routes[0]
            return Column(number, channel, links, (links,))
        predecessor: dict[Hop, Hop | None] = {}
        is_tree = len({v for _, v, _ in routes}) == 1
        for path, _, _ in routes:
            hops = [*pairwise(path)]
            for previous, hop in zip((None, *hops), hops, strict=False):
                is_tree &= predecessor.setdefault(hop, previous) == previous
        if not is_tree:
            return None
        paths = tuple(links for _, _, links in routes)
        links = np.unique(np.concatenate(paths))
        return Column(number, routes[0][1], links, paths)

    def _first_trees(self, demands: Sequence[Demand]) -> list[Column | None]:
        """A tree of few links for each demand; None where no channel reaches all its destinations."""
        return Trees(self.channels, [*enumerate(demands)]).cheapest_if_any(np.ones(len(self.links)))


def make_ways(topology: Topology, pairs: Iterable[Pair], channels: int, detours: Sequence[Path] = ()) -> Ways:
    """The ways over at most so many virtual channels, which join the pairs of dies, and besides allow the turns of the
    `detours` that close no cycle."""
    numbers = link_numbers(topology)
    paths = [live_path(topology, a, b) for a, b in pairs]
    return Ways(topology, make_channels(topology, numbers, paths, channels, detours), numbers)


def initial_routes(
    topology: Topology, flows: Sequence[Flow], channels: int | Ways, detours: Sequence[Path] = ()
) -> InitialRoutes:
    """The initial routes of flows that `check_flows` lets pass, over ways that join their ends, or those
    of `make_ways` with so many channels."""
    demands = single_demands(flows)
    if isinstance(channels, int):
        pairs = dict.fromkeys((d.source, d.destinations[0]) for d in demands)
        channels = make_ways(topology, pairs, channels, detours)
    pieces = []
    for d in demands:
        path, channel, _ = channels.route((d.source, d.destinations[0]))
        pieces.append(Piece(d, d.bytes, channel, (path,)))
    return InitialRoutes(channels, tuple(pieces))


def _shortest_allowed(topology: Topology, channels: tuple[Channel, ...], pair: Pair) -> tuple[Path, int]:
    """The shortest path on the last channel, which joins every pair where the others do not, and its number."""
    demand = Demand(pair[0], 1, (pair[1],), ((0,),))
    (column,) = Search(channels[-1:], [demand]).cheapest(np.ones(len(topology.links))).columns
    return column.die_paths(topology)[0], len(channels) - 1


_RESPONSES: Final = 12
_CROSSINGS: Final = 200_000  # of links by all candidates, for a linear programme of about a second


def candidate_detours(
    topology: Topology, demands: Sequence[Demand], fixed: Floats, load: Floats
) -> list[Path]:
    """Paths over all live links, by any turns, of a routing with a low largest load, those that carry most first.

    Demands with several destinations count with the farthest. `load`: bytes by link to start from, `fixed` of them
    of pinned flows. Empty where the candidates are too many for a linear programme."""
    pool = Pool(len(demands), topology)
    amounts = np.array([d.bytes for d in demands], float)
    load, _ = negotiate(UnrestrictedSearch(topology, demands), pool, amounts, fixed, load, _RESPONSES)
    columns = pool.columns
    if sum(len(c.links) for c in columns) > _CROSSINGS:
        return []
    solution = split(columns, np.zeros(len(columns)), amounts, fixed, float(load.max()))
    if solution is None:
        return []
    carried = solution.shares * amounts[[c.demand for c in columns]]
    order = sorted(np.flatnonzero(carried > 0).tolist(), key=lambda j: (-carried[j], j))
    return [columns[j].die_paths(topology)[0] for j in order]
