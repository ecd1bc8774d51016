"""Which clusters of dies would load the same links at the same time, and how far apart they should start."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Final

import networkx as nx
import numpy as np

from wscc.analysis.cost import LinkRates
from wscc.ir.die_arrays import DieArray, as_array
from wscc.ir.fabric import Transfer
from wscc.ir.module import Module
from wscc.ir.per_die import NOBODY
from wscc.ir.routes import Hop, crossings
from wscc.ir.step import Call, Loop

# A link is hot from this share of the most that any link carries in the phase.
HOT: Final = Fraction(9, 10)
PICOSECOND: Final = Fraction(1, 10**12)

# Bytes of a phase by link and by cluster.
Loads = dict[Hop, dict[int, int]]


def called(statement: Call | Loop) -> frozenset[str]:
    """The procedures that a statement of a step calls."""
    if isinstance(statement, Call):
        return frozenset({statement.procedure})
    return frozenset().union(*map(called, statement.body))


@dataclass(frozen=True)
class Conflicts:
    """Clusters and conflicts of a routed module that still has its transfers, without its delays."""

    module: Module

    def dies_of(self, stage: int) -> slice:
        """The logical dies of a stage."""
        each = self.module.dies_used // self.module.stages
        return slice(stage * each, (stage + 1) * each)

    def clusters(self, procedures: Iterable[str]) -> DieArray:
        """By die, the first die of those with which it exchanges messages, directly or through others."""
        joined = nx.utils.UnionFind(range(self.module.dies_used))
        for name in procedures:
            for pair in self._pairs[name]:
                joined.union(*pair)
        first = np.arange(self.module.dies_used)
        for members in joined.to_sets():
            first[list(members)] = min(members)
        return first

    def delays(self, procedures: frozenset[str], stage: int) -> DieArray:
        """By die, by how many picoseconds a stage starts later with calls of these procedures; 0 on other stages."""
        clusters = self.clusters(procedures)
        own = self.dies_of(stage)
        meeting: nx.Graph[int] = nx.Graph()
        longest = Fraction(0)
        for transfers in self._phases(procedures):
            loads = self._loads(transfers, clusters, own)
            most = max((sum(by.values()) for by in loads.values()), default=0)
            for by in loads.values():
                if len(by) > 1 and sum(by.values()) >= HOT * most:
                    longest = max(longest, self._seconds(max(by.values())))
                    meeting.add_edges_from((a, b) for a in by for b in by if a < b)
        colours = _greedy(meeting)
        delays = np.zeros(self.module.dies_used, np.int64)
        unit = -int(-longest / PICOSECOND // 1)
        delays[own] = [colours.get(int(g), 0) * unit for g in clusters[own]]
        return delays

    @cached_property
    def _pairs(self) -> dict[str, list[tuple[int, int]]]:
        """By procedure, who sends to whom."""
        dies = self.module.dies_used
        return {
            p.name: sorted({pair for t in p.body if isinstance(t, Transfer) for pair in t.pairs(dies)})
            for p in self.module.procedures
        }

    def _phases(self, procedures: frozenset[str]) -> list[list[Transfer]]:
        phases: dict[tuple[str, int], list[Transfer]] = defaultdict(list)
        for p in self.module.procedures:
            for t in p.body:
                if p.name in procedures and isinstance(t, Transfer) and t.to != NOBODY and not t.is_local:
                    phases[p.name, t.phase].append(t)
        return list(phases.values())

    def _loads(self, transfers: Iterable[Transfer], clusters: DieArray, own: slice) -> Loads:
        """What the dies of a stage send."""
        loads: Loads = defaultdict(lambda: defaultdict(int))
        for t in transfers:
            route = as_array(t.route, self.module.dies_used)[own]
            sending = route != NOBODY
            kinds = np.stack([route[sending], clusters[own][sending]], axis=1)
            for (number, cluster), times in zip(*np.unique(kinds, axis=0, return_counts=True), strict=True):
                parts = self.module.routes[number].parts(t.read.bytes)
                for leg, hop in self._crossed[number]:
                    loads[hop][int(cluster)] += parts[leg] * int(times)
        return loads

    @cached_property
    def _crossed(self) -> tuple[tuple[tuple[int, Hop], ...], ...]:
        return crossings(self.module.routes)

    def _seconds(self, amount: int) -> Fraction:
        """That messages of so many bytes keep a link from others."""
        rates = LinkRates.exact(self.module.machine.link)
        return rates.busy(rates.times().hold(amount))


def _greedy(meeting: nx.Graph[int]) -> dict[int, int]:
    """Each cluster, in order, gets the first colour that no neighbour has."""
    colours: dict[int, int] = {}
    for cluster in sorted(meeting):
        taken = {colours[other] for other in meeting[cluster] if other in colours}
        colours[cluster] = next(c for c in range(len(taken) + 1) if c not in taken)
    return colours
