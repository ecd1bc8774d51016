"""The judge by itself: what passes, what does not, and when it draws noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wscc.host.verdict import DRAWS, Check, Evaluation, Judge
from wscc.ir.train import Train
from wscc.ir.types import DType

WANT = Evaluation(2.0, {"a": np.array([3.0, 4.0]), "b": np.array([0.0, 1e-9])})


def train(dtype: DType) -> Train:
    return Train(1, 1, compute=dtype, params=dtype, grads=dtype)


def judged(got: Evaluation, dtype: DType, deviation: float, want: Evaluation = WANT) -> tuple[Check, int]:
    """The verdict, and how many draws it took: each is `deviation` off, in loss and gradients, up or down."""
    drawn = []

    def draw(i: int) -> Evaluation:
        drawn.append(i)
        far = deviation * (-1) ** i
        return Evaluation(want.loss + far, {n: g + np.array((far, 0.0)) for n, g in want.grads.items()})

    judge = Judge(train(dtype))
    judge.evaluation(1, got, want, draw, lambda: {})
    return judge.check(), len(drawn)


def off(kind: str, by: float) -> Evaluation:
    """`WANT` with its loss, or the first element of a gradient, moved."""
    if kind == "loss":
        return replace(WANT, loss=WANT.loss + by)
    moved = np.array(WANT.grads[kind])
    moved[0] += by
    return replace(WANT, grads={**WANT.grads, kind: moved})


@pytest.mark.parametrize("kind", ["loss", "a", "b"])
def test_four_deviations_are_the_limit(kind: str) -> None:
    """Of every tensor for itself, also of one number, and of one that is near 0 itself."""
    assert judged(off(kind, 3.9e-2), DType.BF16, 1e-2)[0].ok
    assert not judged(off(kind, 4.1e-2), DType.BF16, 1e-2)[0].ok


@pytest.mark.parametrize(("kind", "dtype", "floor"), [
    ("loss", DType.F64, 1e-10 * 2), ("a", DType.F64, 1e-10 * 5), ("loss", DType.F32, 1e-6 * 2),
    ("a", DType.F32, 1e-5 * 5), ("b", DType.F32, 1e-5 * 1e-3 * 5 / 2**0.5),
])  # fmt: skip
def test_within_its_floor_no_noise_is_drawn(kind: str, dtype: DType, floor: float) -> None:
    assert judged(off(kind, 0.99 * floor), dtype, 0.0) == (judged(off(kind, 0.99 * floor), dtype, 1.0)[0], 0)
    beyond, draws = judged(off(kind, 1.01 * floor), dtype, 0.0)
    assert (beyond.ok, draws) == (False, DRAWS[-1])
    assert beyond.worst_of_limit == pytest.approx(1.01)
    assert beyond.worst == ("loss in step 1" if kind == "loss" else f"gradient of {kind} in step 1")


def test_clear_cases_take_few_draws() -> None:
    assert judged(off("a", 1e-2), DType.BF16, 1e-2)[1] == DRAWS[0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("kind", ["loss", "a", "b"])
@pytest.mark.parametrize("dtype", [DType.F64, DType.BF16])
def test_a_number_that_is_none_never_passes(bad: float, kind: str, dtype: DType) -> None:
    broken = off(kind, bad)
    assert judged(WANT, dtype, 1.0)[0].ok
    assert not judged(broken, dtype, 1.0)[0].ok
    assert not judged(broken, dtype, 1.0, broken)[0].ok, "not even when the reference has it too"
    assert not judged(broken, dtype, bad)[0].ok, "nor when the noise is none"


def test_a_missing_or_extra_gradient_and_no_step_fail() -> None:
    assert not judged(replace(WANT, grads={"a": WANT.grads["a"]}), DType.BF16, 1e3)[0].ok
    assert not judged(replace(WANT, grads={**WANT.grads, "c": np.zeros(2)}), DType.BF16, 1e3)[0].ok
    assert not Judge(train(DType.F64)).check().ok


def test_losses_that_are_numbers_of_bf16() -> None:
    """Of two steps; one may be, by chance."""
    for losses, right in (((2.0, 1.75), False), ((2.0,), True), ((2.0, 1.75001), True), ((0.0, 0.0), True)):
        judge = Judge(train(DType.BF16))
        for i, loss in enumerate(losses):
            want = replace(WANT, loss=loss)
            judge.evaluation(i + 1, want, want, lambda i: WANT, lambda: {})
        assert judge.check().ok == right, losses


def test_the_types_are_named() -> None:
    mixed = Train(1, 1, compute=DType.BF16, params=DType.F32, grads=DType.F64)
    assert Judge(train(DType.F32)).check().types == "f32"
    assert Judge(mixed).check().types == "compute bf16, params f32, grads f64"
