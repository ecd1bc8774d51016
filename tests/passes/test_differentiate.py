"""`differentiate`: gradients equal central differences in f64, and every recompute mode gives the same bits."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.running import distance, loss_of, lowered, trained
from tests.support.models import Shape, gpt, llama, tensors
from wscc.ir.array import Kind
from wscc.ir.module import Mode, Module
from wscc.ir.ops import OPS
from wscc.ir.step import calls
from wscc.passes.differentiate import Differentiate
from wscc.passes.differentiate import rules as derivatives

SHAPES = st.builds(
    Shape,
    batch=st.sampled_from([2, 4]), calls=st.sampled_from([1, 2]), seq=st.sampled_from([1, 3, 5]),
    d=st.sampled_from([8, 16]), vocab=st.sampled_from([7, 12]), layers=st.sampled_from([1, 3]),
)  # fmt: skip


@settings(max_examples=2, deadline=None)
@given(family=st.sampled_from([gpt, llama]), shape=SHAPES, seed=st.integers(0, 99))
def test_gradients_are_the_slopes_of_the_loss(family: object, shape: Shape, seed: int) -> None:
    """One directional derivative for each parameter: a wrong sign, factor or missing term is far outside 1e-6."""
    module = family({}, shape)  # type: ignore[operator]
    fabric, data = lowered(module), tensors(module, seed)
    _, machine = loss_of(fabric, data)
    rng, h = np.random.default_rng(seed), 1e-4
    for a in module.arrays:
        if a.kind is not Kind.PARAM:
            continue
        direction = rng.normal(size=data[a.name].shape)
        up1, down1, up2, down2 = (
            loss_of(fabric, {**data, a.name: data[a.name] + step * h * direction})[0]
            for step in (1, -1, 2, -2)
        )
        # Central differences of fourth order: those of second order leave 1e-6 on sharp losses.
        slope = (8 * (up1 - down1) - (up2 - down2)) / (12 * h)
        derivative = float((machine.read(f"{a.name}.grad") * direction).sum())
        assert derivative == pytest.approx(slope, rel=1e-6, abs=1e-7), a.name


@settings(max_examples=4, deadline=None)
@given(family=st.sampled_from([gpt, llama]), shape=SHAPES, mode=st.sampled_from(["selective", "full"]))
def test_recomputing_changes_memory_and_no_bit(family: object, shape: Shape, mode: str) -> None:
    saving, recomputing = family({}, shape), family({}, shape, recompute=mode)  # type: ignore[operator]
    data = tensors(saving)
    expected, actual = trained(lowered(saving), data), trained(lowered(recomputing), data)
    for name, value in expected.items():
        assert actual[name].tobytes() == value.tobytes(), name


def residual_bytes(module: Module) -> int:
    return sum(a.type.bytes * a.count for a in Differentiate().run(module).arrays if a.kind is Kind.RESIDUAL)


def test_each_recompute_mode_has_fewer_residuals_than_the_last() -> None:
    none, selective, full = (residual_bytes(gpt({}, recompute=r)) for r in ("none", "selective", "full"))
    assert none > selective > full == 0


def test_tied_parameters_have_one_gradient_and_one_update() -> None:
    module = Differentiate().run(gpt({}))
    writers = [
        array
        for p in module.procedures
        if p.name.endswith(".bwd")
        for array in _outputs(module, p.name)
        if array == "wte.grad"
    ]
    assert len(writers) == 2
    updates = [
        p for p in module.procedures for op in p.ops if op.kind == "adamw" and op.operands[0].name == "wte"
    ]
    assert len(updates) == 1


def _outputs(module: Module, name: str) -> list[str]:
    procedure = module.procedure(name)
    (call,) = [c for c, _ in calls(module.step) if c.procedure == name]
    return [r.array for r in call.args[len(procedure.inputs) :]]


def test_a_gradient_written_once_is_not_zeroed_first() -> None:
    """One micro-batch and one reader: the backward procedure writes; several: it adds to zeros."""

    def modes(count: int) -> set[Mode]:
        module = Differentiate().run(llama({}, Shape(calls=count)))
        return {o.mode for p in module.procedures if p.name == "block.bwd" for o in p.outputs[1:]}

    assert modes(1) == {Mode.WRITE}
    assert modes(2) == {Mode.ADD}


def test_layers_and_micro_batches_are_loops() -> None:
    """The module does not grow with either."""
    small, large = (Differentiate().run(gpt({}, Shape(layers=n, calls=n, batch=64 * n))) for n in (2, 64))
    assert len({re.sub(r"\d+", "n", str(m.step)) for m in (small, large)}) == 1
    assert [len(p.body) for p in small.procedures] == [len(p.body) for p in large.procedures]


def test_every_op_has_a_derivative_or_says_that_it_has_none() -> None:
    assert set(derivatives.DERIVATIVES) == {name for name, row in OPS.items() if row.differentiable}


@pytest.mark.parametrize("family", [gpt, llama])
def test_micro_batches_add_up_to_the_batch(family: object) -> None:
    """The gradient never changes with the number of micro-batches (cases C6), whatever labels are ignored."""
    one, four = (family({}, Shape(batch=4, calls=n)) for n in (1, 4))  # type: ignore[operator]
    data = tensors(one)
    cut = {k: v.reshape(4, 1, -1) if k in ("tokens", "labels") else v for k, v in data.items()}
    error, name = distance(trained(lowered(four), cut), trained(lowered(one), data))
    assert error < 1e-10, name
