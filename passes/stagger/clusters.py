"""Clusters of dies that load the same links at the same time, and the delays between their starts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Final

import numpy as np

from wscc.analysis.cost import Rates
from wscc.disjoint_sets import DisjointSets
from wscc.ir.die_arrays import DieArray, as_array
from wscc.ir.fabric import Transfer
from wscc.ir.module import Module
from wscc.ir.per_die import NOBODY
from wscc.ir.routes import Hop, crossings
from wscc.ir.step import Call, Loop

# A link is hot from this share of the bytes that the most loaded link carries in the phase.
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
        count = self.module.dies_used // self.module.stages
        return slice(stage * count, (stage + 1) * count)

    def clusters(self, procedures: Iterable[str]) -> DieArray:
        """By die, the first die of its cluster: those with which it exchanges messages, directly or through others."""
        sets = DisjointSets(range(self.module.dies_used))
        for name in procedures:
            for pair in self._pairs[name]:
                sets.union(*pair)
        first_dies = np.arange(self.module.dies_used)
        for members in sets.to_sets():
            first_dies[list(members)] = min(members)
        return first_dies

    def delays(self, procedures: frozenset[str], stage: int) -> DieArray:
        """By die, the delay in picoseconds of its start with calls of `procedures` on `stage`; 0 on other stages."""
        clusters = self.clusters(procedures)
        dies = self.dies_of(stage)
        conflicts: dict[int, set[int]] = defaultdict(set)
        longest = Fraction(0)
        for transfers in self._phases(procedures):
            loads = self._loads(transfers, clusters, dies)
            busy = {hop: self._busy(hop, sum(by_cluster.values())) for hop, by_cluster in loads.items()}
            peak = max(busy.values(), default=Fraction(0))
            for hop, bytes_by_cluster in loads.items():
                if len(bytes_by_cluster) > 1 and busy[hop] >= HOT * peak:
                    longest = max(longest, self._seconds(hop, max(bytes_by_cluster.values())))
                    for cluster in bytes_by_cluster:
                        conflicts[cluster] |= bytes_by_cluster.keys() - {cluster}
        colours = _greedy(conflicts)
        delays = np.zeros(self.module.dies_used, np.int64)
        unit = -int(-longest / PICOSECOND // 1)
        delays[dies] = [colours.get(int(g), 0) * unit for g in clusters[dies]]
        return delays

    @cached_property
    def _pairs(self) -> dict[str, list[tuple[int, int]]]:
        """By procedure, the pairs (sender, receiver) of its messages."""
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

    def _loads(self, transfers: Iterable[Transfer], clusters: DieArray, dies: slice) -> Loads:
        """The bytes of `transfers` that the dies in `dies` send, by link and by cluster."""
        loads: Loads = defaultdict(lambda: defaultdict(int))
        for t in transfers:
            route = as_array(t.route, self.module.dies_used)[dies]
            sending = route != NOBODY
            route_and_cluster = np.stack([route[sending], clusters[dies][sending]], axis=1)
            for (number, cluster), times in zip(
                *np.unique(route_and_cluster, axis=0, return_counts=True), strict=True
            ):
                parts = self.module.routes[number].parts(t.read.bytes)
                for leg, hop in self._crossed[number]:
                    loads[hop][int(cluster)] += parts[leg] * int(times)
        return loads

    @cached_property
    def _crossed(self) -> tuple[tuple[tuple[int, Hop], ...], ...]:
        return crossings(self.module.routes)

    @cached_property
    def _rates(self) -> Rates[Fraction]:
        return Rates.exact(self.module.machine, self.module.die)

    def _busy(self, hop: Hop, amount: int) -> Fraction:
        """The seconds that `amount` bytes occupy a link."""
        return self._rates.between(*hop).busy(amount)

    def _seconds(self, hop: Hop, amount: int) -> Fraction:
        """The seconds that a message of `amount` bytes occupies a link."""
        rates = self._rates.between(*hop)
        return rates.busy(rates.times().hold(amount))


def _greedy(conflicts: Mapping[int, Set[int]]) -> dict[int, int]:
    """A greedy colouring: each cluster, in order, gets the first colour that no neighbour has."""
    colours: dict[int, int] = {}
    for cluster in sorted(conflicts):
        taken = {colours[other] for other in conflicts[cluster] if other in colours}
        colours[cluster] = next(c for c in range(len(taken) + 1) if c not in taken)
    return colours
