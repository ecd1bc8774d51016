"""Systems of wafers: links by class, routes over several ports, times and energy of links, against closed forms."""

from __future__ import annotations

from fractions import Fraction

import networkx as nx
import numpy as np
import pytest

from wscc.analysis.cost import Rates
from wscc.backends.simulator.costs import SECOND, Costs
from wscc.diagnostics import Code, CompileError
from wscc.ir.routes import Route
from wscc.machine.topology import mesh_topology
from wscc.machine.wafer import Joint, Link, Torus, Wafer
from wscc.passes.place.solver import place_on
from wscc.passes.place.types import AxisSpec
from wscc.routing.bound import lower_bound
from wscc.routing.flows import Flow
from wscc.routing.router import route

TB = 10**12
OWN = Link(bandwidth=4 * TB, latency=200e-9, flit=64)
EDGE = Link(bandwidth=6 * TB, latency=1500e-9, flit=32, energy=20e-12)


def system(
    wafers: tuple[int, int],
    wafer: tuple[int, int],
    ports: tuple[int, ...] = (),
    *,
    torus: Torus | None = None,
) -> Wafer:
    rows, cols = wafer
    joint = Joint(rows, cols, EDGE, ports)
    shape = wafers[0] * rows, wafers[1] * cols
    return Wafer("s", *shape, link=OWN, joint=joint, torus=torus or Torus())


@pytest.mark.parametrize(
    ("ports", "joined"), [((), {0, 1, 2}), ((0, -1), {0, 2}), ((1,), {1})], ids=["all", "corners", "middle"]
)
def test_wafers_are_joined_where_their_edges_have_ports(ports: tuple[int, ...], joined: set[int]) -> None:
    wafer = system((2, 2), (3, 3), ports)
    topology = mesh_topology(wafer)
    across = {(a, b) for a, b in topology.links if wafer.link_class(a, b)}
    graph = nx.grid_2d_graph(6, 6)
    want = {
        (a, b)
        for a, b in graph.to_directed().edges
        if (a[0] // 3, a[1] // 3) != (b[0] // 3, b[1] // 3) and (a[0] if a[0] == b[0] else a[1]) % 3 in joined
    }
    assert {(wafer.coordinate(a), wafer.coordinate(b)) for a, b in across} == want
    assert len(topology.links) - len(across) == 4 * 2 * 12
    assert wafer.live_links == len(topology.links)
    assert all(Rates.of(wafer).between(a, b).bandwidth == 6 * TB // len(joined) for a, b in across)


def test_two_edges_share_their_bandwidth_among_unlike_numbers_of_ports() -> None:
    wafer = system((2, 2), (2, 3))
    rates = Rates.exact(wafer)
    right, down = (wafer.number((0, 2)), wafer.number((0, 3))), (wafer.number((1, 1)), wafer.number((2, 1)))
    assert rates.between(*right).bandwidth == 3 * TB
    assert rates.between(*down).bandwidth == 2 * TB


def test_a_ring_of_wafers_is_closed_by_links_of_the_joint() -> None:
    wafer = system((1, 3), (1, 2), torus=Torus(rows=True))
    assert [wafer.link_class(a, (a + 1) % 6) for a in range(6)] == [0, 1, 0, 1, 0, 1]
    assert mesh_topology(wafer).distance(0, 5) == 1


@pytest.mark.parametrize("amount", [1, 100, 10**6])
def test_a_message_takes_the_flits_bandwidth_and_latency_of_each_link(amount: int) -> None:
    """Cut-through: the first byte waits for every latency, the last leaves at the pace of the slower link."""
    costs = Costs.of(system((1, 2), (1, 2)))
    (leg,) = costs.legs(Route.along((1, 2, 3)), amount)
    for ticks, link in zip(leg.ticks, (EDGE, OWN), strict=True):
        hold = Fraction(-(-amount // link.flit) * link.flit, link.bandwidth) * SECOND
        latency = Fraction(repr(link.latency)) * SECOND
        assert (ticks.hold, ticks.span, ticks.latency) == (-(-hold // 1), -(-(hold + latency) // 1), latency)


def test_bytes_are_split_over_parallel_links_by_their_time() -> None:
    """From one wafer of 2 x 2 to the other: half over each port, which is what a byte there costs."""
    wafer = system((1, 2), (2, 2))
    topology = mesh_topology(wafer)
    flows = [Flow(a, b, 12_000_000) for a in (0, 1, 4, 5) for b in (2, 3, 6, 7)]
    routing = route(topology, flows)
    slow = OWN.bandwidth / (EDGE.bandwidth / 2)
    assert routing.max_link_bytes == pytest.approx(16 * 12_000_000 / 2 * slow, rel=0.05)
    proof = lower_bound(routing)
    assert proof is not None
    assert routing.max_link_bytes / 1.01 <= proof.bytes <= 16 * 12_000_000 / 2 * slow


def test_a_detour_over_wide_links_beats_the_narrow_one_beside_it() -> None:
    """Two wafers of 1 x 2 in a column: the joint is narrow, and the flow inside a wafer stays off it."""
    joint = Joint(1, 2, Link(bandwidth=TB // 5, latency=200e-9))
    topology = mesh_topology(Wafer("s", 2, 2, link=OWN, joint=joint))
    alone = route(topology, [Flow(0, 1, 10**7)])
    assert alone.max_link_bytes >= 10**7 * 0.9
    assert alone.load[[i for i, hop in enumerate(topology.links) if hop[1] - hop[0] == 2]].max() < 10**7


@pytest.mark.parametrize("heavy", ["inner", "outer"])
def test_the_axis_with_more_traffic_stays_on_a_wafer(heavy: str) -> None:
    wafer = system((1, 2), (2, 2))
    sizes, weights = ((2, 4), (0.1, 1.0)) if heavy == "inner" else ((4, 2), (1.0, 0.1))
    shape = [AxisSpec(a, n, False, w) for a, n, w in zip(("outer", "inner"), sizes, weights, strict=True)]
    dies = np.array(place_on(wafer, shape).dies).reshape([a.size for a in shape])
    on = dies % 4 // 2  # the wafer of each
    groups = on if heavy == "inner" else on.T
    assert (groups == groups[:, :1]).all()


@pytest.mark.parametrize(
    ("joint", "words"),
    [
        (Joint(3, 2), "mesh"),
        (Joint(2, 2, Link(bandwidth=0)), "bandwidth"),
        (Joint(2, 2, EDGE, (7,)), "ports"),
    ],
)
def test_a_joint_that_cannot_be_is_refused(joint: Joint, words: str) -> None:
    with pytest.raises(CompileError) as refused:
        Wafer("s", 4, 4, joint=joint)
    assert {d.code for d in refused.value.diagnostics} == {Code.NUMBER}
    assert words in refused.value.diagnostics[0].message
