"""Negotiated congestion: links that carry much become dear, every demand bids for its cheapest way, and the
traffic moves part of the way towards the bids. What it leaves behind is a pool of good candidates.

Multiplicative prices as in N. Young, "Randomized rounding without solving the linear program", SODA 1995, and
A. Goldberg et al., "An implementation of a combinatorial approximation algorithm for minimum-cost multicommodity
flow", IPCO 1998: a Frank-Wolfe step on the soft maximum of the loads, with a line search. The name, and prices
that remember earlier rounds, are L. McMurchie and C. Ebeling's (PathFinder, FPGA 1995).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from wscc.routing.columns import Pool, loads_of
from wscc.routing.flows import Floats
from wscc.routing.search import Found

# How sharply prices follow loads: exp(sharpness x load / largest load), rising from round to round.
_SHARPNESS: Final = (10.0, 1.15, 200.0)  # first, growth, greatest
_STEPS: Final = (np.arange(1, 65) / 64) ** 2
# Every link costs something, so that of equally good ways the shortest is taken.
_LEAST_PRICE: Final = 1e-5


@dataclass(frozen=True, eq=False)
class Prices:
    """Link prices (they sum to 1), and what they prove: no way of sending the demands over the ways that were
    searched loads every link with less than `bound` bytes."""

    prices: Floats
    bound: float


class Finder(Protocol):
    """What looks for cheapest ways: `search.Search`, `free.FreeSearch`."""

    def cheapest(self, prices: Floats) -> Found: ...


def spread(
    search: Finder, pool: Pool, amounts: Floats, fixed: Floats, load: Floats, rounds: int
) -> tuple[Floats, Prices]:
    """Bid `rounds` times from the positive loads `load` (bytes by link, `fixed` included), adding all bids to
    the pool. `amounts`: bytes by demand. The loads then, and the prices that prove most."""
    first, growth, last = _SHARPNESS
    best = Prices(np.full(len(load), 1 / len(load)), 0.0)
    for i in range(rounds):
        sharpness = min(first * growth**i, last)
        asked = bid(search, pool, amounts, fixed, soft_prices(load, sharpness))
        best = asked.proof if asked.proof.bound > best.bound else best
        load = _moved(load, asked.load, sharpness)
    return load, best


@dataclass(frozen=True, eq=False)
class Bid:
    """The loads (bytes by link) if every demand took its cheapest way, and what its prices prove."""

    load: Floats
    proof: Prices


def bid(search: Finder, pool: Pool, amounts: Floats, fixed: Floats, prices: Floats) -> Bid:
    """Add the cheapest way of every demand to the pool. `prices` by link, none negative, not all zero."""
    prices = np.maximum(prices, _LEAST_PRICE * prices.max())
    prices /= prices.sum()
    found = search.cheapest(prices)
    pool.add(found.columns)
    bound = float(found.costs @ amounts + prices @ fixed)
    return Bid(fixed + loads_of(found.columns, amounts, len(fixed)), Prices(prices, bound))


def soft_prices(load: Floats, sharpness: float) -> Floats:
    """The gradient of the soft maximum of the loads: it sums to 1."""
    weight: Floats = np.exp(sharpness * (load / load.max() - 1))
    prices: Floats = weight / weight.sum()
    return prices


def _moved(load: Floats, target: Floats, sharpness: float) -> Floats:
    """The point between the two loads where the soft maximum is least, of `_STEPS`."""
    points = load + _STEPS[:, None] * (target - load)
    scaled = sharpness / load.max() * points
    top = scaled.max(axis=1)
    soft = top + np.log(np.exp(scaled - top[:, None]).sum(axis=1))
    best: Floats = points[int(soft.argmin())]
    return best
