"""Cheapest trees that scatter, sending every destination bytes of its own: the shortest path tree of each source,
whose links carry the amount once for every destination behind them."""

from __future__ import annotations

import numpy as np

from wscc.routing.columns import Column
from wscc.routing.flows import Demand, Floats, Ints
from wscc.routing.search import CheapestColumns
from wscc.routing.unrestricted import UnrestrictedSearch


class ScatterSearch(UnrestrictedSearch):
    """As `UnrestrictedSearch`, but the bytes of a demand are what each of its destinations receives."""

    def cheapest(self, prices: Floats) -> CheapestColumns:
        """The shortest path tree of every demand. `prices`: positive, by link, in the order of `topology.links`."""
        price = np.append(prices, np.inf)[self._link]
        cost = self._costs(price)
        dies = len(self._neighbours)
        choice = (cost[self._neighbours] + price[:, :, None]).argmin(axis=1)
        parent = np.take_along_axis(self._neighbours, choice, 1)
        link = np.take_along_axis(self._link, choice, 1)
        order = cost[:dies].argsort(axis=0, kind="stable")
        columns, costs = [], np.zeros(len(self.demands))
        for i, demand in enumerate(self.demands):
            s = self._column[i]
            costs[i] = cost[list(demand.destinations), s].sum()
            columns.append(_column(i, demand, order[:, s], parent[:, s], link[:, s]))
        return CheapestColumns(tuple(columns), costs)


def _column(number: int, demand: Demand, order: Ints, parent: Ints, link: Ints) -> Column:
    """The tree of one source: `parent` and `link` (the one from the parent) by die, `order` the dies by distance."""
    paths: dict[int, tuple[int, ...]] = {demand.source: ()}
    parents, links = parent.tolist(), link.tolist()
    for die in order.tolist():
        if die != demand.source and parents[die] in paths:
            paths[die] = (*paths[parents[die]], links[die])
    by_destination = tuple(np.array(paths[d], np.int64) for d in demand.destinations)
    crossed, times = (
        np.unique(np.concatenate(by_destination), return_counts=True)
        if demand.destinations
        else (np.empty(0, np.int64),) * 2
    )
    return Column(number, 0, crossed, by_destination, times.astype(float))
