"""TCME: the router in five steps, round by round, until nothing is left to gain.

1. Measure: initial routes (XY) and the load of every link.
2. Find the most congested link; its load is what a round must lower.
3. Merge: flows of the same bytes become multicast trees.
4. Detour and split: negotiated congestion finds ways around what is full (`spread`), a linear programme says how
   much takes which (`split`), and the shares become whole bytes in few parts (`settle`).
5. Accept the routes if the largest load fell, or if it stayed and all loads together fell; stop by the rules of
   `Limits`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from wscc.machine.topology import Topology
from wscc.routing.channels import CHANNELS, Channel, is_whole
from wscc.routing.columns import Column, Pool
from wscc.routing.cuts import best_simple_cut
from wscc.routing.flows import Demand, Floats, Flow, Ints, Piece, check_flows
from wscc.routing.initial import Start, start, wished_paths
from wscc.routing.limits import Limits
from wscc.routing.loads import Hop, link_bytes
from wscc.routing.search import Search
from wscc.routing.settle import fractional_load, settle
from wscc.routing.split import Split, split
from wscc.routing.spread import Prices, bid, spread

# Bids in the first round, in later ones, and in any where a search takes long.
_BIDS: Final = (12, 4, 3)
_WORK: Final = 40_000_000
# Crossings of links by all candidates together, up to which the linear programme is solved.
_CROSSINGS: Final = 600_000


@dataclass(frozen=True, slots=True)
class Round:
    """What one round tried: the most congested link before it, the largest load it reached, whether that was
    accepted."""

    hottest: Hop
    max_link_bytes: int
    accepted: bool


@dataclass(frozen=True, eq=False)
class Routing:
    """Routes for all flows. `load` and `initial_load` are bytes by link, in the order of `topology.links`;
    `prices` are link prices that came up on the way, good starting points for a bound."""

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
    channels: int | Sequence[Channel] = CHANNELS,
) -> Routing:  # fmt: skip
    """Route the flows; never worse than the initial routes, which are the answer unless `adaptive`.

    Every path is one of live links on a virtual channel out of `channels` (1 or 2, or channels made before that
    join the ends of all flows) whose dependencies have no cycle. Raises `CompileError` as `check_flows` does. The
    same arguments give the same answer.
    """
    check_flows(topology, flows)
    begun = start(topology, flows, channels)
    load = link_bytes(begun.pieces, begun.numbers)
    plain = Routing(topology, tuple(flows), begun.pieces, begun.pieces, load, load)
    demands, columns = begun.candidates(flows) if adaptive else ((), [])
    if not demands:
        return plain
    limits = limits or Limits()
    rounds = _Rounds(plain, begun, demands, columns, limits)
    best = rounds.run()
    is_close = best.max_link_bytes <= rounds.cut.bound * (1 + limits.close)
    if is_close or is_whole(topology) or not isinstance(channels, int):
        return best
    wishes = wished_paths(topology, demands, rounds.fixed, rounds.load)
    begun = start(topology, flows, channels, wishes)
    again = replace(plain, initial=begun.pieces, pieces=begun.pieces)
    if not np.array_equal(link_bytes(begun.pieces, begun.numbers), load):
        return best
    second = _Rounds(again, begun, *begun.candidates(flows), limits).run()
    return min(best, second, key=lambda routing: routing.max_link_bytes)


class _Rounds:
    """What passes from round to round: the candidates, the loads of the best fractional routing, the prices that
    proved most, and the best routing so far."""

    def __init__(
        self,
        plain: Routing,
        begun: Start,
        demands: Sequence[Demand],
        columns: Sequence[Column],
        limits: Limits,
    ) -> None:
        self.best, self.begun, self.demands, self.limits = plain, begun, demands, limits
        self.sizes = [d.bytes for d in demands]
        self.amounts = np.array(self.sizes, float)
        self.pinned = tuple(p for p in begun.pieces if plain.flows[p.demand.flows[0][0]].pinned)
        self.fixed = link_bytes(self.pinned, begun.numbers).astype(float)
        self.search = Search(begun.channels, demands)
        self.pool = Pool(len(demands), begun.links)
        self.pool.add(columns)
        self.cut = best_simple_cut(begun.topology, demands, self.fixed)
        self.proof = self.cut
        self.initial_load = plain.load
        self.load = plain.load.astype(float)
        self.asked = Prices(np.ones(len(self.fixed)), 0.0)  # as `proof`, of bids alone
        self.duals: Floats | None = None
        self.is_exact = False

    def run(self) -> Routing:
        rounds: list[Round] = []
        slow = 0
        while len(rounds) < self.limits.max_iter and slow < self.limits.slow_rounds and not self._is_done():
            before = self.best.max_link_bytes
            hottest = self.begun.links[int(self.best.load.argmax())]
            self._bid()
            pieces = self._settled()
            load = link_bytes(pieces, self.begun.numbers)
            reached = int(load.max())
            if accepted := (reached, int(load.sum())) < (before, int(self.best.load.sum())):
                self.best = replace(self.best, pieces=pieces, load=load)
            rounds.append(Round(hottest, reached, accepted))
            slow = 0 if before - reached >= self.limits.slow_gain * before else slow + 1
        prices = tuple(p for p in (self.duals, self.asked.prices, self.proof.prices) if p is not None)
        return replace(self.best, rounds=tuple(rounds), prices=prices)

    def _is_done(self) -> bool:
        """No link is too busy, or nothing better is left to find; initial routes are never merged."""
        if self.best.load is self.initial_load and any(len(d.destinations) > 1 for d in self.demands):
            return self.is_exact
        enough = max(self.limits.enough_bytes, self.proof.bound * (1 + self.limits.close))
        return self.is_exact or self.best.max_link_bytes <= enough

    def _bid(self) -> None:
        """Look for candidates: at the prices of the last split, then by negotiation from its loads."""
        most = _BIDS[0] if self.duals is None else _BIDS[1]
        if self.duals is not None:
            self._prove(bid(self.search, self.pool, self.amounts, self.fixed, self.duals).proof)
        shortest = sum(len(self.pool.columns[of[0]].links) for of in self.pool.of)
        bids = max(_BIDS[2], min(most, _WORK // self.search.work, _CROSSINGS // max(1, shortest)))
        self.load, proof = spread(self.search, self.pool, self.amounts, self.fixed, self.load, bids)
        self._prove(proof)

    def _prove(self, proof: Prices) -> None:
        if proof.bound > self.asked.bound:
            self.asked = proof
        if proof.bound > self.proof.bound:
            self.proof = proof

    def _split(self, scale: float) -> Split | None:
        """The best shares of the columns found so far; None where these are too many."""
        columns = self.pool.columns
        if sum(len(c.links) for c in columns) > _CROSSINGS:
            return None
        return split(columns, np.zeros(len(columns)), self.amounts, self.fixed, scale)

    def _settled(self) -> tuple[Piece, ...]:
        """Whole routes out of the candidates, with the pinned ones."""
        scale = float(self.load.max())
        best = self._split(scale)
        if best is not None:
            self.duals, scale = best.prices, best.load
            self.load = fractional_load(self.pool, self.amounts, self.fixed, best.shares)
            self._prove(bid(self.search, self.pool, self.amounts, self.fixed, best.prices).proof)
            self.is_exact = best.load <= self.proof.bound * (1 + self.limits.close)
        shares = None if best is None else best.shares
        parts = settle(self.pool, self.sizes, self.fixed, shares, scale, self.limits)
        topology = self.begun.topology
        return (
            *self.pinned,
            *(
                Piece(self.demands[p.column.demand], p.bytes, p.column.channel, p.column.die_paths(topology))
                for p in parts
            ),
        )
