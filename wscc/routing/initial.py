"""Where the router starts: the virtual channels, and every flow on its initial route.

The initial route runs along the row, then along the column (XY); where that path is dead it is the shortest live
path, ties by the order of neighbours; where no virtual channel has room for the turns of that, the shortest path
that they allow. Flows of the same bytes are sent one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from wscc.machine.topology import Path, Topology
from wscc.routing.channels import Channel, channel_of, make_channels
from wscc.routing.columns import Column
from wscc.routing.flows import Demand, Flow, Ints, Piece, merged_demands, single_demands
from wscc.routing.loads import Hop, link_numbers
from wscc.routing.search import Search
from wscc.routing.trees import servable
from wscc.routing.turns import turns_of

Pair = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Start:
    """`routes`: by source and destination, the initial path and its virtual channel; `pieces`: one of every flow
    that crosses a link."""

    topology: Topology
    numbers: dict[Hop, int]
    channels: tuple[Channel, ...]
    routes: dict[Pair, tuple[Path, int]]
    pieces: tuple[Piece, ...]

    @property
    def links(self) -> tuple[Hop, ...]:
        return self.topology.links

    def demands(self, flows: Sequence[Flow]) -> tuple[Demand, ...]:
        """Flows that are not pinned, those of the same bytes merged where one channel reaches all their
        destinations."""
        demands: list[Demand] = []
        merged = merged_demands(flows)
        for demand, can in zip(merged, servable(self.channels, merged), strict=True):
            if can:
                demands.append(demand)
            else:
                ends = zip(demand.destinations, demand.flows, strict=True)
                demands += [Demand(demand.source, demand.bytes, (d,), (f,)) for d, f in ends]
        return tuple(demands)

    def columns(self, demands: Sequence[Demand]) -> list[Column]:
        """The initial routes as candidates, merged where they are one tree on one channel."""
        found = []
        for number, demand in enumerate(demands):
            routes = [self.routes[demand.source, d] for d in demand.destinations]
            came: dict[Hop, Hop | None] = {}
            is_tree = len({v for _, v in routes}) == 1
            for path, _ in routes:
                for before, hop in zip((None, *pairwise(path)), pairwise(path), strict=False):
                    is_tree &= came.setdefault(hop, before) == before
            if is_tree:
                paths = tuple(self._links(path) for path, _ in routes)
                found.append(Column(number, routes[0][1], np.unique(np.concatenate(paths)), paths))
        return found

    def _links(self, path: Path) -> Ints:
        return np.array([self.numbers[hop] for hop in pairwise(path)], np.int64)


def start(topology: Topology, flows: Sequence[Flow], channels: int) -> Start:
    """The initial routes of flows that `check_flows` lets pass, over `channels` (1 or 2) virtual channels."""
    demands = single_demands(flows)
    numbers = link_numbers(topology)
    paths = {(d.source, d.destinations[0]): _initial_path(topology, d) for d in demands}
    made = make_channels(topology, numbers, paths.values(), channels)
    routes: dict[Pair, tuple[Path, int]] = {}
    for pair, path in paths.items():
        channel = channel_of(made, turns_of(path, numbers))
        routes[pair] = (path, channel) if channel is not None else _shortest_allowed(topology, made, pair)
    pieces = []
    for d in demands:
        path, channel = routes[d.source, d.destinations[0]]
        pieces.append(Piece(d, d.bytes, channel, (path,)))
    return Start(topology, numbers, made, routes, tuple(pieces))


def _initial_path(topology: Topology, demand: Demand) -> Path:
    path = topology.xy_or_shortest(demand.source, demand.destinations[0])
    assert path is not None, "check_flows refuses ends that are out of reach"
    return path


def _shortest_allowed(topology: Topology, channels: tuple[Channel, ...], pair: Pair) -> tuple[Path, int]:
    demand = Demand(pair[0], 1, (pair[1],), ((0,),))
    (column,) = Search(channels, [demand]).cheapest(np.ones(len(topology.links))).columns
    return column.die_paths(topology)[0], column.channel
