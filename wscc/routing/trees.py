"""Cheap multicast trees, grown from the source by joining the nearest destinations first.

The shortest path heuristic (H. Takahashi, A. Matsuyama, "An approximate solution for the Steiner problem in
graphs", Math. Japonica 24, 1980), for all demands at once; a quarter of the destinations left is joined after each
relaxation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from wscc.routing.channels import Channel
from wscc.routing.columns import Column
from wscc.routing.flows import Demand, Floats, Ints
from wscc.routing.relaxation import relax

_CHUNK = 512  # demands that grow at once, which bounds the memory
_SHARE = 4  # one part in so many of the destinations left is joined after a relaxation


class Trees:
    """Trees for demands (number, demand) with several destinations."""

    def __init__(self, channels: tuple[Channel, ...], demands: Sequence[tuple[int, Demand]]) -> None:
        self.channels = channels
        self.demands = tuple(demands)

    @property
    def relaxations(self) -> int:
        """About the number of single-source relaxations of one search on a channel."""
        return sum(_SHARE + 2 * len(d.destinations).bit_length() for _, d in self.demands)

    def cheapest(self, prices: Floats) -> list[tuple[Column, float]]:
        """A tree of every demand, and the cost of a cheapest path to its farthest destination alone."""
        trees = []
        for column, cost in self._grown(prices):
            assert column is not None, "a demand that no channel can serve"
            trees.append((column, cost))
        return trees

    def cheapest_if_any(self, prices: Floats) -> list[Column | None]:
        """A tree of every demand; None where no channel reaches all its destinations."""
        return [column for column, _ in self._grown(prices)]

    def _grown(self, prices: Floats) -> Iterator[tuple[Column | None, float]]:
        """As `cheapest`; each tree on the channel where it is cheapest, the first of equals, None if there is none."""
        for low in range(0, len(self.demands), _CHUNK):
            demands = self.demands[low : low + _CHUNK]
            grown = [[*_Growth(v, c, demands, prices).trees()] for v, c in enumerate(self.channels)]
            for choices in zip(*grown, strict=True):
                column, _, _ = min(choices, key=lambda choice: choice[1])
                distances = np.min([by_end for _, _, by_end in choices], axis=0)
                yield column, float(distances.max())


class _Growth:
    """The trees of all demands on one channel, while they grow. Links are given by their position; `inside[position,
    tree]`: the link is in the tree; `parent[position, tree]`: the link before it, or -1 where it starts at the source.
    """

    def __init__(
        self, number: int, channel: Channel, demands: Sequence[tuple[int, Demand]], prices: Floats
    ) -> None:
        self.number, self.channel, self.demands = number, channel, demands
        self.prices = prices[channel.link]
        self.sources = np.array([d.source for _, d in demands], np.int64)
        self.inside = np.zeros((channel.links + 1, len(demands)), np.bool_)
        self.parent = np.full((channel.links, len(demands)), -1, np.int64)
        # By tree: the position of the link over which a destination is reached.
        self.last: list[dict[int, int]] = [{} for _ in demands]
        self.distances = [np.full(len(d.destinations), np.inf) for _, d in demands]

    def trees(self) -> Iterator[tuple[Column | None, float, Floats]]:
        """By demand: its tree (None where a destination is out of reach), the price of it (then infinite), and
        the costs of cheapest paths to its destinations one by one."""
        growing = np.arange(len(self.demands))
        is_first = True
        while len(growing):
            in_tree = None if is_first else self.inside[:-1, growing]
            cost = relax(self.channel, self.prices, self.sources[growing], in_tree)
            if is_first:
                self.distances = [
                    cost[self.channel.entering[list(d.destinations)], i].min(axis=1)
                    for i, (_, d) in enumerate(self.demands)
                ]
            unfinished = [self._grow(int(tree), cost[:, i]) for i, tree in enumerate(growing)]
            growing = growing[np.array(unfinished, np.bool_)]
            is_first = False
        for i, (demand, d) in enumerate(self.demands):
            if len(self.last[i]) < len(d.destinations):
                yield None, np.inf, self.distances[i]
            else:
                yield (
                    self._column(i, demand, d),
                    float(self.prices[self.inside[:-1, i]].sum()),
                    self.distances[i],
                )

    def _grow(self, tree: int, cost: Floats) -> bool:
        """Join the nearest destinations that are left; True if some are left then, and all of them in reach."""
        ends = np.array([d for d in self.demands[tree][1].destinations if d not in self.last[tree]], np.int64)
        entering = self.channel.entering[ends]
        pick = cost[entering].argmin(axis=1)
        position = entering[np.arange(len(ends)), pick]
        nearest = np.argsort(cost[position], kind="stable")
        if not np.isfinite(cost[position[nearest[-1]]]):
            return False
        for i in nearest[: -(-len(ends) // _SHARE)].tolist():
            self._join(tree, cost, int(position[i]))
            self.last[tree][int(ends[i])] = int(position[i])
        for end in (d for d in ends.tolist() if d not in self.last[tree]):
            entering_tree = [p for p in self.channel.entering[end].tolist() if self.inside[p, tree]]
            if entering_tree:
                self.last[tree][end] = entering_tree[0]
        return len(self.last[tree]) < len(self.demands[tree][1].destinations)

    def _join(self, tree: int, cost: Floats, position: int) -> None:
        """Add the cheapest path to a link, from the source or from a link of the tree."""
        source = self.sources[tree]
        while not self.inside[position, tree]:
            self.inside[position, tree] = True
            if self.channel.tail[position] == source:
                break
            choices = self.channel.predecessors[position]
            previous = int(choices[cost[choices].argmin()])
            self.parent[position, tree] = previous
            position = previous

    def _column(self, tree: int, demand: int, d: Demand) -> Column:
        paths = tuple(self._path(tree, self.last[tree][end]) for end in d.destinations)
        links = self.channel.link[np.flatnonzero(self.inside[:-1, tree])]
        return Column(demand, self.number, links, paths)

    def _path(self, tree: int, position: int) -> Ints:
        positions = [position]
        while (position := int(self.parent[position, tree])) >= 0:
            positions.append(position)
        return self.channel.link[positions[::-1]]
