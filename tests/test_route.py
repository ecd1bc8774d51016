"""`route`: every message has a live path from its sender to its receiver, XY where that is alive."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import given

from tests.fabric_modules import CASES, DTYPE, Case, module_of, some
from wscc.diagnostics import Code, CompileError
from wscc.ir.fabric import NOBODY, Transfer, View, at, per_die
from wscc.ir.module import Module
from wscc.machine.wafer import Wafer
from wscc.passes.form_phases import FormPhases
from wscc.passes.route import Route
from wscc.passes.route_loads import link_bytes, phase_loads

CYCLE = per_die((1, 2, 3, 0))


def routed(module: Module) -> Module:
    return Route().run(FormPhases().run(module))


def live_mesh(wafer: Wafer) -> nx.Graph:
    """The wafer by another library, nodes numbered row-major."""
    mesh = nx.grid_2d_graph(wafer.rows, wafer.cols)
    mesh.remove_nodes_from(wafer.dead_dies)
    mesh.remove_edges_from(wafer.dead_links)
    return nx.relabel_nodes(mesh, {(r, c): r * wafer.cols + c for r, c in mesh})


def messages(module: Module) -> list[tuple[Transfer, int, int, tuple[int, ...]]]:
    """(transfer, physical source, physical destination, path) of every message."""
    return [
        (s, module.dies[i], module.dies[j], module.routes[at(s.route, i)])
        for p in module.procedures
        for s in p.body
        if isinstance(s, Transfer)
        for i, j in s.pairs(module.dies_used)
    ]


@some
@given(CASES)
def test_every_message_has_a_shortest_live_path(case: Case) -> None:
    module = routed(case.module)
    mesh = live_mesh(module.machine)
    for _, source, destination, path in messages(module):
        assert (path[0], path[-1]) == (source, destination)
        assert all(mesh.has_edge(a, b) for a, b in pairwise(path))
        assert len(path) - 1 == nx.shortest_path_length(mesh, source, destination)
    assert len(set(module.routes)) == len(module.routes)
    assert {path for *_, path in messages(module)} == set(module.routes)


@some
@given(CASES)
def test_dies_that_send_nothing_have_no_route(case: Case) -> None:
    module = case.module
    for p in routed(module).procedures:
        for s in p.body:
            if isinstance(s, Transfer):
                assert [at(s.route, d) == NOBODY for d in range(module.dies_used)] == [
                    at(s.to, d) == NOBODY for d in range(module.dies_used)
                ]


def whole(buffer: str) -> View:
    return View(buffer, 0, (8,), (1,), DTYPE)


def ring_of_four(wafer: Wafer, dies: tuple[int, ...]) -> Module:
    module = module_of(4, [Transfer(0, CYCLE, whole("in0"), whole("t0"), "g")])
    return module.with_(machine=wafer, dies=dies)


def test_rows_come_before_columns() -> None:
    module = routed(ring_of_four(Wafer("w", 3, 3), (0, 8, 2, 6)))
    assert [path for *_, path in messages(module)] == [
        (0, 1, 2, 5, 8), (8, 5, 2), (2, 1, 0, 3, 6), (6, 3, 0),
    ]  # fmt: skip


def test_a_dead_xy_path_gives_way_to_a_live_one() -> None:
    dead = Wafer("w", 3, 3, dead_links=frozenset([((0, 1), (0, 2))]))
    module = routed(ring_of_four(dead, (0, 8, 2, 6)))
    mesh = live_mesh(dead)
    for _, source, destination, path in messages(module):
        assert all(mesh.has_edge(a, b) for a, b in pairwise(path))
        assert len(path) - 1 == nx.shortest_path_length(mesh, source, destination)


def test_islands_are_refused() -> None:
    cut = Wafer("w", 1, 5, dead_dies=frozenset([(0, 2)]))
    with pytest.raises(CompileError) as caught:
        routed(ring_of_four(cut, (0, 1, 3, 4)))
    assert caught.value.diagnostics[0].code is Code.DISCONNECTED
    assert "(0, 1) and (0, 3)" in caught.value.diagnostics[0].message


@some
@given(CASES)
def test_loads_count_each_message_on_each_link_of_its_path(case: Case) -> None:
    module = routed(case.module)
    expected: dict[tuple[str, int], Counter[tuple[int, int]]] = {}
    for p in module.procedures:
        for s, _, _, path in messages(module.with_(procedures=(p,))):
            expected.setdefault((p.name, s.phase), Counter()).update(
                {hop: s.read.elements * 8 for hop in pairwise(path)}
            )
    loads = {load.name: load for load in phase_loads(module)}
    for (name, phase), links in expected.items():
        load = loads[f"{name}/{phase}"]
        assert load.max_link_bytes == max(links.values(), default=0) == load.xy_max_link_bytes
        assert (load.lp_bound_bytes, load.gap_percent) == (None, None)
        transfers = [s for s in module.procedure(name).body if isinstance(s, Transfer) and s.phase == phase]
        assert link_bytes(module, transfers) == dict(links)
