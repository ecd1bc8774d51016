"""The links that circuits set up: so many at a die, all dies of a program joined, the most weight of any choice; and
what is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.models import Shape, gpt
from wscc.diagnostics import Code, CompileError
from wscc.driver.pipeline import Pipeline
from wscc.ir.module import Module
from wscc.machine.topology import Topology
from wscc.machine.wafer import OPEN, Circuits, Torus, Wafer, dead_link
from wscc.passes.place import Place, placement
from wscc.passes.place.circuits import MOST_DIES, on_circuits
from wscc.passes.place.cpsat_links import heaviest_links
from wscc.passes.place.solver import place_on
from wscc.passes.place.types import AxisSpec, GroupKind

Hop = tuple[int, int]


def sharded(degrees: dict[str, int], wafer: Wafer) -> Module:
    shape = Shape(batch=16, calls=1, layers=degrees.get("pp", 1))
    return Pipeline.default().before(Place).run(gpt(degrees, shape, wafer=wafer))


def links_of(wafer: Wafer) -> set[Hop]:
    return {(a, b) for a, b in Topology.mesh(wafer).links if a < b}


def joins(links: frozenset[Hop], dies: list[int]) -> bool:
    graph = nx.Graph(links)
    graph.add_nodes_from(dies)
    return set(dies) <= nx.node_connected_component(graph, dies[0])


def degrees_of(links: frozenset[Hop]) -> list[int]:
    return [n for _, n in nx.Graph(links).degree]


def best(links: set[Hop], dies: list[int], weights: dict[Hop, int], up: int) -> int | None:
    """The most weight of all choices, each looked at; None where none joins the dies."""
    most = None
    for chosen in (c for n in range(len(links) + 1) for c in combinations(sorted(links), n)):
        at, weight = Counter(die for link in chosen for die in link), sum(weights.get(k, 0) for k in chosen)
        if (
            max(at.values(), default=0) <= up
            and (most is None or weight > most)
            and joins(frozenset(chosen), dies)
        ):
            most = weight
    return most


@st.composite
def asked(draw: st.DrawFn) -> tuple[Wafer, list[int], dict[Hop, int], int]:
    """A small mesh with damage, dies of it in use, weights of the links between them, and how many links may be up."""
    rows, cols = draw(st.sampled_from([(2, 2), (1, 5), (2, 3), (2, 4)]))
    torus = draw(st.sampled_from([OPEN, OPEN, Torus(rows=cols == 3)]))
    hops = [((r, c), (r, c + 1)) for r in range(rows) for c in range(cols - 1)]
    cut = draw(st.sets(st.sampled_from(hops), max_size=1))
    wafer = Wafer("w", rows, cols, torus=torus, dead_links=frozenset(dead_link(a, b) for a, b in cut))
    used = draw(st.sets(st.sampled_from(range(rows * cols)), min_size=2, max_size=rows * cols))
    between = sorted(k for k in links_of(wafer) if used.issuperset(k))
    weights = {k: draw(st.integers(0, 4)) for k in between}
    return wafer, sorted(used), weights, draw(st.integers(1, 3))


@given(asked())
@settings(max_examples=30, deadline=None)
def test_a_choice_is_the_heaviest_that_joins_all_dies(
    case: tuple[Wafer, list[int], dict[Hop, int], int],
) -> None:
    wafer, dies, weights, up = case
    topology = Topology.mesh(wafer)
    island = next(i for i in topology.islands if dies[0] in i)
    if not set(dies) <= set(island):
        return
    choice = heaviest_links(topology.part(island), dies, weights, up)
    want = best(links_of(wafer), dies, weights, up)
    assert choice.proven
    assert (choice.links is None) == (want is None)
    if choice.links is not None:
        assert choice.links <= links_of(wafer)
        assert max(degrees_of(choice.links)) <= up
        assert joins(choice.links, dies)
        assert sum(weights.get(k, 0) for k in choice.links) == want


@pytest.mark.parametrize("up", [2, 3])
@pytest.mark.parametrize("degrees", [{"dp": 2, "tatp": 4}, {"tp": 2, "pp": 2}, {"tatp": 8}])
def test_a_program_has_so_many_links_at_a_die_and_its_dies_are_joined(
    degrees: dict[str, int], up: int
) -> None:
    wafer = Wafer("w", 3, 4, dead_dies=frozenset({(1, 1)}), circuits=Circuits(up, 4))
    placed = Place().run(sharded(degrees, wafer))
    links = frozenset(links_of(placed.machine))
    assert max(degrees_of(links)) <= up
    assert joins(links, list(placed.dies))
    assert links <= links_of(replace(wafer, circuits=None))
    assert placed.machine.live_links == 2 * len(links)
    # What is reported of the groups is how they lie on the links that are up.
    lies = placement(placed).axis("tatp").kind if "tatp" in degrees else None
    if lies is GroupKind.RING:
        rings = [placed.dies[i : i + degrees["tatp"]] for i in range(0, len(placed.dies), degrees["tatp"])]
        assert all(dead_link(r[i - 1], r[i]) in links for r in rings for i in range(len(r)))  # type: ignore[arg-type]


def test_a_ring_of_all_dies_keeps_its_links_with_two_at_a_die() -> None:
    found = placement(sharded({"tatp": 8}, Wafer("w", 2, 4, circuits=Circuits(2, 4))))
    assert found.axis("tatp").kind is GroupKind.RING
    assert found.axis("tatp").hops == 8


def test_three_links_at_a_die_keep_the_rings_of_a_large_wafer() -> None:
    shape = (AxisSpec("dp", 9, weight=0.05), AxisSpec("tp", 4, weight=0.5), AxisSpec("tatp", 4, ring=True))
    linked = on_circuits(
        Wafer("w", 12, 12, circuits=Circuits(3, 4)), shape, lambda wafer: place_on(wafer, shape)
    )
    assert linked.placement.axis("tatp").kind is GroupKind.RING
    assert max(degrees_of(frozenset(links_of(linked.wafer)))) == 3


def test_links_that_were_chosen_are_chosen_anew_for_another_program() -> None:
    wafer = Wafer("w", 2, 4, circuits=Circuits(2, 4))
    first = Place().run(sharded({"dp": 2, "tp": 4}, wafer))
    again = Place().run(sharded({"tatp": 8}, first.machine))
    assert again == Place().run(sharded({"tatp": 8}, wafer))


# ---- refusals


def refused(degrees: dict[str, int], wafer: Wafer) -> tuple[Code, str, str]:
    with pytest.raises(CompileError) as caught:
        Place().run(sharded(degrees, wafer))
    (d,) = caught.value.diagnostics
    return d.code, d.message, d.help


# A die and its four neighbours: links at two of its sides join three of them.
PLUS = Wafer("plus", 3, 3, dead_dies=frozenset({(0, 0), (0, 2), (2, 0), (2, 2)}), circuits=Circuits(2, 4))


def test_dies_that_no_choice_joins_are_refused_with_one_that_works() -> None:
    code, message, help = refused({"dp": 2, "sp": 2}, PLUS)
    assert code is Code.DISCONNECTED
    assert "needs 4 dies" in message
    assert "`circuits 2 of 4`" in message
    assert help == "write `circuits 3 of 4`"
    placed = Place().run(sharded({"dp": 2, "sp": 2}, replace(PLUS, circuits=Circuits(3, 4))))
    assert joins(frozenset(links_of(placed.machine)), list(placed.dies))
    assert refused({"tp": 4}, Wafer("w", 2, 4, circuits=Circuits(1, 4)))[2] == "write `circuits 2 of 4`"


def test_a_larger_wafer_than_links_are_chosen_on_is_refused() -> None:
    code, message, _ = refused({"dp": 2}, Wafer("w", 33, 32, circuits=Circuits(2, 4)))
    assert code is Code.LIMIT
    assert f"{MOST_DIES:,}" in message
