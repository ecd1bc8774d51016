"""The comparison of two runs: errors that it accepts, and errors that it must not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wscc.host.compare import Run, by_layer, measure, relative_errors

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
def test_a_number_that_is_none_is_infinitely_far(bad: float, kind: str, name: str) -> None:
    broken = off(WANT, kind, name, bad)
    assert measure(WANT, WANT).largest == 0
    assert measure(broken, WANT).largest == float("inf")
    assert measure(broken, broken).largest == float("inf"), "even when the reference has it too"


def test_a_missing_extra_or_misshapen_tensor_fails() -> None:
    for grads in ({"a": WANT.grads["a"]}, {**WANT.grads, "c": np.zeros(2)}, {**WANT.grads, "a": np.zeros(1)}):
        assert measure(replace(WANT, grads=grads), WANT).grad == float("inf")
    assert measure(replace(WANT, losses=[2.0]), WANT).loss == float("inf")
    assert measure(replace(WANT, losses=[]), replace(WANT, losses=[])).loss == float("inf")


def test_the_largest_errors_are_named() -> None:
    errors = measure(off(off(WANT, "grads", "a", 0.5), "weights", "a", 0.3), WANT)
    assert errors.grad == pytest.approx(0.1)
    assert errors.weight == pytest.approx(0.3 / 5**0.5)
    assert errors.loss == 0
    assert (errors.worst_grad, errors.worst_weight) == ("a", "a")


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
