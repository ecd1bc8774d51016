"""`route`: every message has a live path from its sender to its receiver, XY where that is alive."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise
from random import Random

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fabric_modules import CASES, DTYPE, Case, module_of, some
from wscc.analysis.link_loads import link_bytes, phase_loads
from wscc.diagnostics import Code, CompileError
from wscc.ir.fabric import Kernel, Transfer
from wscc.ir.module import Module
from wscc.ir.per_die import NOBODY, at, per_die
from wscc.ir.routes import ALONE, Leg, crossings
from wscc.ir.routes import Route as IrRoute
from wscc.ir.verify import verify
from wscc.ir.views import View
from wscc.machine.wafer import Die, Link, Wafer
from wscc.passes.form_phases import FormPhases
from wscc.passes.route import Route

CYCLE = per_die((1, 2, 3, 0))


ROUTES = (Route(), Route(adaptive=False), Route(max_paths=1))


PLAIN = Route(adaptive=False)


def routed(module: Module, how: Route = PLAIN) -> Module:
    return how.run(FormPhases().run(module))


def live_mesh(wafer: Wafer) -> nx.Graph:
    """The wafer by another library, nodes numbered row-major."""
    mesh = nx.grid_2d_graph(wafer.rows, wafer.cols)
    mesh.remove_nodes_from(wafer.dead_dies)
    mesh.remove_edges_from(wafer.dead_links)
    return nx.relabel_nodes(mesh, {(r, c): r * wafer.cols + c for r, c in mesh})


def messages(module: Module) -> list[tuple[Transfer, int, int, IrRoute]]:
    """(transfer, physical source, physical destination, route) of every message."""
    return [
        (s, module.dies[i], module.dies[j], module.routes[at(s.route, i)])
        for p in module.procedures
        for s in p.body
        if isinstance(s, Transfer)
        for i, j in s.pairs(module.dies_used)
    ]


@some
@given(CASES, st.sampled_from(ROUTES))
def test_every_message_has_live_paths_and_no_circle_of_waiting(case: Case, how: Route) -> None:
    module = routed(case.module, how)
    mesh = live_mesh(module.machine)
    waits = nx.DiGraph()
    for _, source, destination, route in messages(module):
        assert len(route.legs) <= how.max_paths
        for leg in route.legs:
            assert (leg.path[0], leg.path[-1]) == (source, destination)
            assert all(mesh.has_edge(a, b) for a, b in pairwise(leg.path))
            assert 0 <= leg.channel < module.machine.link.channels
            assert leg.share > 0
            waits.add_edges_from(pairwise((leg.channel, *hop) for hop in pairwise(leg.path)))
    assert nx.is_directed_acyclic_graph(waits)
    assert len(set(module.routes)) == len(module.routes)
    assert {route for *_, route in messages(module)} == set(module.routes)


@some
@given(CASES)
def test_initial_routes_are_shortest_paths_or_keep_to_the_channels(case: Case) -> None:
    module = routed(case.module)
    mesh = live_mesh(module.machine)
    whole = not (module.machine.dead_dies or module.machine.dead_links)
    for _, source, destination, route in messages(module):
        (leg,) = route.legs
        shortest = nx.shortest_path_length(mesh, source, destination)
        assert route.hops == shortest or (not whole and route.hops > shortest)
        assert (leg.share, route.merged) == (1, ALONE)


@some
@given(CASES)
def test_routing_never_loads_a_link_more_than_the_initial_routes(case: Case) -> None:
    plain, tuned = phase_loads(routed(case.module)), phase_loads(routed(case.module, Route()))
    for before, after in zip(plain, tuned, strict=True):
        assert after.max_link_bytes <= before.max_link_bytes
        assert (after.name, after.xy_max_link_bytes) == (before.name, before.xy_max_link_bytes)


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
    assert [route.legs[0].path for *_, route in messages(module)] == [
        (0, 1, 2, 5, 8), (8, 5, 2), (2, 1, 0, 3, 6), (6, 3, 0),
    ]  # fmt: skip


def test_a_dead_xy_path_gives_way_to_a_live_one() -> None:
    dead = Wafer("w", 3, 3, dead_links=frozenset([((0, 1), (0, 2))]))
    module = routed(ring_of_four(dead, (0, 8, 2, 6)))
    mesh = live_mesh(dead)
    for _, source, destination, route in messages(module):
        assert all(mesh.has_edge(a, b) for a, b in pairwise(route.legs[0].path))
        assert route.hops == nx.shortest_path_length(mesh, source, destination)


def test_islands_are_refused() -> None:
    cut = Wafer("w", 1, 5, dead_dies=frozenset([(0, 2)]))
    with pytest.raises(CompileError) as caught:
        routed(ring_of_four(cut, (0, 1, 3, 4)))
    assert caught.value.diagnostics[0].code is Code.DISCONNECTED
    assert "(0, 1) and (0, 3)" in caught.value.diagnostics[0].message


@some
@given(CASES, st.sampled_from(ROUTES))
def test_loads_count_each_part_of_a_message_on_each_link_of_its_leg(case: Case, how: Route) -> None:
    module = routed(case.module, how)
    expected: dict[tuple[str, int], Counter[tuple[int, int]]] = {}
    for p in module.procedures:
        for s, _, _, route in messages(module.with_(procedures=(p,))):
            links = expected.setdefault((p.name, s.phase), Counter())
            for leg, part in zip(route.legs, route.parts(s.read.elements * 8), strict=True):
                links.update({hop: part for hop in pairwise(leg.path)})
    loads = {load.name: load for load in phase_loads(module, bounds=True)}
    for (name, phase), links in expected.items():
        load = loads[f"{name}/{phase}"]
        assert load.max_link_bytes == max(links.values(), default=0)
        assert load.lp_bound_bytes is not None
        assert load.lp_bound_bytes <= load.max_link_bytes
        transfers = [s for s in module.procedure(name).body if isinstance(s, Transfer) and s.phase == phase]
        assert link_bytes(module, transfers) == {link: n for link, n in links.items() if n}


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(0, 1 << 70))
def test_parts_of_a_message_are_its_bytes_by_share(shares: list[int], amount: int) -> None:
    parts = IrRoute(tuple(Leg((0, 1), 0, share) for share in shares)).parts(amount)
    assert sum(parts) == amount
    for share, part in zip(shares, parts, strict=True):
        assert abs(part - amount * Fraction(share, sum(shares))) < 1


def square(content: str, size: int, *shifts: int) -> Module:
    """Four dies at the corners of a mesh of 3 x 3; each sends to those so many places further."""
    transfers = []
    for i, shift in enumerate(shifts):
        to = per_die((d + shift) % 4 for d in range(4))
        read, write = (View(name, 0, (size,), (1,), DTYPE) for name in ("in0", f"t{i}"))
        transfers.append(Transfer(i, to, read, write, "g", content))
    return module_of(4, transfers).with_(machine=Wafer("w", 3, 3), dies=(0, 2, 8, 6))


def test_the_same_bytes_for_several_dies_cross_a_shared_link_once() -> None:
    apart = routed(square("", 8, 1, 2, 3), Route())
    merged = routed(square("x", 8, 1, 2, 3), Route())
    assert {route.merged for route in apart.routes} == {ALONE}
    trees = {route.merged for route in merged.routes}
    assert len(trees) == 4
    assert ALONE not in trees
    for tree in trees:
        own = [route for route in merged.routes if route.merged == tree]
        assert len({route.ends[0] for route in own}) == 1
        links = {hop for route in own for hop in route.legs[0].hops}
        heads = [b for _, b in links]
        assert len(heads) == len(set(heads)), "a die has the bytes from one side only"
        assert sum(len(hops) for hops in crossings(own)) == len(links)
    transfers = [s for p in merged.procedures for s in p.body if isinstance(s, Transfer)]
    total = sum(link_bytes(merged, transfers).values())
    assert total == 64 * sum(len(hops) for hops in crossings(merged.routes))
    assert total < sum(link_bytes(apart, transfers_of(apart)).values())


def transfers_of(module: Module) -> list[Transfer]:
    return [s for p in module.procedures for s in p.body if isinstance(s, Transfer)]


def test_a_large_message_alone_is_split_over_all_links_of_its_die() -> None:
    to = per_die((1, NOBODY))
    read, write = (View(name, 0, (1 << 20,), (1,), DTYPE) for name in ("in0", "t0"))
    module = module_of(2, [Transfer(0, to, read, write, "g")]).with_(machine=Wafer("w", 3, 3), dies=(0, 8))
    (load,) = phase_loads(routed(module, Route()), bounds=True)
    assert load.xy_max_link_bytes == 8 << 20
    assert load.max_link_bytes == load.lp_bound_bytes == 4 << 20


@pytest.mark.parametrize(("seed", "side", "dead", "phases"), [(0, 4, 3, 6), (0, 5, 5, 8), (10, 5, 5, 8)])
def test_all_phases_share_their_virtual_channels(seed: int, side: int, dead: int, phases: int) -> None:
    """A die may be in one phase while another is in the one before. On these wafers, channels made for each phase
    alone would allow turns that close a circle together."""
    rng = Random(seed)
    holes = frozenset(divmod(d, side) for d in rng.sample(range(side * side), dead))
    wafer = Wafer("w", side, side, dead_dies=holes)
    dies = tuple(sorted(live_mesh(wafer)))
    body = []
    for i in range(phases):
        to = [NOBODY] * len(dies)
        a, b, c, d = rng.sample(range(len(dies)), 4)
        to[a], to[b] = c, d
        read, write = (View(name, 0, (1 << 16,), (1,), DTYPE) for name in ("in0", f"t{i % 3}"))
        body.append(Transfer(i, per_die(to), read, write, f"g{i}"))
    module = FormPhases(merge=False).run(module_of(len(dies), body).with_(machine=wafer, dies=dies))
    waits = nx.DiGraph()
    for *_, route in messages(Route().run(module)):
        for leg in route.legs:
            waits.add_edges_from(pairwise((leg.channel, *hop) for hop in leg.hops))
    assert nx.is_directed_acyclic_graph(waits)


def test_a_phase_that_its_work_hides_is_left_as_it_is() -> None:
    """One large message among kernels: at enough=70 only a link busy for 70 % of their time is worth a detour."""
    to = per_die((1, NOBODY))
    read, write = (View(name, 0, (1 << 20,), (1,), DTYPE) for name in ("in0", "t0"))
    n = 512
    square = View("in0", 0, (n, n), (n, 1), DTYPE)
    work = Kernel("gemm", (square,), (square, square), (("scale", 1.0), ("accumulate", False)))
    body = [Transfer(0, to, read, write, "g"), work, Transfer(1, to, read, write, "g")]
    sent, seconds = 16 << 20, 2 * n**3 / Die().peak
    for share, detour in ((0.6, False), (0.8, True)):
        wafer = Wafer("w", 3, 3, link=Link(bandwidth=int(sent / seconds / share), latency=0))
        module = module_of(2, body).with_(machine=wafer, dies=(0, 8))
        (load,) = phase_loads(routed(module, Route(enough=70)))
        assert (load.max_link_bytes < sent) == detour


def leg(*path: int, channel: int = 0, share: int = 1) -> Leg:
    return Leg(path, channel, share)


WRONG_ROUTES = {
    "a circle": (
        [IrRoute((leg(*p),)) for p in ((0, 1, 3), (1, 3, 2), (3, 2, 0), (2, 0, 1))],
        "may wait in a circle",
    ),
    "no path": ([IrRoute(())], "it has no path"),
    "a channel that links lack": ([IrRoute((leg(0, 1, channel=2),))], "not channel 2"),
    "no share": ([IrRoute((leg(0, 1, share=0),))], "carries 0 shares"),
    "two ends": ([IrRoute((leg(0, 1), leg(0, 2)))], "do not join the same two dies"),
    "a tree of two roots": ([IrRoute((leg(0, 1),), 0), IrRoute((leg(2, 3),), 0)], "starts elsewhere"),
    "a tree of unlike shares": (
        [IrRoute((leg(0, 1),), 0), IrRoute((leg(0, 2, share=2),), 0)],
        "other shares or channels",
    ),
}


@pytest.mark.parametrize("name", WRONG_ROUTES)
def test_the_verifier_names_routes_that_cannot_be(name: str) -> None:
    routes, words = WRONG_ROUTES[name]
    module = module_of(4, []).with_(machine=Wafer("w", 2, 2), dies=(0, 1, 2, 3), routes=tuple(routes))
    assert any(words in found.message for found in verify(module))
    apart = [IrRoute((leg(0, 1, 3),)), IrRoute((leg(3, 2, 0, channel=1),)), IrRoute((leg(0, 2),), 0)]
    besides = {found.message for found in verify(module.with_(routes=()))}
    assert {found.message for found in verify(module.with_(routes=tuple(apart)))} == besides
