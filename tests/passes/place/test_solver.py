"""Placement against oracles written here: strategies to accept, properties of placements, the best of all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise, permutations
from math import prod
from random import Random

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.hash_seed import printed_under_two_hash_seeds
from wscc.diagnostics import Code, CompileError
from wscc.machine.topology import Topology, mesh_topology
from wscc.machine.wafer import Wafer
from wscc.passes.place.assign import Regions, assign, exchange
from wscc.passes.place.check import PlacementBug, check_placement
from wscc.passes.place.cpsat_rings import exact_regions
from wscc.passes.place.cpsat_whole import joint
from wscc.passes.place.grow import RegionSpec, grow_regions
from wscc.passes.place.hops import Hops, Price
from wscc.passes.place.lattice import best_tilings, walk_grid
from wscc.passes.place.solver import place_on, solve
from wscc.passes.place.types import AxisSpec, GroupKind, Placement

RING, PATH, NEAR = GroupKind.RING, GroupKind.PATH, GroupKind.NEAR


def strategy(dp: int = 1, tp: int = 1, tatp: int = 1) -> tuple[AxisSpec, ...]:
    return AxisSpec("dp", dp), AxisSpec("tp", tp), AxisSpec("tatp", tatp, ring=True)


def graph_of(wafer: Wafer) -> nx.Graph:
    graph = nx.grid_2d_graph(wafer.rows, wafer.cols)
    graph.remove_edges_from(wafer.dead_links)
    graph.remove_nodes_from(wafer.dead_dies)
    return nx.relabel_nodes(graph, {(r, c): r * wafer.cols + c for r, c in graph})


def groups_of(shape: tuple[AxisSpec, ...], axis: int) -> list[list[int]]:
    """By coordinates, spelled out."""
    sizes = [a.size for a in shape]
    groups: dict[tuple[int, ...], list[int]] = {}
    for logical, at in enumerate(np.ndindex(*sizes)):
        groups.setdefault((*at[:axis], *at[axis + 1 :]), []).append(logical)
    return list(groups.values())


def is_walk(graph: nx.Graph, dies: list[int], closed: bool) -> bool:
    joined = all(graph.has_edge(a, b) for a, b in pairwise(dies))
    return joined and (not closed or len(dies) <= 2 or graph.has_edge(dies[-1], dies[0]))


def assert_valid(wafer: Wafer, shape: tuple[AxisSpec, ...], placement: Placement) -> None:
    graph = graph_of(wafer)
    dies = placement.dies
    assert len(dies) == len(set(dies)) == prod(a.size for a in shape)
    assert any(part.issuperset(dies) for part in nx.connected_components(graph))
    for i, axis in enumerate(shape):
        kinds = []
        for group in groups_of(shape, i):
            walk = [dies[k] for k in group]
            kinds.append(
                RING if is_walk(graph, walk, True) else PATH if is_walk(graph, walk, False) else NEAR
            )
        reported = placement.axis(axis.name)
        assert reported.groups == tuple(kinds)
        assert reported.kind == max(kinds, key=[RING, PATH, NEAR].index)
        assert not axis.ring or reported.kind is not NEAR
        assert bool(reported.note) == (axis.ring and reported.kind is PATH)


# ---- which strategies must be accepted: brute force


def walks_of(graph: nx.Graph, size: int, closed: bool) -> set[int]:
    """All sets of dies that some walk of that size visits, as bits."""
    visited_sets: set[int] = set()

    def extend(walk: list[int], visited: int) -> None:
        if len(walk) == size:
            if is_walk(graph, walk, closed):
                visited_sets.add(visited)
            return
        for n in graph[walk[-1]]:
            if not visited >> n & 1:
                extend([*walk, n], visited | 1 << n)

    for start in graph:
        extend([start], 1 << start)
    return visited_sets


def holds(graph: nx.Graph, size: int, count: int, closed: bool) -> bool:
    """Whether `count` disjoint groups fit on one island."""
    parts = [p for p in nx.connected_components(graph) if len(p) >= size * count]
    return any(packs(graph.subgraph(p), size, count, closed) for p in parts)


def packs(graph: nx.Graph, size: int, count: int, closed: bool) -> bool:
    """The lowest free die is in one of the groups, or in none."""
    starting: dict[int, list[int]] = {}
    for visited in walks_of(graph, size, closed):
        starting.setdefault(visited & -visited, []).append(visited)

    @cache
    def fit(free: int, count: int) -> bool:
        if count == 0 or free.bit_count() < size * count:
            return count == 0
        lowest = free & -free
        here = (w for w in starting.get(lowest, ()) if not w & ~free)
        return any(fit(free & ~w, count - 1) for w in here) or fit(free & ~lowest, count)

    return fit(sum(1 << d for d in graph), count)


@st.composite
def wafers(draw: st.DrawFn, cells: int) -> Wafer:
    rows = draw(st.integers(1, 4))
    cols = draw(st.integers(1, min(4, cells // rows)))
    at = [(r, c) for r in range(rows) for c in range(cols)]
    links = [(a, b) for a in at for b in ((a[0], a[1] + 1), (a[0] + 1, a[1])) if b in at]
    dead = draw(st.frozensets(st.sampled_from(at), max_size=min(3, len(at) - 1)))
    cut = draw(st.frozensets(st.sampled_from(links), max_size=3)) if links else frozenset()
    return Wafer("w", rows, cols, dead_dies=dead, dead_links=cut)


def placed_or_refused(wafer: Wafer, shape: tuple[AxisSpec, ...]) -> Placement | Code:
    try:
        return place_on(wafer, shape)
    except CompileError as error:
        return error.diagnostics[0].code


@settings(max_examples=25, deadline=None)
@given(wafers(16), st.integers(1, 3), st.integers(1, 2), st.integers(1, 16))
def test_what_exists_is_found_and_what_is_refused_does_not_exist(
    wafer: Wafer, dp: int, tp: int, tatp: int
) -> None:
    shape, graph = strategy(dp, tp, tatp), graph_of(wafer)
    largest = max((len(p) for p in nx.connected_components(graph)), default=0)
    answer = placed_or_refused(wafer, shape)
    if answer is Code.TOO_MANY_DIES:
        assert dp * tp * tatp > len(graph)
    elif answer is Code.DISCONNECTED:
        assert len(graph) >= dp * tp * tatp > largest
    elif answer is Code.NO_PATH:
        assert not holds(graph, tatp, dp * tp, closed=False)
    else:
        assert isinstance(answer, Placement)
        assert_valid(wafer, shape, answer)
        if tatp > 1 and answer.axis("tatp").kind is PATH:
            assert not holds(graph, tatp, dp * tp, closed=True)


@settings(max_examples=25, deadline=None)
@given(wafers(16), st.integers(1, 4), st.integers(1, 4))
def test_two_ring_axes_keep_both_rules(wafer: Wafer, first: int, second: int) -> None:
    shape = (AxisSpec("sp", first, ring=True), AxisSpec("tatp", second, ring=True))
    answer = placed_or_refused(wafer, shape)
    if isinstance(answer, Placement):
        assert_valid(wafer, shape, answer)
    else:
        assert answer in (Code.TOO_MANY_DIES, Code.DISCONNECTED, Code.NO_PATH)


@pytest.mark.parametrize(
    ("mesh", "dead", "size", "kind"),
    [
        ((1, 8), [], 8, PATH),
        ((1, 2), [], 2, RING),
        ((2, 4), [], 8, RING),
        ((4, 8), [], 32, RING),
        ((3, 3), [], 9, PATH),
        ((5, 5), [], 25, PATH),
        ((5, 5), [], 24, RING),
        ((3, 3), [(1, 1)], 8, RING),
        ((3, 3), [(0, 1)], 8, None),
        ((5, 5), [(0, 1)], 24, None),
        ((4, 4), [(0, 0)], 15, PATH),
        ((4, 4), [(0, 0)], 14, RING),
        ((4, 4), [(0, 0), (0, 3)], 14, RING),
        ((4, 4), [(0, 0), (3, 3)], 14, None),
        ((4, 4), [(0, 0), (3, 3)], 13, PATH),
    ],
)
def test_one_group_over_all_live_dies(
    mesh: tuple[int, int], dead: list[tuple[int, int]], size: int, kind: GroupKind | None
) -> None:
    wafer = Wafer("w", *mesh, dead_dies=frozenset(dead))
    if kind is None:
        with pytest.raises(CompileError) as caught:
            place_on(wafer, strategy(tatp=size))
        assert caught.value.diagnostics[0].code is Code.NO_PATH
    else:
        placement = place_on(wafer, strategy(tatp=size))
        assert_valid(wafer, strategy(tatp=size), placement)
        assert placement.axis("tatp").kind is kind


def test_a_box_whose_ring_is_cut_by_a_dead_link_is_not_taken() -> None:
    wafer = Wafer("w", 6, 6, dead_links=frozenset({((0, 0), (1, 0))}))
    assert place_on(wafer, strategy(tatp=16)).axis("tatp").kind is RING


# ---- the words of refusals


def refusal(wafer: Wafer, shape: tuple[AxisSpec, ...]) -> tuple[Code, str, list[dict[str, int]]]:
    """The code, the message, and the strategies that may fit instead."""
    with pytest.raises(CompileError) as caught:
        place_on(wafer, shape)
    (diagnostic,) = caught.value.diagnostics
    return diagnostic.code, diagnostic.message, [dict(c.parallel or ()) for c in diagnostic.candidates]


def test_too_many_dies_names_both_numbers_and_the_nearest_strategy() -> None:
    code, message, smaller = refusal(Wafer("w", 2, 4), strategy(dp=4, tp=4))
    assert code is Code.TOO_MANY_DIES
    assert message == "`dp=4,tp=4` needs 16 dies, and the wafer has 8"
    assert smaller[0] == {"dp": 2, "tp": 4}


def test_islands_are_named() -> None:
    row = frozenset((1, c) for c in range(4))
    code, message, smaller = refusal(Wafer("w", 4, 4, dead_dies=row), strategy(dp=3, tatp=4))
    assert code is Code.DISCONNECTED
    assert "2 islands: 8 dies from (2, 0), 4 dies from (0, 0)" in message
    assert smaller[0] == {"dp": 3, "tatp": 2}


def test_colours_are_explained_and_shorter_groups_are_candidates() -> None:
    wafer = Wafer("w", 3, 3, dead_dies=frozenset({(0, 1)}))
    code, message, smaller = refusal(wafer, strategy(tatp=8))
    assert code is Code.NO_PATH
    assert "need 4 dies of each at least; 5 and 3 are usable" in message
    assert [s.get("tatp", 1) for s in smaller] == [7, 6, 5, 4, 2, 1]


def test_only_groups_of_several_dies_count_as_rings_or_paths() -> None:
    placement = place_on(Wafer("w", 2, 4), strategy(dp=2, tatp=3))
    assert (placement.rings, placement.paths) == (3, 2)


def test_a_strategy_of_one_die_takes_one() -> None:
    wafer = Wafer("w", 2, 2, dead_dies=frozenset({(0, 0)}))
    placement = place_on(wafer, ())
    assert len(placement.dies) == 1
    assert_valid(wafer, (), placement)


def test_a_wafer_without_a_live_die_is_refused() -> None:
    code, message, _ = refusal(Wafer("w", 1, 1, dead_dies=frozenset({(0, 0)})), ())
    assert code is Code.TOO_MANY_DIES
    assert "(1 of 1 are dead)" in message


# ---- how good placements are


class Bill:
    """Traffic x hops, spelled out; infinite where a ring axis is not of closed rings."""

    def __init__(self, topology: Topology, shape: tuple[AxisSpec, ...]) -> None:
        self.shape, self.graph = shape, nx.Graph(topology.links)
        self.hops = dict(nx.all_pairs_shortest_path_length(self.graph))
        self.groups = [(axis, groups_of(shape, i)) for i, axis in enumerate(shape)]

    def of(self, dies: tuple[int, ...]) -> float:
        price = 0.0
        for axis, groups in self.groups:
            for group in groups:
                walk = [dies[k] for k in group]
                if axis.ring and not is_walk(self.graph, walk, True):
                    return float("inf")
                last = axis.closing * self.hops[walk[-1]][walk[0]] if len(walk) > 2 else 0
                price += axis.weight * (sum(self.hops[a][b] for a, b in pairwise(walk)) + last)
        return price


@pytest.mark.parametrize(
    ("mesh", "dead", "degrees", "weights"),
    [
        ((2, 3), [], (3, 2, 1), (1.0, 1.0)),
        ((2, 3), [], (1, 3, 2), (1.0, 1.0)),
        ((2, 3), [], (3, 1, 2), (1.0, 1.0)),
        ((2, 3), [], (2, 3, 1), (8.0, 1.0)),
        ((3, 3), [(0, 0), (2, 2)], (1, 3, 2), (1.0, 1.0)),
        ((3, 3), [(1, 1), (0, 0)], (3, 2, 1), (1.0, 5.0)),
    ],
)
@pytest.mark.parametrize("closing", [1.0, 0.0, 3.0])
def test_small_placements_are_the_cheapest_of_all(
    mesh: tuple[int, int],
    dead: list[tuple[int, int]],
    degrees: tuple[int, int, int],
    weights: tuple[float, float],
    closing: float,
) -> None:
    topology = mesh_topology(Wafer("w", *mesh, dead_dies=frozenset(dead)))
    dp, tp, tatp = strategy(*degrees)
    shape = (replace(dp, weight=weights[0], closing=closing), replace(tp, weight=weights[1]), tatp)
    bill = Bill(topology, shape)
    least = min(bill.of(dies) for dies in permutations(topology.live, prod(degrees)))
    assert bill.of(solve(topology, shape).dies) == least


def test_traffic_decides_which_axis_is_close() -> None:
    topology = mesh_topology(Wafer("w", 4, 4))
    for heavy, light in (("dp", "tp"), ("tp", "dp")):
        shape = (AxisSpec("dp", 4, weight=100.0 if heavy == "dp" else 1.0),
                 AxisSpec("tp", 4, weight=100.0 if heavy == "tp" else 1.0))  # fmt: skip
        placement = solve(topology, shape)
        assert placement.axis(heavy).kind is RING
        assert placement.axis(heavy).hops < placement.axis(light).hops


@pytest.mark.parametrize(
    "degrees", [(2, 2, 2), (2, 1, 4), (1, 2, 4), (4, 1, 2), (1, 4, 2), (2, 2, 1), (1, 1, 8)]
)
@pytest.mark.parametrize("dead", [[], [(0, 1)], [(1, 3)]])
def test_the_strategies_of_a_2x4_wafer_get_rings(
    degrees: tuple[int, int, int], dead: list[tuple[int, int]]
) -> None:
    wafer, shape = Wafer("w", 2, 4, dead_dies=frozenset(dead)), strategy(*degrees)
    if prod(degrees) > wafer.live_dies:
        return
    placement = place_on(wafer, shape)
    assert_valid(wafer, shape, placement)
    assert placement.axis("tatp").kind is RING


@pytest.mark.parametrize(
    ("mesh", "degrees"),
    [
        ((6, 8), (3, 2, 8)),
        ((6, 8), (3, 1, 16)),
        ((12, 12), (9, 1, 16)),
        ((32, 32), (4, 16, 16)),
        ((32, 32), (1, 1, 1024)),
    ],
)
def test_whole_wafers_are_tiled_with_closed_rings(
    mesh: tuple[int, int], degrees: tuple[int, int, int]
) -> None:
    wafer, shape = Wafer("w", *mesh), strategy(*degrees)
    placement = place_on(wafer, shape)
    assert placement.method in ("tile", "boxes")
    assert placement.axis("tatp").kind is RING
    assert (
        Price(Hops(mesh_topology(wafer)), shape).of(np.array(placement.dies))
        <= best_tilings(shape, mesh)[0].price
    )
    assert placement.rings + placement.paths >= degrees[0] * degrees[1]


@pytest.mark.parametrize(
    ("mesh", "every", "degrees"),
    [((6, 8), 23, (5, 1, 8)), ((12, 12), 41, (4, 2, 16)), ((32, 32), 97, (4, 14, 16))],
)
def test_damaged_wafers_still_get_closed_rings(
    mesh: tuple[int, int], every: int, degrees: tuple[int, int, int]
) -> None:
    dead = frozenset(divmod(d, mesh[1]) for d in range(every // 2, mesh[0] * mesh[1], every))
    wafer, shape = Wafer("w", *mesh, dead_dies=dead), strategy(*degrees)
    placement = place_on(wafer, shape)
    assert placement.axis("tatp").kind is RING
    assert placement.method != "tile"


# ---- the parts of the solver


@given(st.integers(1, 7), st.integers(1, 7))
def test_the_walk_of_a_grid_is_closed_whenever_that_is_possible(height: int, width: int) -> None:
    cells = walk_grid(height, width)
    graph = nx.grid_2d_graph(height, width)
    assert sorted(cells) == sorted(graph)
    assert all(graph.has_edge(a, b) for a, b in pairwise(cells))
    if min(height, width) > 1 and height * width % 2 == 0:
        assert graph.has_edge(cells[-1], cells[0])


@settings(max_examples=75, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), st.integers(1, 3), st.integers(1, 6))
def test_tilings_keep_their_promises(rows: int, cols: int, dp: int, tp: int, tatp: int) -> None:
    wafer, shape = Wafer("w", rows, cols), strategy(dp, tp, tatp)
    topology = mesh_topology(wafer)
    graph, price = graph_of(wafer), Price(Hops(topology), shape)
    for tiling in best_tilings(shape, (rows, cols)):
        dies = tiling.offsets @ (cols, 1)
        assert len(set(dies.tolist())) == dp * tp * tatp
        assert price.of(dies) == tiling.price
        walks = [[int(dies[k]) for k in group] for group in groups_of(shape, 2)]
        assert all(is_walk(graph, walk, not tiling.open) for walk in walks)


def regions_of(wafer: Wafer, spec: RegionSpec) -> Iterator[list[tuple[int, ...]] | None]:
    topology = mesh_topology(wafer)
    island = topology.islands[0]
    part = topology.part(island)
    yield grow_regions(part, island, spec, seed=0, tries=4)
    yield exact_regions(part, island, spec, seed=0, limit=1.0).regions


@settings(max_examples=25, deadline=None)
@given(wafers(16), st.integers(2, 8), st.integers(1, 3), st.booleans())
def test_regions_are_disjoint_walks(wafer: Wafer, size: int, count: int, closed: bool) -> None:
    graph = graph_of(wafer)
    for regions in regions_of(wafer, RegionSpec(size, count, closed)):
        if regions is not None:
            dies = [d for region in regions for d in region]
            assert len(dies) == len(set(dies)) == size * count
            assert all(is_walk(graph, list(r), closed) for r in regions)


@pytest.mark.parametrize("closed", [True, False])
def test_grown_regions_of_larger_wafers_are_disjoint_walks(closed: bool) -> None:
    random, count = Random(0), 0
    for _ in range(60):
        holes = random.sample(range(64), random.randint(0, 16))
        wafer = Wafer("w", 8, 8, dead_dies=frozenset(divmod(h, 8) for h in holes))
        topology, graph = mesh_topology(wafer), graph_of(wafer)
        spec = RegionSpec(2 * random.randint(2, 12) + (not closed), random.randint(1, 3), closed)
        regions = grow_regions(topology, topology.live, spec, seed=0, tries=6)
        if regions is not None:
            count += 1
            assert len({d for region in regions for d in region}) == spec.size * spec.count
            assert all(is_walk(graph, list(r), closed) for r in regions)
    assert count > 20


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("degrees", [(2, 1, 4), (1, 1, 8), (1, 2, 4)])
def test_the_model_of_everything_needs_no_hint(degrees: tuple[int, int, int], closed: bool) -> None:
    wafer, shape = Wafer("w", 3, 4, dead_dies=frozenset({(2, 3)})), strategy(*degrees)
    placement = joint(mesh_topology(wafer), shape, closed, None, seed=0, limit=1.0)
    assert placement.dies is not None
    dies = placement.dies.tolist()
    assert all(is_walk(graph_of(wafer), [dies[k] for k in g], closed) for g in groups_of(shape, 2))


def test_rings_are_turned_until_their_peers_are_opposite() -> None:
    """Two 4 x 4 rings side by side: turned rightly, every die is 4 hops from its peer."""
    topology = mesh_topology(Wafer("w", 4, 8))
    ring = [r * 8 + c for r, c in walk_grid(4, 4)]
    other = [d + 4 for d in ring]
    turned = [*other[5:], *other[:5]][::-1]
    shape = strategy(tp=2, tatp=16)
    price = Price(Hops(topology), shape)
    dies = assign(topology, shape, Regions((2,), np.array([ring, turned]), "", turned=True), True, price).dies
    assert price.by_axis(dies) == [0, 64, 32]


def test_regions_in_any_order_are_assigned_nearly_as_well_as_tiles() -> None:
    topology = mesh_topology(Wafer("w", 8, 8))
    shape = strategy(dp=4, tp=4, tatp=4)
    tiles = [[8 * (r + i) + c + j for i, j in walk_grid(2, 2)] for r in (0, 2, 4, 6) for c in (0, 2, 4, 6)]
    price = Price(Hops(topology), shape)
    regions = Regions((2,), np.array([tiles[i * 7 % 16] for i in range(16)]), "", turned=True)
    exchanged = exchange(shape, assign(topology, shape, regions, True, price), True, price, seed=0)
    assert exchanged.price == price.of(exchanged.dies) <= 1.05 * best_tilings(shape, (8, 8))[0].price


def test_long_groups_are_found_by_their_positions() -> None:
    """Too many candidates to list."""
    wafer = Wafer("w", 6, 6, dead_dies=frozenset({(2, 2), (3, 4)}))
    topology, graph = mesh_topology(wafer), graph_of(wafer)
    for spec in (
        RegionSpec(17, 2, closed=False),
        RegionSpec(16, 2, closed=True),
        RegionSpec(34, 1, closed=False),
    ):
        exact = exact_regions(topology, topology.live, spec, seed=0, limit=5.0)
        assert exact.regions is not None
        assert all(is_walk(graph, list(r), spec.closed) for r in exact.regions)
        assert len({d for r in exact.regions for d in r}) == spec.size * spec.count


# ---- the second opinion, and determinism


def test_the_check_catches_every_kind_of_wrong_answer() -> None:
    wafer, shape = Wafer("w", 2, 4, dead_dies=frozenset({(1, 3)})), strategy(dp=1, tp=1, tatp=4)
    good = place_on(wafer, shape)
    check_placement(wafer, shape, good)
    a, b, c, d = good.dies
    spare = next(x for x in range(7) if x not in good.dies)
    wrong = [(a, b, c), (a, b, c, c), (a, b, c, 7), (a, b, c, 8), (a, c, b, d), (a, b, c, spare)]
    for dies in wrong:
        with pytest.raises(PlacementBug):
            check_placement(wafer, shape, replace(good, dies=dies))
    alone = place_on(wafer, ())
    for die in (7, 8, -1):
        with pytest.raises(PlacementBug):
            check_placement(wafer, (), replace(alone, dies=(die,)))
    cut = replace(wafer, dead_links=frozenset({tuple(sorted((divmod(a, 4), divmod(b, 4))))}))
    with pytest.raises(PlacementBug):
        check_placement(cut, shape, good)


def test_the_check_catches_dies_on_two_islands() -> None:
    wafer, shape = Wafer("w", 1, 4), strategy(dp=2, tatp=2)
    good = place_on(wafer, shape)
    with pytest.raises(PlacementBug):
        check_placement(replace(wafer, dead_links=frozenset({((0, 1), (0, 2))})), shape, good)


_PROBE = """
from wscc.machine.wafer import Wafer
from wscc.passes.place.cpsat_whole import joint
from wscc.passes.place.errors import no_place
from wscc.passes.place.solver import place_on
from wscc.passes.place.types import AxisSpec
cases = [(2, 4, 0, (2, 2, 2)), (3, 3, 1, (1, 2, 3)), (4, 4, 1, (3, 1, 5)), (4, 4, 2, (1, 5, 2)),
         (6, 8, 3, (2, 2, 8)), (12, 12, 5, (2, 4, 16)), (5, 5, 1, (1, 1, 22)), (6, 6, 2, (16, 2, 1))]
for rows, cols, dead, (dp, tp, tatp) in cases:
    holes = frozenset((7 * k % rows, 5 * k % cols) for k in range(1, dead + 1))
    shape = [AxisSpec("dp", dp), AxisSpec("tp", tp), AxisSpec("tatp", tatp, ring=True)]
    print(place_on(Wafer("w", rows, cols, dead_dies=holes), shape))
"""


def test_the_same_question_has_the_same_answer_under_any_hash_seed() -> None:
    answers = printed_under_two_hash_seeds(_PROBE)
    assert answers[0] == answers[1]
    assert len(answers[0].splitlines()) == 8
