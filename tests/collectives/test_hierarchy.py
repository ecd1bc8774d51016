"""The hierarchical all_reduce of a system: near the bound of its cuts, replayed by the checker, faster than a ring."""

from __future__ import annotations

import pytest

from tests.oracles.replayed_plan import Links, seconds_of_all_reduce
from wscc.backends.collective.run import execute
from wscc.collectives.check import violations
from wscc.collectives.choose import collective, make_request
from wscc.collectives.plan import Op
from wscc.collectives.plan_file import plan_lines
from wscc.collectives.timing import LinkModel
from wscc.machine.topology import mesh_topology
from wscc.machine.wafer import Joint, Link, Wafer

TB = 10**12


def system(wafers: tuple[int, int], wafer: tuple[int, int], edge: int, ports: tuple[int, ...] = ()) -> Wafer:
    joint = Joint(*wafer, Link(bandwidth=edge, latency=1.5e-6), ports)
    return Wafer("s", wafers[0] * wafer[0], wafers[1] * wafer[1], joint=joint)


@pytest.mark.parametrize(
    ("wafer", "cut"),
    [
        # Between two wafers every byte crosses twice, over both directions of one edge.
        (system((1, 2), (2, 2), TB), 2 / 2),
        # Among four in a square, 2 x 3 times, over both directions of four edges.
        (system((2, 2), (2, 2), TB), 6 / 8),
    ],
    ids=["two wafers", "four wafers"],
)
def test_an_all_reduce_is_near_the_bound_of_its_cuts(wafer: Wafer, cut: float) -> None:
    size = 8 * 10**9
    model = LinkModel.of(wafer.link.bandwidth, wafer.link.latency, wafer.link.flit).with_system(wafer)
    request = make_request(Op.ALL_REDUCE, mesh_topology(wafer), size)
    outcome = collective(request, model)
    assert outcome.algorithm == "hierarchical"
    assert violations(request, outcome.timed) == []
    assert model.seconds(outcome.bound.time) == pytest.approx(size * cut / TB, rel=1e-3)
    assert 1 <= outcome.ratio <= 1.1
    replayed = seconds_of_all_reduce(plan_lines(request, outcome.timed), Links.of(wafer), size)
    assert replayed == pytest.approx(outcome.timed.seconds)
    ring = collective(request, model, "ring")
    assert violations(request, ring.timed) == []
    assert ring.timed.end > 1.3 * outcome.timed.end
    crossing = {k: n for k, n in outcome.timed.link_bytes().items() if wafer.link_class(*k)}
    assert max(crossing.values()) <= 1.05 * sum(crossing.values()) / len(crossing)


def test_what_dies_end_with_is_the_sum() -> None:
    wafer = system((1, 2), (1, 2), TB)
    model = LinkModel.of(wafer.link.bandwidth, wafer.link.latency, wafer.link.flit).with_system(wafer)
    request = make_request(Op.ALL_REDUCE, mesh_topology(wafer), 5000)
    assert execute(request, collective(request, model).timed.plan).ok
