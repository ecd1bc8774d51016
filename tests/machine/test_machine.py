"""Wafers, presets, topology and walks, against networkx and brute force."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wscc.diagnostics import Code, CompileError
from wscc.machine.presets import PRESETS, preset
from wscc.machine.topology import UNREACHABLE, Topology, mesh_topology
from wscc.machine.wafer import Die, Link, Wafer, dead_link, dead_links
from wscc.machine.walks import path_order, ring_order


@st.composite
def wafers(draw: st.DrawFn, rows: int = 4, cols: int = 4) -> Wafer:
    """Small meshes with random dead dies and links (some of them beside dead dies)."""
    r, c = draw(st.integers(1, rows)), draw(st.integers(1, cols))
    cells = [(i, j) for i in range(r) for j in range(c)]
    links = [(a, b) for a in cells for b in ((a[0], a[1] + 1), (a[0] + 1, a[1])) if b in cells]
    dead = draw(st.frozensets(st.sampled_from(cells), max_size=max(len(cells) - 1, 0) // 2))
    cut = draw(st.frozensets(st.sampled_from(links), max_size=4)) if links else frozenset()
    return Wafer("w", r, c, dead_dies=dead, dead_links=cut)


def graph_of(wafer: Wafer) -> nx.Graph:
    """The live part, built from the definition alone."""
    graph = nx.grid_2d_graph(wafer.rows, wafer.cols)
    graph.remove_edges_from(wafer.dead_links)
    graph.remove_nodes_from(wafer.dead_dies)
    return nx.relabel_nodes(graph, {(r, c): r * wafer.cols + c for r, c in graph})


def codes(error: CompileError) -> list[Code]:
    return [d.code for d in error.diagnostics]


# ---- wafers and presets


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"rows": 0}, Code.NUMBER),
        ({"rows": 10**9, "cols": 10**9}, Code.LIMIT),
        ({"die": Die(peak=0)}, Code.NUMBER),
        ({"die": Die(hbm=1, hbm_bandwidth=0)}, Code.NUMBER),
        ({"die": Die(efficiency=float("nan"))}, Code.NUMBER),
        ({"link": Link(bandwidth=-1)}, Code.NUMBER),
        ({"link": Link(latency=-1e-9)}, Code.NUMBER),
        ({"dead_dies": frozenset({(2, 0)})}, Code.OFF_MESH),
        ({"dead_links": dead_links([((0, 3), (0, 4))])}, Code.OFF_MESH),
        ({"dead_links": dead_links([((0, 0), (1, 1))])}, Code.OFF_MESH),
    ],
)
def test_a_wafer_that_cannot_be_is_refused_by_name(change: dict[str, object], code: Code) -> None:
    with pytest.raises(CompileError) as caught:
        replace(Wafer("w", 2, 4), **change)  # type: ignore[arg-type]
    assert codes(caught.value) == [code]


def test_all_mistakes_of_a_wafer_are_reported_at_once() -> None:
    with pytest.raises(CompileError) as caught:
        Wafer("w", 2, 2, dead_dies=frozenset({(2, 0), (0, 5)}), dead_links=dead_links([((0, 0), (1, 1))]))
    assert codes(caught.value) == [Code.OFF_MESH] * 3


def test_a_die_may_lack_hbm_and_a_link_latency_and_energy() -> None:
    Wafer("w", 1, 1, Die(hbm=0, hbm_bandwidth=0), Link(latency=0.0, energy=0.0))


def test_dead_links_have_one_spelling() -> None:
    assert dead_link((1, 0), (0, 0)) == dead_link((0, 0), (1, 0)) == ((0, 0), (1, 0))


def test_presets_are_the_facts_of_their_file() -> None:
    table = json.loads(files("wscc.machine").joinpath("presets.json").read_text("utf-8"))
    assert list(PRESETS) == [name for name in table if not name.startswith("_")]
    assert all("_source" in table[name] for name in PRESETS)
    temp = preset("temp-4x8")
    assert (temp.rows, temp.cols, temp.die.sram, temp.link.bandwidth) == (4, 8, 80_000_000, 4 * 10**12)
    assert temp.link.energy == pytest.approx(5e-12)
    assert preset("temp-6x8") == replace(temp, name="temp-6x8", rows=6)
    assert preset("temp-4x8-shared").link == replace(temp.link, bandwidth=10**12)
    assert preset("wormhole-galaxy").link.bandwidth == 4 * 50 * 10**9


def test_numbers_of_presets_are_exact_integers() -> None:
    for wafer in PRESETS.values():
        die, link = wafer.die, wafer.link
        exact = (die.peak, die.sram, die.hbm, die.hbm_bandwidth, die.tile, link.bandwidth, link.flit)
        assert all(type(n) is int for n in exact)


def test_an_unknown_preset_gets_the_nearest_name() -> None:
    with pytest.raises(CompileError) as caught:
        preset("wormhole_galaxy")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code is Code.UNKNOWN_NAME
    assert "`wormhole-galaxy`" in diagnostic.help


# ---- topology


@settings(max_examples=30, deadline=None)
@given(wafers(5, 5))
def test_topology_agrees_with_networkx(wafer: Wafer) -> None:
    topology, graph = Topology.mesh(wafer), graph_of(wafer)
    assert topology.live == tuple(sorted(graph))
    assert set(topology.links) == {e for a, b in graph.edges for e in ((a, b), (b, a))}
    assert sorted(map(sorted, nx.connected_components(graph))) == sorted(map(list, topology.islands))
    sizes = [len(island) for island in topology.islands]
    assert sizes == sorted(sizes, reverse=True)
    hops = dict(nx.all_pairs_shortest_path_length(graph))
    for a in topology.live:
        for b in topology.live:
            assert topology.distance(a, b) == hops[a].get(b, UNREACHABLE)


@settings(max_examples=40, deadline=None)
@given(wafers(5, 5))
def test_paths_are_live_shortest_and_xy_where_that_lives(wafer: Wafer) -> None:
    topology = Topology.mesh(wafer)
    for a in topology.live:
        for b in topology.live:
            shortest, xy = topology.shortest_path(a, b), topology.xy_path(a, b)
            assert (shortest is None) == (topology.distance(a, b) == UNREACHABLE)
            assert topology.xy_or_shortest(a, b) == (xy or shortest)
            for path in (shortest, xy):
                if path is not None:
                    assert (path[0], path[-1]) == (a, b)
                    assert len(path) - 1 == topology.distance(a, b)
                    assert all(topology.are_adjacent(x, y) for x, y in pairwise(path))
            if xy is not None:
                rows = [d // wafer.cols for d in xy]
                corner = xy[rows.index(rows[-1])] if rows[0] != rows[-1] else xy[-1]
                assert corner % wafer.cols == b % wafer.cols, "along the row first"


def test_a_whole_mesh_always_has_the_xy_path() -> None:
    topology = mesh_topology(Wafer("w", 3, 4))
    assert topology.xy_path(0, 11) == (0, 1, 2, 3, 7, 11)
    assert topology.xy_path(11, 0) == (11, 10, 9, 8, 4, 0)
    assert topology.xy_path(5, 5) == (5,)


def test_a_detour_round_a_dead_die_has_fixed_ties() -> None:
    topology = mesh_topology(Wafer("w", 3, 3, dead_dies=frozenset({(1, 1)})))
    assert topology.xy_path(3, 5) is None
    assert topology.xy_or_shortest(3, 5) == (3, 0, 1, 2, 5)


def test_a_part_has_only_its_own_dies_and_links() -> None:
    topology = mesh_topology(Wafer("w", 2, 3))
    part = topology.part((0, 1, 5))
    assert part.live == (0, 1, 5)
    assert part.links == ((0, 1), (1, 0))
    assert part.islands == ((0, 1), (5,))
    assert topology.part(range(6)) is topology


@settings(max_examples=40, deadline=None)
@given(wafers(5, 5))
def test_colours_differ_across_every_link(wafer: Wafer) -> None:
    topology = Topology.mesh(wafer)
    assert topology.colours is not None
    for die in topology.live:
        assert topology.colours[die] == sum(divmod(die, wafer.cols)) % 2


def test_a_graph_with_an_odd_circuit_has_no_colours() -> None:
    triangle = Topology((0, 1, 2), ((1, 2), (0, 2), (0, 1)))
    assert triangle.colours is None
    assert triangle.xy_or_shortest(0, 2) == (0, 2)
    assert ring_order(triangle, (0, 1, 2)) is not None


# ---- rings and paths


ROW_1 = frozenset({(1, 0), (1, 1), (1, 2), (1, 3)})

# mesh, dead dies, parts, ring through all live dies, path through all live dies
EXISTENCE = [
    ((1, 8), frozenset(), 1, False, True),
    ((2, 2), frozenset(), 1, True, True),
    ((2, 4), frozenset(), 1, True, True),
    ((3, 4), frozenset(), 1, True, True),
    ((4, 8), frozenset(), 1, True, True),
    ((3, 3), frozenset(), 1, False, True),
    ((5, 5), frozenset(), 1, False, True),
    ((3, 3), frozenset({(0, 0)}), 1, True, True),
    ((3, 3), frozenset({(1, 1)}), 1, True, True),
    ((3, 3), frozenset({(0, 1)}), 1, False, False),
    ((5, 5), frozenset({(0, 1)}), 1, False, False),
    ((4, 4), frozenset({(0, 0)}), 1, False, True),
    ((4, 4), frozenset({(0, 0), (0, 3)}), 1, True, True),
    ((4, 4), frozenset({(0, 0), (3, 3)}), 1, False, False),
    ((4, 4), ROW_1, 2, False, False),
]


@pytest.mark.parametrize(("mesh", "dead", "parts", "ring", "path"), EXISTENCE)
def test_rings_and_paths_through_all_live_dies_exist_as_known(
    mesh: tuple[int, int], dead: frozenset[tuple[int, int]], parts: int, ring: bool, path: bool
) -> None:
    topology = mesh_topology(Wafer("w", *mesh, dead_dies=dead))
    assert len(topology.islands) == parts
    assert (ring_order(topology, topology.live) is not None) == ring
    assert (path_order(topology, topology.live) is not None) == path


def test_two_neighbours_are_a_ring() -> None:
    topology = mesh_topology(Wafer("w", 1, 2))
    assert ring_order(topology, (0, 1)) == (0, 1)


def visits_all(graph: nx.Graph, closed: bool) -> bool:
    """Every order of visits, one die at a time, with no pruning at all."""

    def extend(walk: list[int]) -> bool:
        if len(walk) == len(graph):
            return not closed or len(walk) <= 2 or graph.has_edge(walk[-1], walk[0])
        return any(extend([*walk, n]) for n in graph[walk[-1]] if n not in walk)

    return any(extend([start]) for start in graph)


@settings(max_examples=40, deadline=None)
@given(wafers(3, 4), st.data())
def test_walks_agree_with_brute_force(wafer: Wafer, data: st.DataObject) -> None:
    topology, graph = Topology.mesh(wafer), graph_of(wafer)
    dies = data.draw(st.sets(st.sampled_from(topology.live), min_size=1))
    for closed, order in ((False, path_order(topology, dies)), (True, ring_order(topology, dies))):
        assert (order is not None) == visits_all(graph.subgraph(dies), closed)
        if order is not None:
            assert sorted(order) == sorted(dies)
            assert all(graph.has_edge(a, b) for a, b in pairwise(order))
            assert not closed or len(order) <= 2 or graph.has_edge(order[-1], order[0])
