"""Paths for all_to_all that minimise the largest load of a link, and link lengths that prove a bound of it.

The method is that of the router: trees of cheapest paths are gathered by negotiated congestion
(`routing.negotiation`), a linear programme shares each die's traffic among its trees (`routing.split`), and its duals
price further trees (column generation, with one block for each source: G. Dantzig, P. Wolfe, 1960) until they
prove that no routing is better.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from wscc.collectives.plan import Request
from wscc.machine.topology import Path, Topology
from wscc.routing.bound import whole_lengths
from wscc.routing.certificate import certify
from wscc.routing.columns import Pool, loads_of
from wscc.routing.cuts import best_simple_cut
from wscc.routing.flows import Demand, Floats, Flow
from wscc.routing.negotiation import best_response, negotiate
from wscc.routing.scatter import ScatterSearch
from wscc.routing.split import Split, split

_RESPONSES: Final = 12
_ROUNDS: Final = 30
_CLOSE: Final = 1.001  # of what the prices prove: good enough
# Hops of all trees together, beyond which no more are made, and the least share of a tree that is kept.
_CROSSINGS: Final = 2_000_000
_LEAST: Final = 1e-3
# Optimal solutions that are mixed, and the cost of a column of an earlier one: far less than a better load gains.
_MIXED: Final = 4
_PENALTY: Final = 5e-4

# Of one die: (share, path to each other die); shares sum to 1, the largest first.
Shares = list[tuple[float, dict[int, Path]]]


@dataclass(frozen=True, eq=False)
class Balance:
    """Trees of every die, where every die sends 1 to every other: `few` of one solution, `trees` of the
    mean of several.

    `max_load` is the load of the fullest link for `trees`, and `lengths` (by link) prove a bound on it.
    """

    few: dict[int, Shares]
    trees: dict[int, Shares]
    max_load: float
    lengths: tuple[int, ...]


def pair_flows(request: Request) -> list[Flow]:
    """The flows of an all_to_all: from every die to every other."""
    shards = list(zip(request.dies, request.shards, strict=True))
    return [Flow(a, b, n) for a in request.dies for b, n in shards if a != b and n]


@lru_cache(maxsize=8)
def balance(topology: Topology) -> Balance:
    """The balance of a topology, within 0.1 % of the proven bound unless more trees would take long."""
    dies = topology.live
    if len(dies) < 2:
        nothing: dict[int, Shares] = {d: [] for d in dies}
        return Balance(nothing, nothing, 0.0, (0,) * len(topology.links))
    return _Balancing(topology).run()


class _Balancing:
    """Column generation for `balance`: the pool of trees, the loads, and the prices that prove the best bound."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        dies, links = topology.live, len(topology.links)
        self.demands = [_to_all_others(dies, d) for d in dies]
        self.search = ScatterSearch(topology, self.demands)
        self.pool = Pool(len(dies), topology)
        self.amounts, self.free = np.ones(len(dies)), np.zeros(links)
        first = best_response(self.search, self.pool, self.amounts, self.free, np.full(links, 1 / links))
        self.load: Floats = np.maximum(first.load, 1e-9)
        self.proof = first.proof

    def run(self) -> Balance:
        self._negotiate()
        max_load, shares = float(self.load.max()), np.ones(len(self.demands))
        for _ in range(_ROUNDS):
            solution = self._split(max_load)
            if solution is None:
                break
            shares, max_load = solution.shares, self._max_load(solution.shares)
            self._prove(solution.prices)
            if max_load <= _CLOSE * self.proof.bound or self._is_long():
                break
        mixed = self._mixed(max_load)
        return Balance(self._trees(shares), self._trees(mixed), self._max_load(mixed), self._lengths())

    def _negotiate(self) -> None:
        rounds = max(2, min(_RESPONSES, _CROSSINGS // int(self.load.sum())))
        self.load, proof = negotiate(self.search, self.pool, self.amounts, self.free, self.load, rounds)
        self.proof = max(self.proof, proof, key=lambda p: p.bound)

    def _split(self, scale: float, penalty: Floats | None = None) -> Split | None:
        columns = self.pool.columns
        return split(columns, np.zeros(len(columns)), self.amounts, self.free, scale, penalty)

    def _prove(self, prices: Floats) -> None:
        proof = best_response(self.search, self.pool, self.amounts, self.free, prices).proof
        self.proof = max(self.proof, proof, key=lambda p: p.bound)

    def _is_long(self) -> bool:
        return len(self.pool.columns) / len(self.demands) * float(self.load.sum()) > _CROSSINGS

    def _max_load(self, shares: Floats) -> float:
        return float(loads_of(self.pool.columns[: len(shares)], shares, len(self.free)).max())

    def _mixed(self, scale: float) -> Floats:
        """The mean of the shares of several optimal solutions, each unlike those before.

        A link then carries bytes from near and far, so that it has work from the start and until the end."""
        total = np.zeros(len(self.pool.columns))
        for n in range(_MIXED):
            solution = self._split(scale, total * (_PENALTY / len(self.demands)))
            if solution is None:
                return total / n if n else np.ones(len(self.demands))
            total = total + solution.shares
        return total / _MIXED

    def _trees(self, shares: Floats) -> dict[int, Shares]:
        return {
            demand.source: sorted(self._trees_of(i, demand, shares), key=lambda tree: -tree[0])
            for i, demand in enumerate(self.demands)
        }

    def _trees_of(self, i: int, demand: Demand, shares: Floats) -> Iterator[tuple[float, dict[int, Path]]]:
        columns = [j for j in self.pool.by_demand[i] if j < len(shares) and shares[j] >= _LEAST]
        total = sum(float(shares[j]) for j in columns)
        for j in columns:
            paths = self.pool.columns[j].die_paths(self.topology)
            yield float(shares[j]) / total, dict(zip(demand.destinations, paths, strict=True))

    def _lengths(self) -> tuple[int, ...]:
        """The prices found or those of a simple cut, as whole lengths: the ones that prove most."""
        flows = [Flow(d.source, end, 1 << 20) for d in self.demands for end in d.destinations]
        singles = [Demand(f.source, 1, (f.destination,), ((i,),)) for i, f in enumerate(flows)]
        cut = best_simple_cut(self.topology, singles, self.free)
        proofs = [certify(self.topology, flows, whole_lengths(p.prices)) for p in (cut, self.proof)]
        return max(proofs, key=lambda c: c.bytes).lengths


def _to_all_others(dies: Path, source: int) -> Demand:
    others = tuple(d for d in dies if d != source)
    return Demand(source, 1, others, tuple((d,) for d in others))
