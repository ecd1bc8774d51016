"""Cheapest paths and trees at some prices of links, on every virtual channel, for all demands at once.

The allowed turns of a channel have no cycle, so that one relaxation of its links in topological order finds the
cheapest paths from every source, whole rows of arrays at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from wscc.routing.channels import Channel
from wscc.routing.columns import Column
from wscc.routing.flows import Demand, Floats, Ints
from wscc.routing.relaxation import relax, trace
from wscc.routing.trees import Trees

_CHUNK = 1024  # sources of one relaxation, which bounds its memory to links x _CHUNK numbers


@dataclass(frozen=True, eq=False)
class CheapestColumns:
    """A cheapest column of every demand, and a lower bound of its cost at the same prices (`costs`, by demand): the
    cost itself for a single destination; for multicasts, the cost of a path to the farthest alone."""

    columns: tuple[Column, ...]
    costs: Floats


class Search:
    """Search of the cheapest columns of some demands, each of which some channel can serve."""

    def __init__(self, channels: tuple[Channel, ...], demands: Sequence[Demand]) -> None:
        self.channels = channels
        self.demands = tuple(demands)
        self._single = np.array([i for i, d in enumerate(demands) if len(d.destinations) == 1], np.int64)
        self._sources = np.array([demands[i].source for i in self._single], np.int64)
        self._ends = np.array([demands[i].destinations[0] for i in self._single], np.int64)
        multicasts = [(i, d) for i, d in enumerate(demands) if len(d.destinations) > 1]
        self._trees = Trees(channels, multicasts) if multicasts else None

    @property
    def work(self) -> int:
        """Array elements that one search reads, a measure of its time."""
        links = sum(channel.links for channel in self.channels)
        return links * (len(np.unique(self._sources)) + (self._trees.relaxations if self._trees else 0)) + 1

    def cheapest(self, prices: Floats) -> CheapestColumns:
        """The cheapest column of every demand. `prices`: positive, by link, in the order of `topology.links`."""
        by_demand: list[Column | None] = [None] * len(self.demands)
        costs = np.zeros(len(self.demands))
        order = np.argsort(self._sources, kind="stable")
        for part in _chunks(self._sources[order]):
            self._cheapest_paths(prices, order[part], by_demand, costs)
        if self._trees is not None:
            for column, cost in self._trees.cheapest(prices):
                by_demand[column.demand] = column
                costs[column.demand] = cost
        columns = tuple(column for column in by_demand if column is not None)
        assert len(columns) == len(self.demands), "a demand that no channel can serve"
        return CheapestColumns(columns, costs)

    def _cheapest_paths(
        self, prices: Floats, singles: Ints, by_demand: list[Column | None], costs: Floats
    ) -> None:
        """Enter the cheapest paths of the demands `self._single[singles]` and their costs."""
        sources, column = np.unique(self._sources[singles], return_inverse=True)
        ends = self._ends[singles]
        best = np.full(len(singles), np.inf)
        chosen = np.zeros(len(singles), np.int64)
        last = np.zeros(len(singles), np.int64)
        relaxed = [relax(channel, prices[channel.link], sources) for channel in self.channels]
        for v, (channel, costs_to) in enumerate(zip(self.channels, relaxed, strict=True)):
            entering = channel.entering[ends]
            choices = costs_to[entering, column[:, None]]
            pick = choices.argmin(axis=1)
            cost = choices[np.arange(len(singles)), pick]
            better = cost < best * (1 - 1e-12)
            best = np.where(better, cost, best)
            chosen[better] = v
            last = np.where(better, entering[np.arange(len(singles)), pick], last)
        for v, (channel, costs_to) in enumerate(zip(self.channels, relaxed, strict=True)):
            served = np.flatnonzero((chosen == v) & np.isfinite(best))
            paths = trace(channel, costs_to, column[served], sources[column[served]], last[served])
            for i, links in zip(served.tolist(), paths, strict=True):
                demand = int(self._single[singles[i]])
                by_demand[demand] = Column(demand, v, links, (links,))
        costs[self._single[singles]] = best


def _chunks(sources: Ints) -> list[slice]:
    """Ranges of a sorted list of sources with at most `_CHUNK` different ones in each."""
    if not len(sources):
        return []
    rank = np.cumsum(np.concatenate([[0], np.diff(sources) != 0])) // _CHUNK
    starts = [0, *(np.flatnonzero(np.diff(rank)) + 1).tolist(), len(sources)]
    return [slice(a, b) for a, b in pairwise(starts)]
