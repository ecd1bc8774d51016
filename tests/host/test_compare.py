"""The comparison of two runs: errors that it accepts, and errors that it must not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wscc.host.compare import Errors, Run, by_layer, judge, measure, relative_errors
from wscc.ir.train import Optimizer, Train
from wscc.ir.types import DType

ADAMW, SGD = Train(1, 1, Optimizer("adamw", lr=0.01)), Train(1, 1, Optimizer("sgd", lr=0.01))
WANT = Run([2.0, 1.5], {"a": np.array([3.0, 4.0]), "b": np.array([0.0, 1e-9])}, {"a": np.array([1.0, 2.0])})


def off(run: Run, kind: str, name: str, by: float) -> Run:
    """`run` with the first element of one tensor (or loss number `name`) moved by `by`."""
    if kind == "losses":
        losses = list(run.losses)
        losses[int(name)] += by
        return replace(run, losses=losses)
    tensors = {n: np.array(x) for n, x in getattr(run, kind).items()}
    tensors[name][0] += by
    return replace(run, **{kind: tensors})


def test_the_error_of_a_tensor_is_relative_to_its_own_size() -> None:
    errors = relative_errors({"a": np.array([3.0, 4.5])}, {"a": np.array([3.0, 4.0])})
    assert errors == {"a": pytest.approx(0.1)}


def test_a_tensor_far_below_the_others_is_measured_against_a_thousandth_of_them() -> None:
    """|a| = 5 and |b| = 1e-9: G = 5 / sqrt 2, so b's scale is 1e-3 G."""
    errors = relative_errors(off(WANT, "grads", "b", 1e-6).grads, WANT.grads)
    assert errors["a"] == 0
    assert errors["b"] == pytest.approx(1e-6 / (1e-3 * 5 / 2**0.5))


def test_a_small_wrong_tensor_is_not_hidden_by_a_large_right_one() -> None:
    want = {"large": np.full(10_000, 1.0), "small": np.array([1.0])}
    errors = relative_errors({**want, "small": np.array([-1.0])}, want)
    assert errors["small"] > 1


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize(
    ("kind", "name"), [("losses", "1"), ("grads", "a"), ("grads", "b"), ("weights", "a")]
)
@pytest.mark.parametrize("train", [ADAMW, SGD])
@pytest.mark.parametrize("dtype", [DType.F64, DType.F32, DType.BF16])
def test_a_number_that_is_none_never_passes(
    bad: float, kind: str, name: str, train: Train, dtype: DType
) -> None:
    bf16_error = Errors(1.0, 1.0, 1.0, 1.0, 1.0)
    broken = off(WANT, kind, name, bad)
    assert judge(WANT, WANT, train, dtype, bf16_error).ok
    assert not judge(broken, WANT, train, dtype, bf16_error).ok
    assert not judge(broken, broken, train, dtype, bf16_error).ok, "not even when the reference has it too"


def test_a_missing_extra_or_misshapen_tensor_fails() -> None:
    for grads in ({"a": WANT.grads["a"]}, {**WANT.grads, "c": np.zeros(2)}, {**WANT.grads, "a": np.zeros(1)}):
        assert measure(replace(WANT, grads=grads), WANT).grad == float("inf")
    assert not judge(replace(WANT, losses=[2.0]), WANT, SGD, DType.F64).ok
    assert not judge(replace(WANT, losses=[]), replace(WANT, losses=[]), SGD, DType.F64).ok


@pytest.mark.parametrize(("dtype", "train", "kind", "name", "limit"), [
    (DType.F64, ADAMW, "losses", "1", 1e-10 * 1.5), (DType.F64, ADAMW, "grads", "a", 1e-10 * 5),
    (DType.F64, ADAMW, "weights", "a", 1e-10 * 5**0.5),
    (DType.F32, SGD, "losses", "1", 1e-6 * 1.5), (DType.F32, SGD, "grads", "a", 1e-5 * 5),
    (DType.F32, SGD, "weights", "a", 1e-5 * 5**0.5),
    (DType.F32, ADAMW, "losses", "0", 1e-6 * 2.0), (DType.F32, ADAMW, "grads", "a", 1e-5 * 5),
    (DType.F32, ADAMW, "weights", "a", 2 * 0.01 * 2),
])  # fmt: skip
def test_each_limit_is_where_the_design_puts_it(
    dtype: DType, train: Train, kind: str, name: str, limit: float
) -> None:
    inside = judge(off(WANT, kind, name, 0.99 * limit), WANT, train, dtype)
    beyond = judge(off(WANT, kind, name, 1.01 * limit), WANT, train, dtype)
    assert inside.ok
    assert not beyond.ok
    assert beyond.dtype is dtype
    assert beyond.worst == {"losses": "loss", "grads": "gradient of a", "weights": "weight a"}[kind]


def test_after_adamw_in_f32_later_losses_are_not_judged_but_reported() -> None:
    check = judge(off(WANT, "losses", "1", 0.1), WANT, ADAMW, DType.F32)
    assert check.ok
    assert check.loss_rel_err == pytest.approx(0.1 / 1.5)


@given(st.floats(1e-4, 1e-2), st.floats(0.1, 1.9))
def test_bf16_may_be_twice_as_far_as_one_device(far: float, times: float) -> None:
    bf16_error = measure(
        off(off(off(WANT, "losses", "0", far), "grads", "a", far), "weights", "a", far), WANT
    )
    got = off(
        off(off(WANT, "losses", "0", far * times), "grads", "a", far * times), "weights", "a", far * times
    )
    assert judge(got, WANT, ADAMW, DType.BF16, bf16_error).ok
    for kind, name in (("losses", "0"), ("grads", "a"), ("weights", "a")):
        assert not judge(off(WANT, kind, name, 2.1 * far), WANT, ADAMW, DType.BF16, bf16_error).ok


def test_the_verdict_holds_the_largest_errors() -> None:
    got = off(off(WANT, "grads", "a", 0.5), "weights", "a", 0.3)
    check = judge(got, WANT, SGD, DType.F64)
    assert check.grad_rel_err == pytest.approx(0.1)
    assert check.weight_rel_err == pytest.approx(0.3 / 5**0.5)
    assert check.loss_rel_err == 0
    assert check.worst == "weight a"


def test_layers_are_tensors_of_their_own() -> None:
    w = np.arange(6.0).reshape(2, 3)
    apart = by_layer({"w": w, "g": w}, {"w": (2,), "g": ()})
    assert {n: x.tolist() for n, x in apart.items()} == {
        "w[0]": [0, 1, 2],
        "w[1]": [3, 4, 5],
        "g": w.tolist(),
    }


def test_arrays_of_zeros_are_equal_only_to_zeros() -> None:
    zero = {"a": np.zeros(2)}
    assert relative_errors(zero, zero) == {"a": 0.0}
    assert relative_errors({"a": np.array([0.0, 1e-30])}, zero) == {"a": float("inf")}
