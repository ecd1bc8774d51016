"""Switches of nodes, leaves and a spine: links, classes and rules, against a plain construction of the network."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.models import Shape, gpt
from wscc.backends.interpreter.load_checks import check_routes
from wscc.diagnostics import CompileError, Source
from wscc.driver.module_text import read_module
from wscc.ir.routes import Route
from wscc.ir.streams.artifact import Manifest
from wscc.ir.streams.program import Streams
from wscc.ir.text.print import to_text
from wscc.ir.train import Train
from wscc.ir.verify.routes import is_hop
from wscc.machine.topology import mesh_topology, neighbour_topology
from wscc.machine.wafer import Hub, Leaves, Link, Network, Wafer
from wscc.routing.turns import up_down_rule

OWN, HUB = Link(4 * 10**11, 2e-7), Hub(10**12, 3e-7)
NET = Link(5 * 10**10, 5e-6, energy=2e-11)
CAPACITY, UPLINK = 10**11, 3 * 10**10  # some leaves have ten times that


@st.composite
def pods(draw: st.DrawFn) -> Wafer:
    """Up to 5 nodes of up to 4 dies, some of them dead, joined by a switch, by rails or by leaves."""
    rows, cols = draw(st.integers(2, 5)), draw(st.integers(2, 4))
    below = draw(st.none() | st.integers(0, rows - 1))
    leaves = None if below is None else Leaves(below, draw(st.sampled_from([UPLINK, 10 * UPLINK])))
    places = st.tuples(st.integers(0, rows - 1), st.integers(0, cols - 1))
    dead = draw(st.frozensets(places, max_size=rows * cols - 1))
    return Wafer(
        "pod", rows, cols, link=OWN, hub=HUB, network=Network(NET, CAPACITY, leaves=leaves), dead_dies=dead
    )


def plain(wafer: Wafer) -> nx.DiGraph:
    """The links of live dies, each with its bandwidth, latency and energy; vertices are numbered as reports name them:
    dies, nodes, leaves, spine, and of each switch first where messages enter."""
    assert wafer.network is not None
    tree, dies = wafer.network.leaves, wafer.rows * wafer.cols
    uplink = tree.uplink if tree else 0
    leaf = {
        (r, c): 0 if tree is None else c if tree.nodes == 0 else r // tree.nodes
        for r in range(wafer.rows)
        for c in range(wafer.cols)
    }
    spine = wafer.rows + len(set(leaf.values()))
    net = nx.DiGraph()

    def switch(number: int, capacity: int, latency: float = 0.0) -> tuple[int, int]:
        ends = dies + 2 * number, dies + 2 * number + 1
        net.add_edge(*ends, link=(capacity, latency, 0.0))
        return ends

    def join(below: tuple[int, int], above: tuple[int, int], link: tuple[int, float, float]) -> None:
        net.add_edge(below[0], above[0], link=link)
        net.add_edge(above[1], below[1], link=link)

    for (r, c), n in leaf.items():
        if (r, c) not in wafer.dead_dies:
            die = (r * wafer.cols + c,) * 2
            join(die, switch(r, 10**12, 3e-7), (4 * 10**11, 2e-7, OWN.energy))
            join(die, middle := switch(wafer.rows + n, CAPACITY), (5 * 10**10, 5e-6, 2e-11))
            if tree is not None:
                top = switch(spine, uplink * (spine - wafer.rows))
                join(middle, top, (uplink, 5e-6, 2e-11))
    return net


@settings(max_examples=40, deadline=None)
@given(pods())
def test_links_are_those_of_the_switches(wafer: Wafer) -> None:
    topology, want = mesh_topology(wafer), plain(wafer)
    assert set(topology.links) == set(want.edges)
    assert wafer.live_links == sum(not (a >= wafer.dies and b == a + 1) for a, b in want.edges)
    for a, b, kind in want.edges(data="link"):
        link = wafer.links[wafer.link_class(a, b)]
        assert (link.bandwidth, link.latency, link.energy) == kind
    # Those of dead dies lie on the machine as well, and `verify` asks for live ones beside.
    alive = set(want)
    for a in range(-1, wafer.vertices + 2):
        for b in range(-1, wafer.vertices + 2):
            if a in alive and b in alive:
                assert is_hop(wafer, a, b) == want.has_edge(a, b), (a, b)
            elif not (0 <= a < wafer.vertices and 0 <= b < wafer.vertices):
                assert not is_hop(wafer, a, b), (a, b)


@settings(max_examples=25, deadline=None)
@given(pods())
def test_an_artifact_is_loaded_with_just_these_links(wafer: Wafer) -> None:
    want = plain(wafer)
    dead = tuple(wafer.number(d) for d in sorted(wafer.dead_dies))
    manifest = Manifest(
        "m",
        (),
        1,
        wafer.rows,
        wafer.cols,
        dead,
        (),
        (),
        Train(1, 1),
        "",
        hub=wafer.hub,
        network=wafer.network,
    )
    start = min(want)
    for to, path in nx.single_source_shortest_path(want, start).items():
        for n in range(-1, wafer.vertices + 2):
            streams = Streams((), (), (), (), np.zeros((0, 0), np.int64), (Route.along((*path, n)),), 0)
            if want.has_edge(to, n):
                check_routes(streams, manifest, 1)
            elif n in want or not 0 <= n < wafer.vertices:
                with pytest.raises(CompileError, match="no link of the wafer"):
                    check_routes(streams, manifest, 1)


@settings(max_examples=25, deadline=None)
@given(pods())
def test_shortest_paths_go_up_then_down_and_no_circle_is_left(wafer: Wafer) -> None:
    topology = mesh_topology(wafer)
    rule, waits = up_down_rule(topology, 0), nx.DiGraph()
    after = {a: [(a, b) for b in topology.neighbours[a]] for a in range(topology.dies)}
    waits.add_edges_from((k, n) for k in topology.links for n in after[k[1]] if n[1] != k[0] and rule(k, n))
    assert nx.is_directed_acyclic_graph(waits)
    for a in topology.live:
        for b in topology.live:
            path = topology.shortest_path(a, b)
            if a != b:
                assert path is not None
                assert all(v >= wafer.dies for v in path[1:-1])
                assert all(rule(k, n) for k, n in pairwise(pairwise(path)))


@settings(max_examples=25, deadline=None)
@given(pods())
def test_dies_are_placed_nearer_in_a_node_than_on_a_leaf_than_across_the_spine(wafer: Wafer) -> None:
    graph, want = neighbour_topology(wafer), plain(wafer)
    spine = wafer.vertices - 2 if wafer.network and wafer.network.leaves else -1
    far: dict[int, set[int]] = {0: set(), 1: set(), 2: set()}
    for a in graph.live:
        hops = graph.lengths(a)
        for b in graph.live:
            if a < b:
                inside = want.subgraph([a, b, *(v for v in want if v >= wafer.dies and v != spine)])
                kind = 0 if a // wafer.cols == b // wafer.cols else 1 if nx.has_path(inside, a, b) else 2
                far[kind].add(hops[b])
    kinds = [hops for hops in far.values() if hops]
    assert all(len(hops) == 1 for hops in kinds)
    assert all(max(near) < min(more) for near, more in pairwise(kinds))


def test_the_text_of_a_module_keeps_its_leaves() -> None:
    network = Network(NET, CAPACITY, leaves=Leaves(2, UPLINK))
    module = gpt(
        {"dp": 2}, Shape(batch=8, calls=1, layers=1), wafer=Wafer("pod", 4, 2, hub=HUB, network=network)
    )
    assert read_module(Source("m.wir", to_text(module))).machine == module.machine


@pytest.mark.parametrize(
    ("leaves", "words"), [(Leaves(4, 1), "leaves"), (Leaves(-1, 1), "nodes"), (Leaves(0, 0), "uplink")]
)
def test_leaves_that_cannot_be_are_refused(leaves: Leaves, words: str) -> None:
    with pytest.raises(CompileError, match=words):
        Wafer("pod", 4, 2, hub=HUB, network=Network(NET, CAPACITY, leaves=leaves))
