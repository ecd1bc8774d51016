"""Cheapest paths over all live links by any turns, as lower bounds need: no routing has cheaper ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wscc.machine.topology import Topology
from wscc.routing.columns import Column
from wscc.routing.flows import Demand, Floats, Ints
from wscc.routing.loads import link_numbers
from wscc.routing.search import CheapestColumns


class UnrestrictedSearch:
    """`search.Search` without channels: a path to the farthest destination of each demand, so that no tree is
    cheaper."""

    def __init__(self, topology: Topology, demands: Sequence[Demand]) -> None:
        numbers, dies = link_numbers(topology), topology.dies
        width = max((len(n) for n in topology.entering), default=1)
        self.demands = tuple(demands)
        # The dies before every die and the links from them, padded with a die that nothing reaches.
        self._neighbours = np.full((dies, width), dies, np.int64)
        self._link = np.full((dies, width), len(numbers), np.int64)
        for die, neighbours in enumerate(topology.entering):
            self._neighbours[die, : len(neighbours)] = neighbours
            self._link[die, : len(neighbours)] = [numbers[n, die] for n in neighbours]
        sources = np.array([d.source for d in demands], np.int64)
        self._sources, self._column = np.unique(sources, return_inverse=True)

    @property
    def work(self) -> int:
        """Array elements that one search reads, a measure of its time."""
        return self._neighbours.size * len(self._sources) + 1

    def cheapest(self, prices: Floats) -> CheapestColumns:
        """The cheapest path of every demand. `prices`: positive, by link, in the order of `topology.links`."""
        price = np.append(prices, np.inf)[self._link]
        cost = self._costs(price)
        columns, costs = [], np.zeros(len(self.demands))
        for i, demand in enumerate(self.demands):
            distance = cost[:, self._column[i]]
            end = max(demand.destinations, key=distance.__getitem__)
            costs[i] = distance[end]
            path = self._path(distance, price, demand.source, end)
            columns.append(Column(i, 0, path, (path,)))
        return CheapestColumns(tuple(columns), costs)

    def _costs(self, price: Floats) -> Floats:
        """`[dies + 1, sources]`: costs from every source, of all dies at once (R. Bellman, 1958)."""
        dies, width = self._neighbours.shape
        cost = np.full((dies + 1, len(self._sources)), np.inf)
        cost[self._sources, np.arange(len(self._sources))] = 0.0
        while True:
            relaxed = cost[:dies].copy()
            for k in range(width):
                np.minimum(relaxed, cost[self._neighbours[:, k]] + price[:, k, None], out=relaxed)
            if np.array_equal(relaxed, cost[:dies]):
                return cost
            cost[:dies] = relaxed

    def _path(self, cost: Floats, price: Floats, source: int, end: int) -> Ints:
        """The links of the cheapest path from `source` to `end`; `cost` by die."""
        links, die = [], end
        while die != source:
            k = int((cost[self._neighbours[die]] + price[die]).argmin())
            links.append(self._link[die, k])
            die = int(self._neighbours[die, k])
        return np.array(links[::-1], np.int64)
