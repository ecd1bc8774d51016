"""Reshards take what is fastest in the simulator: the link model of the pass against simulated programs."""

from __future__ import annotations

import pytest

from tests.passes.lower_collectives.one_reshard import module_of, simulated, wafer_of
from wscc.analysis.cost import LinkRates
from wscc.collectives.choose import collective, make_request
from wscc.collectives.plan import Op
from wscc.collectives.timing import LinkModel
from wscc.ir.module import Module
from wscc.machine.topology import Topology
from wscc.passes.lower_collectives.algorithms import Algorithms
from wscc.passes.place import Place

# A mesh, the axes on it, and the bytes of the whole.
CASES = [
    (1, 4, (("dp", 4),), 1 << 28),
    (2, 4, (("dp", 8),), 1 << 20),
    (4, 4, (("dp", 4), ("tatp", 4)), 1 << 24),
    (4, 4, (("dp", 16),), 1 << 22),
]


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce"])
@pytest.mark.parametrize(("rows", "cols", "axes", "size"), CASES)
def test_no_reshard_is_slower_than_its_ring(
    kind: str, rows: int, cols: int, axes: tuple[tuple[str, int], ...], size: int
) -> None:
    module = module_of(wafer_of(rows, cols), kind, axes, size)
    assert simulated(module) <= 1.02 * simulated(module, "ring")


@pytest.mark.parametrize("size", [1 << 14, 1 << 20])
def test_a_small_gather_takes_as_long_as_the_collective(size: int) -> None:
    """16 dies: a ring of 8 rounds takes a third longer."""
    wafer = wafer_of(4, 4)
    model = LinkModel.of(wafer.link.bandwidth, wafer.link.latency, wafer.link.flit)
    alone = collective(make_request(Op.ALL_GATHER, Topology.mesh(wafer), size), model).timed.seconds
    assert simulated(module_of(wafer, "all_gather", (("dp", 16),), size)) <= 1.05 * alone


@pytest.mark.parametrize(("rows", "cols", "axes", "size"), CASES)
@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
def test_the_link_model_is_that_of_the_simulator(
    kind: str, rows: int, cols: int, axes: tuple[tuple[str, int], ...], size: int
) -> None:
    """To a hundredth; `route` may find other trees."""
    module = Place().run(module_of(wafer_of(rows, cols), kind, axes, size))
    expected = _chosen_seconds(module, kind, size // axes[0][1])
    margin = 0.15 if kind == "all_gather" else 0.01
    assert simulated(module) == pytest.approx(expected, rel=margin)


def _chosen_seconds(module: Module, kind: str, shard: int) -> float:
    algorithms = Algorithms(module, "auto", 1 << 40, simulated=True).together(1)
    chosen = (algorithms.gather if kind == "all_gather" else algorithms.scatter)("dp", shard)
    backwards = kind == "reduce_scatter"
    return chosen.seconds(shard, LinkRates.of(module.machine.link), backwards=backwards)
