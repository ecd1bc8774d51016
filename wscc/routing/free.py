"""Cheapest paths over all live links, whatever turns they take: what a bound has to be measured against."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wscc.machine.topology import Topology
from wscc.routing.columns import Column
from wscc.routing.flows import Demand, Floats, Ints
from wscc.routing.loads import link_numbers
from wscc.routing.search import Found


class FreeSearch:
    """As `search.Search`, without channels; of several destinations only the farthest counts, which makes its
    answers cheaper than any tree."""

    def __init__(self, topology: Topology, demands: Sequence[Demand]) -> None:
        numbers, dies = link_numbers(topology), topology.dies
        width = max((len(n) for n in topology.neighbours), default=1)
        self.demands = tuple(demands)
        # The neighbours of every die and the links from them, padded with a die that nothing reaches.
        self._beside = np.full((dies, width), dies, np.int64)
        self._link = np.full((dies, width), len(numbers), np.int64)
        for die, beside in enumerate(topology.neighbours):
            self._beside[die, : len(beside)] = beside
            self._link[die, : len(beside)] = [numbers[n, die] for n in beside]
        sources = np.array([d.source for d in demands], np.int64)
        self._sources, self._column = np.unique(sources, return_inverse=True)

    @property
    def work(self) -> int:
        """A measure of the time of one search: numbers touched."""
        return self._beside.size * len(self._sources) + 1

    def cheapest(self, prices: Floats) -> Found:
        """`prices`: positive, by link, in the order of `topology.links`."""
        price = np.append(prices, np.inf)[self._link]
        cost = self._costs(price)
        columns, costs = [], np.zeros(len(self.demands))
        for i, demand in enumerate(self.demands):
            mine = cost[:, self._column[i]]
            end = max(demand.destinations, key=mine.__getitem__)
            costs[i] = mine[end]
            path = self._path(mine, price, demand.source, end)
            columns.append(Column(i, 0, path, (path,)))
        return Found(tuple(columns), costs)

    def _costs(self, price: Floats) -> Floats:
        """`[dies + 1, sources]`: costs from every source (R. Bellman, 1958), all dies at once."""
        dies, width = self._beside.shape
        cost = np.full((dies + 1, len(self._sources)), np.inf)
        cost[self._sources, np.arange(len(self._sources))] = 0.0
        while True:
            better = cost[:dies].copy()
            for k in range(width):
                np.minimum(better, cost[self._beside[:, k]] + price[:, k, None], out=better)
            if np.array_equal(better, cost[:dies]):
                return cost
            cost[:dies] = better

    def _path(self, cost: Floats, price: Floats, source: int, end: int) -> Ints:
        """The links of the cheapest path, from its costs at every die."""
        links, here = [], end
        while here != source:
            k = int((cost[self._beside[here]] + price[here]).argmin())
            links.append(self._link[here, k])
            here = int(self._beside[here, k])
        return np.array(links[::-1], np.int64)
