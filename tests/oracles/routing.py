"""Properties that a routing must have, checked with networkx and plain counting: nothing here is shared with the
router."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import networkx as nx
from hypothesis import strategies as st

from tests.support.traffic import damaged
from wscc.machine.topology import Topology
from wscc.routing.flows import Flow, Leg, legs_of
from wscc.routing.router import Routing

Hop = tuple[int, int]


def graph(topology: Topology) -> nx.DiGraph:
    """The live links of a topology, one edge for each direction."""
    assert topology.grid is not None
    rows, cols = topology.grid
    net = nx.DiGraph()
    net.add_nodes_from(topology.live)
    net.add_edges_from(topology.links)
    for a, b in net.edges:
        (r, c), (r2, c2) = divmod(a, cols), divmod(b, cols)
        assert abs(r - r2) + abs(c - c2) == 1
        assert max(r, r2) < rows
    return net


def legs(routing: Routing) -> tuple[Leg, ...]:
    return legs_of(routing.flows, routing.pieces)


def transmission(flows: Sequence[Flow], leg: Leg) -> tuple[object, ...]:
    """The key that two legs share if they are the same transmission."""
    f = flows[leg.flow]
    return (f.source, leg.flow if f.content is None or f.pinned else f.content, f.pinned, leg.piece)


def recount(flows: Sequence[Flow], legs: Sequence[Leg]) -> Counter[Hop]:
    """Bytes by link, each transmission counted once on each link that it crosses."""
    sent: dict[tuple[object, ...], tuple[int, set[Hop]]] = {}
    for leg in (leg for leg in legs if len(leg.path) > 1):
        size, hops = sent.setdefault(transmission(flows, leg), (leg.bytes, set()))
        assert size == leg.bytes
        hops.update(pairwise(leg.path))
    load: Counter[Hop] = Counter()
    for size, hops in sent.values():
        for hop in hops:
            load[hop] += size
    return load


def dependencies(routing: Routing) -> nx.DiGraph:
    """The channel dependency graph: a link of a channel waits for the next one of the same message."""
    waits = nx.DiGraph()
    for leg in legs(routing):
        for first, second in pairwise(pairwise(leg.path)):
            waits.add_edge((leg.channel, first), (leg.channel, second))
    return waits


def proven(topology: Topology, flows: Sequence[Flow], lengths: Sequence[int]) -> Fraction:
    """The lower bound of the largest load that link lengths prove: bytes x shortest length, over the sum of lengths."""
    net = graph(topology)
    nx.set_edge_attributes(net, dict(zip(topology.links, lengths, strict=True)), "length")
    distances: dict[tuple[object, ...], int] = {}
    total = 0
    for i, f in enumerate(flows):
        if f.pinned:
            total += f.bytes * net.edges[f.source, f.destination]["length"]
        else:
            key = (f.source, i if f.content is None else f.content, f.bytes)
            path = nx.dijkstra_path_length(net, f.source, f.destination, "length")
            distances[key] = max(distances.get(key, 0), path)
    total += sum(int(key[-1]) * length for key, length in distances.items())  # type: ignore[call-overload]
    return Fraction(total, sum(lengths)) if sum(lengths) else Fraction(0)


@st.composite
def problems(draw: st.DrawFn, largest: int = 5) -> tuple[Topology, list[Flow]]:
    """Random small meshes, most of them damaged, with flows of all sizes; some share contents, some are pinned."""
    rows, cols = draw(st.integers(1, largest)), draw(st.integers(2, largest))
    links = rows * (cols - 1) + cols * (rows - 1)
    dies = draw(st.integers(0, min(3, rows * cols - 1)))
    topology = damaged(rows, cols, dies, draw(st.integers(0, min(4, links))), draw(st.integers(0, 99)))
    island = topology.islands[0]
    ends = st.sampled_from(island)
    sizes = st.sampled_from([1, 1000, 4096, 10_000, 1 << 20, (1 << 20) + 7])
    flows: list[Flow] = []
    for _ in range(draw(st.integers(0, 12))):
        flows.append(Flow(draw(ends), draw(ends), draw(sizes)))
    for name in ("x", "y"):
        source, size = draw(ends), draw(sizes)
        flows += [Flow(source, draw(ends), size, name) for _ in range(draw(st.integers(0, 5)))]
    inside = [(a, b) for a, b in topology.links if a in island]
    if inside:
        hops = draw(st.lists(st.sampled_from(inside), max_size=4))
        flows += [Flow(a, b, 1 << 19, draw(st.sampled_from([None, "x"])), pinned=True) for a, b in hops]
    return topology, flows
