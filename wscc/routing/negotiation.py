"""Negotiated congestion: a pool of good columns, and link prices that prove a bound.

Prices of links rise with their loads, every demand answers with its cheapest column (its best response), and the
traffic moves part of the way towards the responses; the columns are pooled.

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
from wscc.routing.search import CheapestColumns

# How sharply prices follow loads: exp(sharpness x load / largest load), rising from round to round.
_SHARPNESS: Final = (10.0, 1.15, 200.0)  # first, growth, greatest
_STEPS: Final = (np.arange(1, 65) / 64) ** 2
# Every link costs something, so that of equally good paths the shortest is taken.
_LEAST_PRICE: Final = 1e-5


@dataclass(frozen=True, eq=False)
class Prices:
    """Link prices of a byte time (they sum to 1), and the bound they prove: no routing over the paths that were
    searched loads every link with less than `bound` byte times. Where all links are alike a byte takes one."""

    prices: Floats
    bound: float


class PathSearch(Protocol):
    """A search of cheapest columns: `search.Search`, `unrestricted.UnrestrictedSearch`."""

    def cheapest(self, prices: Floats) -> CheapestColumns: ...


def negotiate(
    search: PathSearch, pool: Pool, amounts: Floats, fixed: Floats, load: Floats, rounds: int
) -> tuple[Floats, Prices]:
    """The loads after `rounds` best responses, all added to the pool, and the prices that prove most.

    `load`: positive bytes by link to start from, `fixed` (those of pinned flows) included; `amounts`: bytes by
    demand."""
    first, growth, last = _SHARPNESS
    best = Prices(np.full(len(load), 1 / len(load)), 0.0)
    for i in range(rounds):
        sharpness = min(first * growth**i, last)
        response = best_response(search, pool, amounts, fixed, soft_prices(load, sharpness))
        best = response.proof if response.proof.bound > best.bound else best
        load = _moved(load, response.load, sharpness)
    return load, best


@dataclass(frozen=True, eq=False)
class BestResponse:
    """The loads (bytes by link) if every demand took its cheapest column, and the bound that the prices prove."""

    load: Floats
    proof: Prices


def best_response(
    search: PathSearch, pool: Pool, amounts: Floats, fixed: Floats, prices: Floats
) -> BestResponse:
    """Add the cheapest column of every demand to the pool. `prices` by link, none negative, not all zero."""
    prices = np.maximum(prices, _LEAST_PRICE * prices.max())
    prices /= prices.sum()
    byte_times = pool.topology.byte_times
    cheapest = search.cheapest(prices if byte_times is None else prices * np.array(byte_times))
    columns = pool.weighed(cheapest.columns)
    pool.add(columns)
    bound = float(cheapest.costs @ amounts + prices @ fixed)
    return BestResponse(fixed + loads_of(columns, amounts, len(fixed)), Prices(prices, bound))


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
