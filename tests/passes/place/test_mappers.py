"""The mappers to compare with: what they promise, against a graph made here, and that programs stay right."""

from __future__ import annotations

import json
from itertools import pairwise, permutations
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.models import Shape, gpt
from tests.support.paths import SAMPLES
from wscc.cli import main
from wscc.diagnostics import Code, CompileError
from wscc.driver.compile import compile_graph
from wscc.driver.train import RunOptions, run
from wscc.machine.wafer import Wafer
from wscc.passes.choices import DEFAULT_MAPPER, MAPPERS, Choices
from wscc.passes.options import parse_passes
from wscc.passes.place import Place
from wscc.passes.place.baselines import SIMPLE
from wscc.passes.place.solver import place_on
from wscc.passes.place.types import AxisSpec, GroupKind


def strategy(dp: int = 1, tp: int = 1, tatp: int = 1) -> tuple[AxisSpec, ...]:
    return AxisSpec("dp", dp, weight=0.5), AxisSpec("tp", tp), AxisSpec("tatp", tatp, ring=True)


def graph_of(wafer: Wafer) -> nx.Graph:
    graph = nx.grid_2d_graph(wafer.rows, wafer.cols)
    graph.remove_edges_from(wafer.dead_links)
    graph.remove_nodes_from(wafer.dead_dies)
    return nx.relabel_nodes(graph, {(r, c): r * wafer.cols + c for r, c in graph})


def price(wafer: Wafer, dies: tuple[int, ...], degrees: tuple[int, int, int]) -> float:
    """Traffic x hops over consecutive peers, spelled out for three axes."""
    hops = dict(nx.all_pairs_shortest_path_length(graph_of(wafer)))
    dp, tp, tatp = degrees
    total = 0.0
    at = {(i, j, k): dies[(i * tp + j) * tatp + k] for i in range(dp) for j in range(tp) for k in range(tatp)}
    for (i, j, k), die in at.items():
        for size, nxt, weight in (
            (dp, ((i + 1) % dp, j, k), 0.5), (tp, (i, (j + 1) % tp, k), 1.0), (tatp, (i, j, (k + 1) % tatp), 1.0)
        ):  # fmt: skip
            if size > 2 or (size == 2 and at[nxt] > die):
                total += weight * hops[die][at[nxt]]
    return total


@st.composite
def wafers(draw: st.DrawFn) -> Wafer:
    rows, cols = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    at = [(r, c) for r in range(rows) for c in range(cols)]
    links = [(a, b) for a in at for b in ((a[0], a[1] + 1), (a[0] + 1, a[1])) if b in at]
    dead = draw(st.frozensets(st.sampled_from(at), max_size=min(4, len(at) - 1)))
    cut = draw(st.frozensets(st.sampled_from(links), max_size=3)) if links else frozenset()
    return Wafer("w", rows, cols, dead_dies=dead, dead_links=cut)


@settings(max_examples=25, deadline=None)
@given(wafers(), st.integers(1, 3), st.integers(1, 3), st.integers(1, 5))
def test_a_mapper_refuses_only_what_no_island_holds(wafer: Wafer, dp: int, tp: int, tatp: int) -> None:
    """Each die live and used once, all on one island; `gmap` is never dearer than where it starts."""
    graph, degrees = graph_of(wafer), (dp, tp, tatp)
    islands = sorted(nx.connected_components(graph), key=len)
    prices = {}
    for mapper in ("snake", "smap", "gmap"):
        if len(islands[-1]) < dp * tp * tatp:
            with pytest.raises(CompileError) as caught:
                place_on(wafer, strategy(*degrees), mapper)
            wanted = Code.TOO_MANY_DIES if len(graph) < dp * tp * tatp else Code.DISCONNECTED
            assert caught.value.diagnostics[0].code is wanted
            continue
        placement = place_on(wafer, strategy(*degrees), mapper)
        dies = placement.dies
        assert placement.method == mapper
        assert len(dies) == len(set(dies)) == dp * tp * tatp
        assert any(part.issuperset(dies) for part in islands)
        if mapper == "smap":
            assert list(dies) == sorted(dies)
        prices[mapper] = price(wafer, dies, degrees)
        kind = placement.axis("tatp").kind
        assert bool(placement.axis("tatp").note) == (kind is not GroupKind.RING)
    if prices:
        assert prices["gmap"] <= prices["smap"] + 1e-9


