"""Turns and channels: sets of turns stay free of cycles, and some channel joins every pair of dies."""

from __future__ import annotations

import random

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.routing import graph
from tests.support.traffic import MB, damaged, mesh
from wscc.machine.topology import Topology
from wscc.routing.channels import Channel, channel_of, make_channels
from wscc.routing.columns import Column, is_simple
from wscc.routing.flows import Demand, Flow
from wscc.routing.initial import initial_routes
from wscc.routing.loads import link_numbers
from wscc.routing.relaxation import relax
from wscc.routing.search import Search
from wscc.routing.turns import Turns, all_turns, turns_of, up_down_rule
from wscc.routing.unrestricted import UnrestrictedSearch

some = settings(max_examples=60)


@some
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=40))
def test_a_turn_is_added_unless_it_closes_a_cycle(turns: list[tuple[int, int]]) -> None:
    acyclic, graph = Turns(8), nx.DiGraph()
    graph.add_nodes_from(range(8))
    for first, second in turns:
        if first == second:
            continue
        closes = nx.has_path(graph, second, first)
        assert acyclic.add((first, second)) is not closes
        if not closes:
            graph.add_edge(first, second)
    assert acyclic.allowed == set(graph.edges)
    assert all(acyclic.position[a] < acyclic.position[b] for a, b in acyclic.allowed)
    assert sorted(acyclic.position) == list(range(8))


def test_turns_of_a_path_are_added_all_or_none() -> None:
    turns = Turns(4)
    assert turns.add_all([(0, 1), (1, 2)])
    assert not turns.add_all([(2, 3), (3, 0)])
    assert turns.allowed == {(0, 1), (1, 2)}
    assert turns.add((3, 0))


def allowed(topology: Topology, channel: Channel) -> nx.DiGraph:
    """The turns of a channel, by links."""
    turns = nx.DiGraph()
    turns.add_nodes_from(topology.links)
    turns.add_edges_from((topology.links[a], topology.links[b]) for a, b in channel.turns)
    return turns


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("count", [1, 2])
def test_the_turns_of_a_channel_have_no_cycle_and_no_turn_fits_besides(seed: int, count: int) -> None:
    topology = damaged(5, 6, seed, seed, seed)
    numbers = link_numbers(topology)
    pairs = [(a, b) for a in topology.islands[0] for b in topology.islands[0] if a != b]
    paths = [path for a, b in pairs if (path := topology.xy_or_shortest(a, b))]
    channels = make_channels(topology, numbers, paths, count)
    missing = [p for p in paths if channel_of(channels, turns_of(p, numbers)) is None]
    assert len(channels) == count
    for channel in channels:
        turns = allowed(topology, channel)
        assert nx.is_directed_acyclic_graph(turns)
        if not missing:
            for first, second in all_turns(topology, numbers):
                assert turns.has_edge(first, second) or nx.has_path(turns, second, first)
    demands = [Demand(a, 1, (b,), ((0,),)) for a, b in pairs]
    assert np.isfinite(Search(channels, demands).cheapest(np.ones(len(numbers))).costs).all()


def test_a_whole_mesh_has_room_for_every_shortest_path() -> None:
    topology = mesh(4, 5)
    numbers = link_numbers(topology)
    channels = make_channels(topology, numbers, [])
    net = graph(topology)
    for a in topology.live:
        for b in topology.live:
            for path in nx.all_shortest_paths(net, a, b):
                assert channel_of(channels, turns_of(tuple(path), numbers)) is not None


def test_up_and_down_joins_every_pair_where_xy_paths_close_cycles() -> None:
    """All turns but those from down to up join every pair and have no cycle."""
    topology = damaged(5, 5, 5, 3, 4)
    for end in (0, -1):
        rule = up_down_rule(topology, end)
        turns = nx.DiGraph()
        turns.add_edges_from(t for t in all_turns(topology, link_numbers(topology)) if rule(*t))
        assert nx.is_directed_acyclic_graph(turns)
        island = topology.islands[0]
        for a in island:
            for b in island:
                starts = [link for link in topology.links if link[0] == a]
                ends = [link for link in topology.links if link[1] == b]
                near = topology.are_adjacent(a, b)
                assert a == b or near or any(
                    s in turns and e in turns and nx.has_path(turns, s, e) for s in starts for e in ends
                )  # fmt: skip


