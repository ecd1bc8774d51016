"""The choice of the algorithm of a reshard: its estimates order the candidates as the simulator does, and none of them
changes a result."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from tests.oracles.fabric import FabricMachine
from tests.passes.test_lower_collectives import APART, CHAIN, RING, resharding
from wscc.analysis.cost import Rates
from wscc.backends.emit import emit
from wscc.backends.simulator.calls import Builder
from wscc.backends.simulator.costs import SECOND, Costs
from wscc.backends.simulator.whole import whole
from wscc.diagnostics import Code, CompileError
from wscc.driver.pipeline import Pipeline
from wscc.ir.module import Module, Output, Procedure
from wscc.ir.op import Reshard, Value
from wscc.ir.types import DType, Layout, Reduction, TensorType
from wscc.machine.wafer import Wafer, dead_link
from wscc.passes.choices import Choices
from wscc.passes.form_phases import FormPhases
from wscc.passes.lower_collectives import LowerCollectives
from wscc.passes.lower_collectives.algorithm import Algorithm
from wscc.passes.lower_collectives.algorithm import Reduction as TwoSteps
from wscc.passes.lower_collectives.algorithms import Algorithms

WAFER = Wafer("w", 4, 4)
SNAKE = (0, 1, 2, 3, 7, 6, 5, 9, 10, 11, 15, 14, 13, 12, 8, 4)  # a closed ring of the 4 x 4
GROUPS = {
    "ring": ({"tatp": 16}, SNAKE),
    "two paths": ({"dp": 2, "tatp": 4}, (0, 1, 2, 3, 4, 5, 6, 7)),
    "apart": ({"dp": 2, "tatp": 8}, tuple(range(16))),
    "crossing": ({"tatp": 4, "dp": 4}, (0, 5, 10, 15, 1, 6, 11, 12, 2, 7, 8, 13, 3, 4, 9, 14)),
}
SPLIT, WHOLE = Layout((("tatp",),)), Layout(((),))
PARTIAL = WHOLE.with_partial({"tatp": Reduction.SUM})


def moved(kind: str, axes: dict[str, int], dies: tuple[int, ...], elements: int) -> Module:
    """A module of one gather to, or scatter of, so many elements."""
    source, target = (SPLIT, WHOLE) if kind == "all_gather" else (PARTIAL, SPLIT)
    return resharding(axes, source, target, (elements,), dies).with_(machine=WAFER)


def seconds(module: Module) -> float:
    """The simulated time of the module on initial routes."""
    pipeline = Pipeline.default(1, Choices(routing="xy"))
    streams, _ = emit(pipeline.since(FormPhases).run(module))
    return max(whole(Builder(streams, Costs.of(WAFER))).leave.values()) / SECOND


def force(monkeypatch: pytest.MonkeyPatch, algorithm: Algorithm) -> None:
    for name in ("gather", "scatter"):
        monkeypatch.setattr(Algorithms, name, lambda *_: algorithm)


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("elements", [1 << 10, 1 << 18])
def test_estimates_order_the_algorithms_as_the_simulator_does(
    kind: str, group: str, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = moved(kind, *GROUPS[group], elements)
    link, shard = Rates.of(WAFER).link, 8 * elements // module.sizes["tatp"]
    times = []
    for algorithm in Algorithms(module, "auto", 1 << 30)._candidates("tatp"):
        force(monkeypatch, algorithm)
        times.append((algorithm.seconds(shard, link), seconds(LowerCollectives().run(module))))
    assert len(times) == (2 if group == "ring" else 3)  # no chain where a ring of neighbours closes
    for (a, measured_a), (b, measured_b) in combinations(times, 2):
        if not 1 / 1.1 <= measured_a / measured_b <= 1.1:
            assert (a < b) == (measured_a < measured_b), times


@pytest.mark.parametrize("dies", [RING, CHAIN, APART])
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("elements", [8, 24])
@pytest.mark.parametrize("in_two", [False, True])
def test_every_algorithm_gives_all_replicas_the_same_bits(
    dies: tuple[int, ...], number: int, elements: int, in_two: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = TensorType((elements,), DType.F64)
    x, total = Value("x", kind.with_layout(PARTIAL)), Value("x0", kind.with_layout(WHOLE))
    op = Reshard("all_reduce", "tatp", x, total, reduction=Reduction.SUM)
    module = resharding({"tatp": 4}, WHOLE, WHOLE, (elements,), dies)
    module = module.with_(procedures=(Procedure("go", (x,), (Output(total),), (op,)),))
    candidates = Algorithms(module, "auto", 1 << 30)._candidates("tatp")
    algorithm = candidates[min(number, len(candidates) - 1)]
    chosen = TwoSteps(algorithm if in_two else None, algorithm)
    monkeypatch.setattr(Algorithms, "reduction", lambda *_: chosen)
    machine = FabricMachine(LowerCollectives().run(module))
    parts = np.random.default_rng(1).normal(size=(4, elements))
    for die, part in zip(machine.memory, parts, strict=True):
        die["x"][...] = part
    machine.step()
    for die in machine.memory:
        assert np.array_equal(die["y"], machine.memory[0]["y"])
    np.testing.assert_allclose(machine.memory[0]["y"], parts.sum(0), rtol=1e-12)


def test_a_group_on_two_islands_is_refused_with_two_dies() -> None:
    """Placement makes none; a module written by hand may."""
    cut = frozenset(dead_link((row, 1), (row, 2)) for row in range(4))
    module = moved("all_gather", *GROUPS["ring"], 16).with_(machine=replace(WAFER, dead_links=cut))
    with pytest.raises(CompileError, match=r"no live path joins dies \(0, 1\) and \(0, 2\)") as caught:
        LowerCollectives().run(module)
    assert caught.value.diagnostics[0].code is Code.DISCONNECTED


def test_few_bytes_go_to_all_at_once_and_many_from_neighbour_to_neighbour() -> None:
    module = moved("all_gather", *GROUPS["ring"], 16)
    auto, ring, multicast = (Algorithms(module, a, 1 << 30) for a in ("auto", "ring", "multicast"))
    small, large = 4 << 10, 64 << 20
    assert len(auto.gather("tatp", small).rounds) == len(auto.scatter("tatp", small).rounds) == 1
    assert auto.gather("tatp", large) == auto.scatter("tatp", large) == auto.neighbours("tatp")
    assert ring.gather("tatp", small) == ring.scatter("tatp", small) == ring.neighbours("tatp")
    assert multicast.gather("tatp", large).replicated
    assert auto.reduction("tatp", 16, 4).scatter is None
    assert auto.reduction("tatp", large, 4).scatter == auto.neighbours("tatp")
