"""Cheap multicast trees: from the source, the nearest destinations are joined to the tree first.

The shortest path heuristic (H. Takahashi, A. Matsuyama, "An approximate solution for the Steiner problem in
graphs", Math. Japonica 24, 1980), for all demands at once; of many destinations a quarter is joined in one sweep.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from wscc.routing.channels import Channel
from wscc.routing.columns import Column
from wscc.routing.flows import Demand, Floats, Ints
from wscc.routing.sweep import sweep

_CHUNK = 512  # demands that grow at once, which bounds the memory
_SHARE = 4  # one part in so many of the destinations left is joined in a sweep


class Trees:
    """Trees for demands (number, demand) with several destinations."""

    def __init__(self, channels: tuple[Channel, ...], demands: Sequence[tuple[int, Demand]]) -> None:
        self.channels = channels
        self.demands = tuple(demands)

    @property
    def sweeps(self) -> int:
        """Columns of all sweeps that one search makes on a channel, about."""
        return sum(_SHARE + 2 * len(d.destinations).bit_length() for _, d in self.demands)

    def cheapest(self, prices: Floats) -> list[tuple[Column, float]]:
        """A tree of every demand, and the least cost of reaching its farthest destination alone."""
        found = []
        for column, cost in self._grown(prices):
            assert column is not None, "a demand that no channel can serve"
            found.append((column, cost))
        return found

    def cheapest_if_any(self, prices: Floats) -> list[Column | None]:
        """A tree of every demand; None where no channel reaches all its destinations."""
        return [column for column, _ in self._grown(prices)]

    def _grown(self, prices: Floats) -> Iterator[tuple[Column | None, float]]:
        """On the channel on which the tree is cheapest, the first of equals."""
        for low in range(0, len(self.demands), _CHUNK):
            demands = self.demands[low : low + _CHUNK]
            grown = [[*_Growth(v, c, demands, prices).trees()] for v, c in enumerate(self.channels)]
            for choices in zip(*grown, strict=True):
                column, _, _ = min(choices, key=lambda choice: choice[1])
                ends = np.min([far for _, _, far in choices], axis=0)
                yield column, float(ends.max())


class _Growth:
    """The trees of all demands on one channel, while they grow. `parent[place, tree]` is the place before a link
    of a tree, or -1 where it starts at the source."""

    def __init__(
        self, number: int, channel: Channel, demands: Sequence[tuple[int, Demand]], prices: Floats
    ) -> None:
        self.number, self.channel, self.demands = number, channel, demands
        self.prices = prices[channel.link]
        self.sources = np.array([d.source for _, d in demands], np.int64)
        self.inside = np.zeros((channel.links + 1, len(demands)), np.bool_)
        self.parent = np.full((channel.links, len(demands)), -1, np.int64)
        self.last: list[dict[int, int]] = [
            {} for _ in demands
        ]  # by tree: the place over which a die is reached
        self.far = [np.full(len(d.destinations), np.inf) for _, d in demands]

    def trees(self) -> Iterator[tuple[Column | None, float, Floats]]:
        """By demand: its tree (None where a destination is out of reach), the price of it (then infinite), and
        the costs of reaching its destinations one by one."""
        growing = np.arange(len(self.demands))
        first = True
        while len(growing):
            free = None if first else self.inside[:-1, growing]
            cost = sweep(self.channel, self.prices, self.sources[growing], free)
            if first:
                self.far = [
                    cost[self.channel.entering[list(d.destinations)], i].min(axis=1)
                    for i, (_, d) in enumerate(self.demands)
                ]
            left = [self._grow(int(tree), cost[:, i]) for i, tree in enumerate(growing)]
            growing = growing[np.array(left, np.bool_)]
            first = False
        for i, (demand, d) in enumerate(self.demands):
            if len(self.last[i]) < len(d.destinations):
                yield None, np.inf, self.far[i]
            else:
                yield self._column(i, demand, d), float(self.prices[self.inside[:-1, i]].sum()), self.far[i]

    def _grow(self, tree: int, cost: Floats) -> bool:
        """Join the nearest destinations that are left; whether some are left then, and in reach."""
        ends = np.array([d for d in self.demands[tree][1].destinations if d not in self.last[tree]], np.int64)
        entering = self.channel.entering[ends]
        pick = cost[entering].argmin(axis=1)
        place = entering[np.arange(len(ends)), pick]
        nearest = np.argsort(cost[place], kind="stable")
        if not np.isfinite(cost[place[nearest[-1]]]):
            return False
        for i in nearest[: -(-len(ends) // _SHARE)].tolist():
            self._join(tree, cost, int(place[i]))
            self.last[tree][int(ends[i])] = int(place[i])
        for end in (d for d in ends.tolist() if d not in self.last[tree]):
            reached = [p for p in self.channel.entering[end].tolist() if self.inside[p, tree]]
            if reached:
                self.last[tree][end] = reached[0]
        return len(self.last[tree]) < len(self.demands[tree][1].destinations)

    def _join(self, tree: int, cost: Floats, place: int) -> None:
        """Add the cheapest way to a place, from the source or from a link of the tree."""
        source = self.sources[tree]
        while not self.inside[place, tree]:
            self.inside[place, tree] = True
            if self.channel.tail[place] == source:
                break
            choices = self.channel.before[place]
            before = int(choices[cost[choices].argmin()])
            self.parent[place, tree] = before
            place = before

    def _column(self, tree: int, demand: int, d: Demand) -> Column:
        paths = tuple(self._path(tree, self.last[tree][end]) for end in d.destinations)
        links = self.channel.link[np.flatnonzero(self.inside[:-1, tree])]
        return Column(demand, self.number, links, paths)

    def _path(self, tree: int, place: int) -> Ints:
        places = [place]
        while (place := int(self.parent[place, tree])) >= 0:
            places.append(place)
        return self.channel.link[places[::-1]]
