"""Programs of few dies on a large wafer live in a corner of it, and are what they would be on it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.models import Shape, gpt
from wscc.analysis.link_loads import phase_loads
from wscc.diagnostics import CompileError
from wscc.driver.compile import compile_graph
from wscc.driver.train import RunOptions, run
from wscc.machine.corner import corners, is_whole, topology_of
from wscc.machine.presets import preset
from wscc.machine.topology import mesh_topology
from wscc.machine.wafer import Wafer, dead_links
from wscc.passes.place.solver import place_on
from wscc.passes.place.types import AxisSpec

COORDINATES = st.tuples(st.integers(0, 19), st.integers(0, 29))


@st.composite
def damaged(draw: st.DrawFn) -> Wafer:
    dead = draw(st.frozensets(COORDINATES, max_size=60))
    cut = draw(st.frozensets(COORDINATES.filter(lambda die: die[1] < 29), max_size=20))
    links = dead_links(((r, c), (r, c + 1)) for r, c in cut)
    return Wafer("w", 20, 30, dead_dies=dead, dead_links=links)


@given(damaged(), st.integers(1, 40))
@settings(max_examples=20)
def test_a_corner_is_the_wafer_without_the_other_dies(wafer: Wafer, used: int) -> None:
    whole = mesh_topology(wafer)
    assert wafer.live_links == len(whole.links)
    sizes = []
    for corner in corners(wafer, used):
        inside = set(corner.live)
        assert corner.live == tuple(d for d in whole.live if d in inside)
        assert all(
            corner.neighbours[d] == tuple(n for n in whole.neighbours[d] if n in inside) for d in inside
        )
        assert all(corner.coordinate(d) == wafer.coordinate(d) for d in inside)
        sizes.append(len(inside))
    assert sizes == sorted(sizes)
    assert sizes[-1] == wafer.live_dies
    assert (len(sizes) == 1) == (used * 16 > wafer.dies)


@given(damaged(), st.data())
@settings(max_examples=20)
def test_links_of_the_corner_join_the_dies_that_are_used(wafer: Wafer, data: st.DataObject) -> None:
    island = mesh_topology(wafer).islands[0]
    dies = data.draw(st.lists(st.sampled_from(island), min_size=1, max_size=4, unique=True))
    topology = topology_of(wafer, dies)
    assert all(topology.shortest_path(dies[0], die) for die in dies)


def test_a_wafer_that_is_used_up_is_looked_at_whole() -> None:
    wafer = Wafer("w", 20, 30)
    assert [is_whole(c, wafer) for c in corners(wafer, 600)] == [True]
    assert is_whole(topology_of(wafer, range(0, 600, 15)), wafer)


def test_few_dies_of_hundreds_of_thousands_compile_to_what_one_device_computes() -> None:
    wafer = replace(preset("wse2"), dead_dies=frozenset({(0, 0), (3, 3), (700, 900)}))
    wafer = replace(wafer, die=replace(wafer.die, sram=80_000_000))
    graph = gpt({"dp": 2, "tatp": 2}, Shape(batch=4, layers=1, calls=1), wafer=wafer)
    compiled = compile_graph(graph)
    assert all(max(wafer.coordinate(die)) < 8 for die in compiled.artifact.streams.dies)
    assert {phase.lp_bound_bytes for phase in phase_loads(compiled.modules["route"], bounds=True)} == {None}
    check = run(compiled.artifact, RunOptions(steps=1), check=True).check
    assert check is not None
    assert check.ok, check


def test_a_corner_that_is_too_damaged_is_left_for_a_larger_one() -> None:
    dead = frozenset((r, c) for r in range(8) for c in range(8) if (r + c) % 2)  # no two neighbours
    wafer = Wafer("w", 20, 30, dead_dies=dead)
    ring = (AxisSpec("tatp", 8, ring=True),)
    placed = place_on(wafer, ring)
    assert placed.axes[0].groups[0].name == "RING"
    assert any(max(wafer.coordinate(die)) >= 8 for die in placed.dies)


def test_what_no_corner_has_is_refused_of_the_whole_wafer() -> None:
    dead = frozenset((r, c) for r in range(20) for c in range(30) if (r + c) % 2)
    with pytest.raises(CompileError) as caught:
        place_on(Wafer("w", 20, 30, dead_dies=dead), (AxisSpec("tatp", 4, ring=True),))
    (found,) = caught.value.diagnostics
    assert str(found.code) == "W302"
    assert "300" in found.message
