"""Cheapest ways to send every destination bytes of its own: a tree of cheapest paths from each source, whose
links carry the amount once for every destination behind them."""

from __future__ import annotations

import numpy as np

from wscc.routing.columns import Column
from wscc.routing.flows import Demand, Floats, Ints
from wscc.routing.free import FreeSearch
from wscc.routing.search import Found


class ScatterSearch(FreeSearch):
    """As `FreeSearch`; the bytes of a demand are what each of its destinations receives."""

    def cheapest(self, prices: Floats) -> Found:
        """`prices`: positive, by link, in the order of `topology.links`."""
        price = np.append(prices, np.inf)[self._link]
        cost = self._costs(price)
        dies = len(self._beside)
        via = (cost[self._beside] + price[:, :, None]).argmin(axis=1)
        parent = np.take_along_axis(self._beside, via, 1)
        link = np.take_along_axis(self._link, via, 1)
        order = cost[:dies].argsort(axis=0, kind="stable")
        columns, costs = [], np.zeros(len(self.demands))
        for i, demand in enumerate(self.demands):
            s = self._column[i]
            costs[i] = cost[list(demand.destinations), s].sum()
            columns.append(_column(i, demand, order[:, s], parent[:, s], link[:, s]))
        return Found(tuple(columns), costs)


def _column(number: int, demand: Demand, order: Ints, parent: Ints, link: Ints) -> Column:
    """The tree of one source: `parent` and `link` by die, `order` the dies from near to far."""
    wanted = set(demand.destinations)
    paths: dict[int, tuple[int, ...]] = {demand.source: ()}
    parents, links = parent.tolist(), link.tolist()
    for die in order.tolist():
        if die != demand.source and parents[die] in paths:
            paths[die] = (*paths[parents[die]], links[die])
    ways = tuple(np.array(paths[d], np.int64) for d in demand.destinations)
    crossed, times = (
        np.unique(np.concatenate(ways), return_counts=True) if wanted else (np.empty(0, np.int64),) * 2
    )
    return Column(number, 0, crossed, ways, times)
