"""Tori: their links, shortest paths and virtual channels, against networkx."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wscc.diagnostics import Code, CompileError
from wscc.machine.corner import corners
from wscc.machine.topology import UNREACHABLE, mesh_topology
from wscc.machine.wafer import Torus, Wafer, dead_link
from wscc.routing.channels import channel_of, make_channels
from wscc.routing.loads import link_numbers
from wscc.routing.turns import turns_of


def ring(count: int, *, closed: bool) -> nx.Graph:
    """A path of so many dies, or a ring; two dies have one link in both cases."""
    graph = nx.path_graph(count)
    if closed:
        graph.add_edge(0, count - 1)
    graph.remove_edges_from([(i, i) for i in range(count)])
    return graph


def three_dimensions(extents: tuple[int, int, int], closed: tuple[bool, bool, bool]) -> nx.Graph:
    """A mesh of planes, rows and columns from its definition: a product of three rings or paths."""
    graph = ring(extents[0], closed=closed[0])
    for n, is_closed in zip(extents[1:], closed[1:], strict=True):
        graph = nx.cartesian_product(graph, ring(n, closed=is_closed))
    return nx.relabel_nodes(graph, {(pr, c): (*pr, c) for pr, c in graph})


def graph_of(wafer: Wafer) -> nx.Graph:
    """The live part, built from the definition alone: a product of two rings or paths."""
    columns = ring(wafer.rows, closed=wafer.torus.cols)
    graph = nx.cartesian_product(columns, ring(wafer.cols, closed=wafer.torus.rows))
    graph.remove_edges_from(wafer.dead_links)
    graph.remove_nodes_from(wafer.dead_dies)
    return nx.relabel_nodes(graph, {(r, c): r * wafer.cols + c for r, c in graph})


@st.composite
def tori(draw: st.DrawFn) -> Wafer:
    wafer = Wafer(
        "w",
        draw(st.integers(1, 5)),
        draw(st.integers(1, 5)),
        torus=Torus(*draw(st.tuples(*2 * [st.booleans()]))),
    )
    whole = [tuple(map(wafer.coordinate, e)) for e in graph_of(wafer).edges]
    cells = [(r, c) for r in range(wafer.rows) for c in range(wafer.cols)]
    dead = draw(st.frozensets(st.sampled_from(cells), max_size=len(cells) // 3))
    cut = draw(st.frozensets(st.sampled_from(whole), max_size=3)) if whole else frozenset()
    return Wafer(
        "w", wafer.rows, wafer.cols, torus=wafer.torus, dead_dies=dead,
        dead_links=frozenset(dead_link(a, b) for a, b in cut),
    )  # fmt: skip


@given(tori())
@settings(max_examples=30)
def test_a_torus_is_the_product_of_rings_and_paths(wafer: Wafer) -> None:
    topology, graph = mesh_topology(wafer), graph_of(wafer)
    edges = {frozenset(e) for e in graph.edges}
    assert {frozenset(link) for link in topology.links} == edges
    assert wafer.live_links == len(topology.links) == 2 * len(edges)
    for a in topology.live:
        hops = nx.single_source_shortest_path_length(graph, a)
        assert [topology.distance(a, b) for b in topology.live] == [
            hops.get(b, UNREACHABLE) for b in topology.live
        ]
    two = nx.is_bipartite(graph)
    assert (topology.colours is not None) == two


MESHES = ((1, 8), (4, 8), (5, 3), (5, 7))
CLOSED = (Torus(rows=True, cols=True), Torus(rows=True), Torus(cols=True))


@pytest.mark.parametrize(
    "wafer",
    [Wafer("w", *mesh, torus=torus) for mesh in MESHES for torus in CLOSED],
    ids=lambda w: f"{w.rows}x{w.cols} {w.torus.rows:d}{w.torus.cols:d}",
)
def test_every_xy_path_is_shortest_and_has_a_channel_free_of_deadlock(wafer: Wafer) -> None:
    """Where rows and columns are rings it takes four channels, else two."""
    topology, graph = mesh_topology(wafer), graph_of(wafer)
    numbers = link_numbers(topology)
    paths = [p for a in topology.live for b in topology.live if a != b and (p := topology.xy_path(a, b))]
    assert len(paths) == wafer.dies * (wafer.dies - 1)
    assert all(len(p) - 1 == nx.shortest_path_length(graph, p[0], p[-1]) for p in paths)
    assert all(graph.has_edge(*hop) for p in paths for hop in pairwise(p))
    channels = make_channels(topology, numbers, [], 4)  # for whatever is sent
    assert len(channels) == (4 if wafer.torus == Torus(True, True) else 2)
    waits = nx.DiGraph()
    for path in paths:
        channel = channel_of(channels, turns_of(path, numbers))
        assert channel is not None, path
        waits.add_edges_from(((channel, a), (channel, b)) for a, b in pairwise(pairwise(path)))
    assert nx.is_directed_acyclic_graph(waits)


def test_a_corner_of_a_torus_is_a_mesh() -> None:
    wafer = Wafer("w", 40, 40, torus=Torus(True, True))
    first, *_, last = corners(wafer, 4)
    assert first.torus == Torus(False, False)
    assert max(map(max, map(first.coordinate, first.live))) < 39
    assert not any(
        first.are_adjacent(a, b) for a in first.live for b in first.live if abs(a - b) not in (1, 40)
    )
    assert last.torus == wafer.torus


def test_a_dead_link_around_needs_a_torus() -> None:
    around = frozenset({((0, 0), (0, 3))})
    assert Wafer("w", 2, 4, torus=Torus(rows=True), dead_links=around).live_links == 2 * (6 + 4 + 1)
    for torus in (Torus(), Torus(cols=True)):
        with pytest.raises(CompileError) as refused:
            Wafer("w", 2, 4, torus=torus, dead_links=around)
        assert refused.value.diagnostics[0].code is Code.OFF_MESH


@given(
    st.tuples(*3 * [st.integers(1, 4)]),
    st.tuples(*3 * [st.booleans()]),
    st.data(),
)
@settings(max_examples=30)
def test_three_dimensions_are_a_product_of_three_and_contain_the_folded_mesh(
    extents: tuple[int, int, int], closed: tuple[bool, bool, bool], data: st.DataObject
) -> None:
    planes, rows, cols = extents
    torus = Torus(rows=closed[2], cols=closed[1], planes=closed[0])
    whole = Wafer("w", planes * rows, cols, torus=torus, planes=planes)
    graph = three_dimensions(extents, closed)
    folded = [(d, d + cols) for d in range(whole.dies - cols)]
    assert all(mesh_topology(whole).are_adjacent(*link) for link in folded)
    dead = data.draw(st.lists(st.sampled_from(sorted(graph)), max_size=3))
    graph.remove_nodes_from(dead)
    wafer = Wafer("w", planes * rows, cols, torus=torus, planes=planes,
                  dead_dies=frozenset(c for p in dead if (c := whole.at(p))))  # fmt: skip
    topology = mesh_topology(wafer)
    assert {frozenset(map(wafer.place, link)) for link in topology.links} == {
        frozenset(e) for e in graph.edges
    }
    assert wafer.live_links == len(topology.links)
    for a in topology.live[:5]:
        hops = nx.single_source_shortest_path_length(graph, wafer.place(a))
        assert [topology.distance(a, b) for b in topology.live] == [
            hops.get(wafer.place(b), UNREACHABLE) for b in topology.live
        ]


@pytest.mark.parametrize(
    ("extents", "channels"), [((4, 4, 4), 8), ((2, 3, 5), 8), ((3, 1, 4), 8), ((3, 3, 3), 3)]
)
def test_shortest_paths_of_three_dimensions_have_channels_free_of_deadlock(
    extents: tuple[int, int, int], channels: int
) -> None:
    """All of them where there are eight channels; with fewer, every pair still has a way."""
    planes, rows, cols = extents
    wafer = Wafer("w", planes * rows, cols, torus=Torus(True, True, True), planes=planes)
    topology, graph = mesh_topology(wafer), three_dimensions(extents, (True, True, True))
    numbers = link_numbers(topology)
    paths = [p for a in topology.live for b in topology.live if a != b and (p := topology.xy_path(a, b))]
    assert all(
        len(p) - 1 == nx.shortest_path_length(graph, wafer.place(p[0]), wafer.place(p[-1])) for p in paths
    )
    assert all(graph.has_edge(*map(wafer.place, hop)) for p in paths for hop in pairwise(p))
    waits, found = nx.DiGraph(), make_channels(topology, numbers, paths, channels)
    served = 0
    for path in paths:
        channel = channel_of(found, turns_of(path, numbers))
        served += channel is not None
        waits.add_edges_from(((channel, a), (channel, b)) for a, b in pairwise(pairwise(path)))
    if channels == 8:
        assert served == len(paths)
        assert nx.is_directed_acyclic_graph(waits)
    for number, channel in enumerate(found):
        allowed = nx.DiGraph([((number, a), (number, b)) for a, b in channel.turns])
        assert nx.is_directed_acyclic_graph(allowed)