@pytest.mark.parametrize(
    ("mesh", "dead", "degrees"),
    [((2, 3), [], (3, 2, 1)), ((3, 3), [(1, 1), (0, 0)], (3, 1, 2)), ((2, 4), [(0, 2)], (1, 2, 3))],
)
def test_gmap_finds_the_cheapest_of_all_on_small_wafers(
    mesh: tuple[int, int], dead: list[tuple[int, int]], degrees: tuple[int, int, int]
) -> None:
    wafer = Wafer("w", *mesh, dead_dies=frozenset(dead))
    live = sorted(graph_of(wafer))
    least = min(price(wafer, dies, degrees) for dies in permutations(live, 6))
    assert price(wafer, place_on(wafer, strategy(*degrees), "gmap").dies, degrees) == pytest.approx(least)


def test_the_snake_keeps_groups_together_where_dies_are_left() -> None:
    """Rows of five with a hole: a group of three starts again behind it."""
    wafer = Wafer("w", 2, 5, dead_dies=frozenset({(0, 1)}))
    assert place_on(wafer, strategy(dp=2, tatp=3), "snake").dies == (2, 3, 4, 9, 8, 7)
    assert place_on(wafer, strategy(dp=3, tatp=3), "snake").dies == (0, 2, 3, 4, 9, 8, 7, 6, 5)


def test_the_snake_of_a_whole_wafer_never_jumps() -> None:
    dies = place_on(Wafer("w", 3, 4), strategy(dp=3, tp=2, tatp=2), "snake").dies
    assert all(abs(a // 4 - b // 4) + abs(a % 4 - b % 4) == 1 for a, b in pairwise(dies))


def test_a_stream_whose_dies_lie_apart_still_computes_what_one_device_does() -> None:
    wafer = Wafer("w", 3, 3, dead_dies=frozenset({(0, 1)}))
    compiled = compile_graph(
        gpt({"tatp": 8}, Shape(batch=8, calls=1, layers=1), wafer=wafer), choices=Choices("smap")
    )
    place = compiled.report["placement"]
    assert (place["method"], place["axes"]["tatp"]["lies"]) == ("smap", "near")
    assert "mapper `smap` looks for no rings" in place["axes"]["tatp"]["note"]
    check = run(compiled.artifact, RunOptions(steps=2), check=True).check
    assert check is not None
    assert check.ok, check


def test_every_simple_mapper_and_the_default_have_names() -> None:
    assert set(MAPPERS) == {*SIMPLE, DEFAULT_MAPPER}


def test_every_mapper_is_an_option_of_the_pass_and_no_other_word_is() -> None:
    for mapper in MAPPERS:
        assert parse_passes(f"place{{mapper={mapper}}}") == [Place(mapper)]
    with pytest.raises(CompileError) as caught:
        parse_passes("place{mapper=spiral}")
    (found,) = caught.value.diagnostics
    assert (found.code, found.message) == (Code.OPTION, "unknown mapper `spiral`")


def test_the_command_line_chooses_the_mapper(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    small = ["--set", "model.layers=1", "--set", "model.seq=8"]
    model = str(SAMPLES / "gpt-tiny.wsl")
    assert main(["compile", model, "--mapper", "smap", "-o", out, "--json", *small]) == 0
    assert json.loads(capsys.readouterr().out)["placement"]["method"] == "smap"
    assert main(["run", out, "--mapper", "gmap"]) == 2
    assert "compiled already" in capsys.readouterr().err
    assert main(["compile", model, "--mapper", "spiral"]) == 2
