"""Lower bounds of the time of a collective by any algorithm, each with the kind of its certificate.

*latency*: the dies farthest apart that must hear of each other, hop by hop.
*cut*: what must enter (or leave) a set of dies, over the links that lead there; for gathers the best of all
sets, for broadcast and p2p the narrowest cut from the root. The first byte also takes one latency.
*partition*: an all_reduce among n parts takes 2 (n - 1) crossings of every byte of the vector (n - 1 to bring n
contributions together, n - 1 to tell all: the one-way gossip problem, Harary and Schwenk 1974), and the links
between the parts carry two ways.
*lengths*: for any lengths of links, bytes x distance summed over the flows is at most the largest load x the
sum of the lengths (duality of the flow LP).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from wscc.collectives.cuts import entry_links, least_cut, least_entered
from wscc.collectives.flows import balance, pair_flows
from wscc.collectives.hierarchy import partition_bound
from wscc.collectives.packing import pack
from wscc.collectives.plan import Op, Request
from wscc.collectives.timing import LinkModel
from wscc.routing.certificate import certify


@dataclass(frozen=True)
class Bound:
    """`time` in byte times; `kind` is the certificate that is largest."""

    time: float
    kind: str


def bound(request: Request, model: LinkModel) -> Bound:
    """The largest of the certificates for this collective; zero where nothing has to move."""
    if (
        request.bytes == 0
        or len(request.dies) < 2
        or (request.op is Op.P2P and request.root == request.target)
    ):
        return Bound(0.0, "nothing moves")
    if model.across and request.op is Op.ALL_REDUCE:
        kind, carried = "partition", partition_bound(request, model)
    else:
        kind, carried = _BANDWIDTH[request.op](request)
    bounds = [Bound(carried + model.latency, kind) if carried else Bound(0.0, kind)]
    bounds.append(Bound(_latency(request, model), "latency"))
    return max(bounds, key=lambda b: b.time)


def _latency(request: Request, model: LinkModel) -> float:
    """Hops one after the other; store and forward adds a flit to each, cut-through one byte in all."""
    hop = model.latency + (model.flit if model.store_and_forward else 0)
    return _hops(request) * hop + (0 if model.store_and_forward else 1)


def _hops(request: Request) -> int:
    topology, dies = request.topology, request.dies
    if request.op is Op.P2P:
        return topology.distance(request.root, request.target)
    if request.op is Op.BROADCAST:
        return max(topology.distance(d, request.root) for d in dies)
    # With fewer bytes than dies some shards are empty, and their dies have nothing to tell.
    shards = dict(zip(dies, request.shards, strict=True))
    tellers = [d for d in dies if shards[d] or request.op is Op.ALL_REDUCE]
    return max(topology.distance(a, b) for a in tellers for b in dies)


def _gather(request: Request) -> tuple[str, float]:
    shards = dict(zip(request.dies, request.shards, strict=True))
    sets = [least_entered(request.topology), *(frozenset([d]) for d in request.dies)]
    return "cut", max(
        (request.bytes - sum(shards[d] for d in s)) / entry_links(request.topology, s) for s in sets
    )


def _all_reduce(request: Request) -> tuple[str, float]:
    return "partition", float(request.bytes * pack(request.topology).strength)


def _broadcast(request: Request) -> tuple[str, float]:
    others = [d for d in request.dies if d != request.root]
    narrowest = min(least_cut(request.topology, request.root, d) for d in others)
    return "cut", request.bytes / narrowest


def _p2p(request: Request) -> tuple[str, float]:
    return "cut", request.bytes / least_cut(request.topology, request.root, request.target)


def _all_to_all(request: Request) -> tuple[str, float]:
    lengths = balance(request.topology).lengths
    return "lengths", float(certify(request.topology, pair_flows(request), lengths).bytes)


_BANDWIDTH: Final[dict[Op, Callable[[Request], tuple[str, float]]]] = {
    Op.ALL_GATHER: _gather,
    Op.REDUCE_SCATTER: _gather,
    Op.ALL_REDUCE: _all_reduce,
    Op.ALL_TO_ALL: _all_to_all,
    Op.BROADCAST: _broadcast,
    Op.P2P: _p2p,
}
