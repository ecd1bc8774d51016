"""Cheapest paths and trees at given prices of links, on every virtual channel, for all demands at once.

The allowed turns of a channel have no cycle, so that one sweep over its links in their order finds the cheapest
way from every source: whole rows of arrays at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from wscc.routing.channels import Channel
from wscc.routing.columns import Column
from wscc.routing.flows import Demand, Floats, Ints
from wscc.routing.sweep import sweep, trace
from wscc.routing.trees import Trees

_CHUNK = 512  # sources of one sweep, which bounds its memory to links x _CHUNK numbers


@dataclass(frozen=True, eq=False)
class Found:
    """The cheapest column of every demand, and its cost: for a single destination the least there is; for
    several, the least that their farthest one alone costs (so never more than any tree)."""

    columns: tuple[Column, ...]
    costs: Floats


class Search:
    """Answers for one list of demands, each of which some channel can serve."""

    def __init__(self, channels: tuple[Channel, ...], demands: Sequence[Demand]) -> None:
        self.channels = channels
        self.demands = tuple(demands)
        self._single = np.array([i for i, d in enumerate(demands) if len(d.destinations) == 1], np.int64)
        self._sources = np.array([demands[i].source for i in self._single], np.int64)
        self._ends = np.array([demands[i].destinations[0] for i in self._single], np.int64)
        several = [(i, d) for i, d in enumerate(demands) if len(d.destinations) > 1]
        self._trees = Trees(channels, several) if several else None

    @property
    def work(self) -> int:
        """A measure of the time of one search: numbers touched."""
        links = sum(channel.links for channel in self.channels)
        return links * (len(np.unique(self._sources)) + (self._trees.sweeps if self._trees else 0)) + 1

    def cheapest(self, prices: Floats) -> Found:
        """`prices`: positive, by link, in the order of `topology.links`."""
        found: list[Column | None] = [None] * len(self.demands)
        costs = np.zeros(len(self.demands))
        order = np.argsort(self._sources, kind="stable")
        for part in _chunks(self._sources[order]):
            self._cheapest_paths(prices, order[part], found, costs)
        if self._trees is not None:
            for column, cost in self._trees.cheapest(prices):
                found[column.demand] = column
                costs[column.demand] = cost
        columns = tuple(column for column in found if column is not None)
        assert len(columns) == len(self.demands), "a demand that no channel can serve"
        return Found(columns, costs)

    def _cheapest_paths(self, prices: Floats, which: Ints, found: list[Column | None], costs: Floats) -> None:
        sources, column = np.unique(self._sources[which], return_inverse=True)
        ends = self._ends[which]
        best = np.full(len(which), np.inf)
        chosen = np.zeros(len(which), np.int64)
        last = np.zeros(len(which), np.int64)
        swept = [sweep(channel, prices[channel.link], sources) for channel in self.channels]
        for v, (channel, costs_to) in enumerate(zip(self.channels, swept, strict=True)):
            entering = channel.entering[ends]
            choices = costs_to[entering, column[:, None]]
            pick = choices.argmin(axis=1)
            cost = choices[np.arange(len(which)), pick]
            better = cost < best * (1 - 1e-12)
            best = np.where(better, cost, best)
            chosen[better] = v
            last = np.where(better, entering[np.arange(len(which)), pick], last)
        for v, (channel, costs_to) in enumerate(zip(self.channels, swept, strict=True)):
            mine = np.flatnonzero((chosen == v) & np.isfinite(best))
            paths = trace(channel, costs_to, column[mine], sources[column[mine]], last[mine])
            for i, links in zip(mine.tolist(), paths, strict=True):
                demand = int(self._single[which[i]])
                found[demand] = Column(demand, v, links, (links,))
        costs[self._single[which]] = best


def _chunks(sources: Ints) -> list[slice]:
    """Ranges of a sorted list of sources with at most `_CHUNK` different ones in each."""
    if not len(sources):
        return []
    rank = np.cumsum(np.concatenate([[0], np.diff(sources) != 0])) // _CHUNK
    starts = [0, *(np.flatnonzero(np.diff(rank)) + 1).tolist(), len(sources)]
    return [slice(a, b) for a, b in pairwise(starts)]