def test_one_channel_takes_other_paths_where_the_initial_ones_close_a_cycle() -> None:
    """Around a hole every flow goes a quarter further: on one channel the four wait for one another."""
    wafer = mesh(3, 3).part([0, 1, 2, 3, 5, 6, 7, 8])
    flows = [Flow(0, 8, MB), Flow(2, 6, MB), Flow(8, 0, MB), Flow(6, 2, MB)]
    clockwise = {
        (0, 8): (0, 1, 2, 5, 8),
        (2, 6): (2, 5, 8, 7, 6),
        (8, 0): (8, 7, 6, 3, 0),
        (6, 2): (6, 3, 0, 1, 2),
    }
    numbers = link_numbers(wafer)
    (single,) = make_channels(wafer, numbers, clockwise.values(), 1)
    assert nx.is_directed_acyclic_graph(allowed(wafer, single))
    fits = [channel_of((single,), turns_of(p, numbers)) for p in clockwise.values()]
    assert None in fits
    demands = [Demand(f.source, 1, (f.destination,), ((0,),)) for f in flows]
    assert np.isfinite(Search((single,), demands).cheapest(np.ones(len(numbers))).costs).all()
    both = make_channels(wafer, numbers, clockwise.values(), 2)
    assert all(channel_of(both, turns_of(p, numbers)) is not None for p in clockwise.values())
    assert len(initial_routes(wafer, flows, 1).pieces) == 4


@pytest.mark.parametrize("seed", range(3))
def test_a_relaxation_finds_what_dijkstra_finds_on_the_graph_of_turns(seed: int) -> None:
    topology = damaged(4, 5, 2, 2, seed)
    numbers = link_numbers(topology)
    draw = random.Random(seed)
    price = {link: draw.uniform(0.1, 1.0) for link in topology.links}
    for channel in make_channels(topology, numbers, []):
        turns = allowed(topology, channel)
        prices = np.array([price[topology.links[i]] for i in channel.link.tolist()])
        sources = topology.islands[0][:4]
        costs = relax(channel, prices, np.array(sources))
        for k, source in enumerate(sources):
            net = turns.copy()
            net.add_edges_from((("start", 0), link) for link in topology.links if link[0] == source)
            distances = nx.single_source_dijkstra_path_length(
                net, ("start", 0), weight=lambda _a, b, _d: price[b]
            )
            for position, link in enumerate(channel.link.tolist()):
                distance = distances.get(topology.links[link], np.inf)
                assert costs[position, k] == pytest.approx(distance)


def test_over_all_turns_the_farthest_destination_counts() -> None:
    topology = damaged(4, 5, 2, 2, 1)
    net = graph(topology)
    draw = random.Random(0)
    prices = np.array([draw.uniform(0.1, 1.0) for _ in topology.links])
    nx.set_edge_attributes(net, dict(zip(topology.links, prices.tolist(), strict=True)), "price")
    a, *ends = topology.islands[0][:6]
    demands = [Demand(a, 1, tuple(ends), ((0,),) * 5), Demand(ends[0], 1, (a,), ((0,),))]
    cheapest = UnrestrictedSearch(topology, demands).cheapest(prices)
    for demand, cost, column in zip(demands, cheapest.costs.tolist(), cheapest.columns, strict=True):
        far = nx.single_source_dijkstra_path_length(net, demand.source, weight="price")
        assert cost == pytest.approx(max(far[d] for d in demand.destinations))
        assert prices[column.links].sum() == pytest.approx(cost)


def test_a_path_that_comes_twice_to_a_die_is_not_simple() -> None:
    topology = mesh(2, 2)
    numbers = link_numbers(topology)
    around = np.array([numbers[h] for h in ((0, 1), (1, 3), (3, 2), (2, 0))])
    assert not is_simple(Column(0, 0, around, (around,)), topology.links)
    assert is_simple(Column(0, 0, around[:3], (around[:3],)), topology.links)
