"""Lower bounds of the largest link load that any routing of some flows can reach, each with a certificate.

Any link prices prove a bound; the best of several are returned: those of the router, the link that pinned flows
load most, the links of a cut, and the duals of the linear programme over all paths, solved by column generation as
in the router, but over every turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from wscc.machine.topology import Topology
from wscc.routing.certificate import Certificate, certify
from wscc.routing.columns import Pool
from wscc.routing.cuts import best_block, best_simple_cut
from wscc.routing.flows import Demand, Floats, merged_demands
from wscc.routing.loads import link_numbers
from wscc.routing.negotiation import best_response, negotiate
from wscc.routing.router import Routing
from wscc.routing.split import split
from wscc.routing.unrestricted import UnrestrictedSearch

# Whole lengths are prices on this scale: fine enough for a bound within 1e-5 of that of the prices.
_SCALE: Final = 1 << 20
_CLOSE: Final = 1e-3  # a bound this near to the load of the routing is good enough
_RESPONSES: Final = 12
_ROUNDS: Final = 8
_WORK: Final = 5_000_000  # links x sources that exact checking takes seconds for
_CROSSINGS: Final = 600_000


def lower_bound(routing: Routing, unit: int = 1) -> Certificate | None:
    """The best certificate found for the flows of a routing; None where the wafer is too large to check one.

    The search stops within `_CLOSE` of the load of the routing, or where all loads are multiples of `unit` bytes
    and that of the routing is the least multiple that the certificate allows."""
    topology, flows = routing.topology, routing.flows
    if len(topology.links) * len({f.source for f in flows}) > _WORK:
        return None
    goal = routing.max_link_bytes / (1 + _CLOSE)
    best = certify(topology, flows, [0] * len(topology.links))
    for prices in _candidates(routing):
        best = max(best, certify(topology, flows, prices), key=lambda c: c.bytes)
        if best.bytes >= goal or best.bytes > routing.max_link_bytes - unit:
            break
    return best


def _candidates(routing: Routing) -> Iterator[list[int]]:
    """Whole link lengths that may prove a good bound, the cheapest to compute first."""
    yield from (_lengths(routing.topology, p) for p in routing.prices)
    demands = merged_demands(routing.flows)
    fixed = _pinned_load(routing)
    if fixed.any():
        yield [int(i == fixed.argmax()) for i in range(len(fixed))]
    if demands:
        yield _lengths(routing.topology, best_simple_cut(routing.topology, demands, fixed).prices)
        yield _lengths(routing.topology, best_block(routing.topology, demands, fixed).prices)
        yield _lengths(routing.topology, _unrestricted_prices(routing, demands, fixed))


def _lengths(topology: Topology, prices: Floats) -> list[int]:
    """Whole lengths of links for a byte, from prices for a byte time."""
    return whole_lengths(prices if topology.byte_times is None else prices * np.array(topology.byte_times))


def _unrestricted_prices(routing: Routing, demands: Sequence[Demand], fixed: Floats) -> Floats:
    """Link prices of the best bound by column generation over all paths, to the farthest destination of each demand."""
    search = UnrestrictedSearch(routing.topology, demands)
    pool = Pool(len(demands), routing.topology)
    amounts = np.array([d.bytes for d in demands], float)
    load, best = negotiate(search, pool, amounts, fixed, routing.initial_load.astype(float), _RESPONSES)
    for _ in range(_ROUNDS):
        if sum(len(c.links) for c in pool.columns) > _CROSSINGS:
            break
        solution = split(pool.columns, np.zeros(len(pool.columns)), amounts, fixed, float(load.max()))
        if solution is None:
            break
        proof = best_response(search, pool, amounts, fixed, solution.prices).proof
        best = max(best, proof, key=lambda p: p.bound)
        if best.bound * (1 + _CLOSE / 2) >= solution.load:
            break
    return best.prices


def _pinned_load(routing: Routing) -> Floats:
    """Byte times of pinned flows by link."""
    numbers = link_numbers(routing.topology)
    fixed = np.zeros(len(numbers))
    for f in routing.flows:
        if f.pinned:
            fixed[numbers[f.source, f.destination]] += f.bytes
    slow = routing.topology.byte_times
    return fixed if slow is None else fixed * np.array(slow)


def whole_lengths(prices: Floats) -> list[int]:
    """Prices scaled to whole numbers, the largest to `_SCALE`; all zero if no price is positive."""
    top = float(prices.max(initial=0.0))
    return [0] * len(prices) if top <= 0 else [int(p) for p in np.rint(prices / top * _SCALE)]
