"""TCME, the router: lowers the largest load of a link in five steps, round by round.

1. Measure: initial routes (XY) and the load of every link.
2. Find the most congested link; a round must lower its load.
3. Merge: flows of the same bytes become multicast trees.
4. Detour and split: negotiated congestion finds paths around full links (`negotiation`), a linear programme gives
   each path its share (`split`), and the shares become whole bytes in few parts (`rounding`).
5. Accept the routes if the largest load fell, or if it stayed and all loads together fell; stop by the rules of
   `Limits`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from wscc.machine.topology import Hop, Topology
from wscc.routing.channels import CHANNELS
from wscc.routing.columns import Column, Pool
from wscc.routing.cuts import best_simple_cut
from wscc.routing.flows import Demand, Floats, Flow, Ints, Piece, check_flows
from wscc.routing.initial import InitialRoutes, Ways, candidate_detours, initial_routes
from wscc.routing.limits import Limits
from wscc.routing.loads import link_loads
from wscc.routing.negotiation import Prices, best_response, negotiate
from wscc.routing.rounding import fractional_load, round_shares
from wscc.routing.search import Search
from wscc.routing.split import Split, split

# Best responses in the first round, in later ones, and in any where a search takes long.
_RESPONSES: Final = (12, 4, 3)
_WORK: Final = 40_000_000
# Crossings of links by all candidates together, up to which the linear programme is solved.
_CROSSINGS: Final = 600_000


@dataclass(frozen=True, slots=True)
class Round:
    """A round of the router: the most congested link before it, the largest load it reached, and whether that was
    accepted."""

    hottest: Hop
    max_link_bytes: int
    accepted: bool


@dataclass(frozen=True, eq=False)
class Routing:
    """Routes for all flows. `load` and `initial_load` are by link, in the order of `topology.links`: bytes, or byte
    times of the wafer's own links where not all are alike (`loads.in_byte_times`); `prices`
    are link prices of the search that `bound.lower_bound` starts from."""

    topology: Topology
    flows: tuple[Flow, ...]
    initial: tuple[Piece, ...]
    pieces: tuple[Piece, ...]
    initial_load: Ints
    load: Ints
    rounds: tuple[Round, ...] = ()
    prices: tuple[Floats, ...] = ()

    @property
    def max_link_bytes(self) -> int:
        return int(self.load.max(initial=0))

    @property
    def initial_max_link_bytes(self) -> int:
        return int(self.initial_load.max(initial=0))


def route(
    topology: Topology, flows: Sequence[Flow], limits: Limits | None = None, *, adaptive: bool = True,
    channels: int | Ways = CHANNELS,
) -> Routing:  # fmt: skip
    """Route the flows; never worse than the initial routes, which are the result unless `adaptive`.

    Every path is one of live links on a virtual channel out of `channels` (how many to make at most, or ways
    that join the ends of all flows) whose dependencies have no cycle. Raises `CompileError` as `check_flows` does. The
    same arguments give the same result.
    """
    check_flows(topology, flows)
    initial = initial_routes(topology, flows, channels)
    load = link_loads(topology, initial.pieces, initial.numbers)
    plain = Routing(topology, tuple(flows), initial.pieces, initial.pieces, load, load)
    limits = limits or Limits()
    if not adaptive or _is_enough(plain, limits):
        return plain
    demands, columns = initial.candidates(flows)
    if not demands:
        return plain
    rounds = _Rounds(plain, initial, demands, columns, limits)
    best = rounds.run()
    is_close = best.max_link_bytes <= rounds.cut.bound * (1 + limits.close)
    if is_close or topology.is_whole_mesh or not isinstance(channels, int):
        return best
    detours = candidate_detours(topology, demands, rounds.fixed, rounds.load)
    initial = initial_routes(topology, flows, channels, detours)
    plain = replace(plain, initial=initial.pieces, pieces=initial.pieces)
    if not np.array_equal(link_loads(topology, initial.pieces, initial.numbers), load):
        return best
    second = _Rounds(plain, initial, *initial.candidates(flows), limits).run()
    return min(best, second, key=lambda routing: routing.max_link_bytes)


def _is_enough(plain: Routing, limits: Limits) -> bool:
    """Whether no link is too busy on the initial routes, and no flows of the same bytes are to be merged."""
    return plain.max_link_bytes <= limits.enough_bytes and all(f.content is None for f in plain.flows)


class _Rounds:
    """The state between rounds: the candidates, the loads of the last fractional routing, the prices that prove the
    best bound, and the best routing so far."""

    def __init__(
        self,
        plain: Routing,
        initial: InitialRoutes,
        demands: Sequence[Demand],
        columns: Sequence[Column],
        limits: Limits,
    ) -> None:
        self.best, self.initial, self.demands, self.limits = plain, initial, demands, limits
        self.sizes = [d.bytes for d in demands]
        self.amounts = np.array(self.sizes, float)
        self.pinned = tuple(p for p in initial.pieces if plain.flows[p.demand.flows[0][0]].pinned)
        self.fixed = link_loads(initial.topology, self.pinned, initial.numbers).astype(float)
        self.search = Search(initial.channels, demands)
        self.pool = Pool(len(demands), initial.topology)
        self.pool.add(self.pool.weighed(columns))
        self.cut = best_simple_cut(initial.topology, demands, self.fixed)
        self.proof = self.cut
        self.initial_load = plain.load
        self.load = plain.load.astype(float)
        self.response_proof = Prices(np.ones(len(self.fixed)), 0.0)  # as `proof`, of best responses alone
        self.duals: Floats | None = None
        self.is_exact = False

    def run(self) -> Routing:
        rounds: list[Round] = []
        slow = 0
        while len(rounds) < self.limits.max_iter and slow < self.limits.slow_rounds and not self._is_done():
            before = self.best.max_link_bytes
            hottest = self.initial.links[int(self.best.load.argmax())]
            self._respond()
            pieces = self._rounded()
            load = link_loads(self.initial.topology, pieces, self.initial.numbers)
            reached = int(load.max())
            if accepted := (reached, int(load.sum())) < (before, int(self.best.load.sum())):
                self.best = replace(self.best, pieces=pieces, load=load)
            rounds.append(Round(hottest, reached, accepted))
            slow = 0 if before - reached >= self.limits.slow_gain * before else slow + 1
        prices = tuple(
            p for p in (self.duals, self.response_proof.prices, self.proof.prices) if p is not None
        )
        return replace(self.best, rounds=tuple(rounds), prices=prices)

    def _is_done(self) -> bool:
        """No link is too busy, or the load is proven near the least; not before flows of the same bytes are merged."""
        if self.best.load is self.initial_load and any(len(d.destinations) > 1 for d in self.demands):
            return self.is_exact
        enough = max(self.limits.enough_bytes, self.proof.bound * (1 + self.limits.close))
        return self.is_exact or self.best.max_link_bytes <= enough

    def _respond(self) -> None:
        """Generate columns: at the duals of the last split, then by negotiation from its loads."""
        most = _RESPONSES[0] if self.duals is None else _RESPONSES[1]
        if self.duals is not None:
            self._prove(best_response(self.search, self.pool, self.amounts, self.fixed, self.duals).proof)
        shortest = sum(len(self.pool.columns[indices[0]].links) for indices in self.pool.by_demand)
        responses = max(_RESPONSES[2], min(most, _WORK // self.search.work, _CROSSINGS // max(1, shortest)))
        self.load, proof = negotiate(self.search, self.pool, self.amounts, self.fixed, self.load, responses)
        self._prove(proof)

    def _prove(self, proof: Prices) -> None:
        if proof.bound > self.response_proof.bound:
            self.response_proof = proof
        if proof.bound > self.proof.bound:
            self.proof = proof

    def _split(self, scale: float) -> Split | None:
        """The best shares of the columns generated so far; None where these are too many."""
        columns = self.pool.columns
        if sum(len(c.links) for c in columns) > _CROSSINGS:
            return None
        return split(columns, np.zeros(len(columns)), self.amounts, self.fixed, scale)

    def _rounded(self) -> tuple[Piece, ...]:
        """The pieces of a routing: those of pinned flows, and columns of the pool with whole bytes."""
        scale = float(self.load.max())
        solution = self._split(scale)
        if solution is not None:
            self.duals, scale = solution.prices, solution.load
            self.load = fractional_load(self.pool, self.amounts, self.fixed, solution.shares)
            self._prove(
                best_response(self.search, self.pool, self.amounts, self.fixed, solution.prices).proof
            )
            self.is_exact = solution.load <= self.proof.bound * (1 + self.limits.close)
        shares = None if solution is None else solution.shares
        parts = round_shares(self.pool, self.sizes, self.fixed, shares, scale, self.limits)
        topology = self.initial.topology
        return (
            *self.pinned,
            *(
                Piece(self.demands[p.column.demand], p.bytes, p.column.channel, p.column.die_paths(topology))
                for p in parts
            ),
        )
