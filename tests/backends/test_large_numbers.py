"""Kernels in f32 beside f64 arithmetic written here, where numbers are large: nothing but one rounding is lost."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracles.kernels import Array
from wscc.backends.interpreter.kernels.table import apply

F32, ULP = np.float32, 2.0**-23


def off(got: Array, want: Array) -> float:
    """The distance relative to the whole, in roundings."""
    return float(np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want) / ULP)


@pytest.mark.parametrize("mean", [0, 1e2, 1e4, 1e6])
@pytest.mark.parametrize("d", [16, 1000])
def test_layernorm_of_rows_far_from_zero(mean: float, d: int) -> None:
    """A mean of 1e6 is itself rounded by 0.03: rows that it alone is taken from are that far off."""
    rng = np.random.default_rng(d)
    x, g, b, dy = (
        (m + rng.standard_normal(s)).astype(F32) for m, s in ((mean, (9, d)), (1, d), (0, d), (0, (9, d)))
    )
    c = x.astype(np.float64) - x.astype(np.float64).mean(-1, keepdims=True)
    s = 1 / np.sqrt((c * c).mean(-1, keepdims=True) + 1e-5)
    u = dy.astype(np.float64) * g
    want = s * (u - u.mean(-1, keepdims=True) - c * s**2 * (u * c).mean(-1, keepdims=True))
    y, dx, dg, db = np.empty_like(x), np.empty_like(x), np.empty_like(g), np.empty_like(b)
    apply("layernorm", [y], [x, g, b], 1e-5)
    apply("layernorm_bwd", [dx, dg, db], [x, g, dy], 1e-5)
    assert off(y, c * s * g + b) < 8
    assert off(dx, want) < 8
    assert off(dg, (dy * c * s).sum(0)) < 8


def test_the_loss_of_a_sure_label_keeps_its_digits_at_any_logit() -> None:
    """The label has the largest logit, 20,000, and the others are 3 to 12 below: the loss is 0.05 and less."""
    gap = np.linspace(3, 12, 40)
    m = p = np.full(40, 2e4, F32)
    z = (1 + np.exp(-gap)).astype(F32)
    loss = np.empty_like(z)
    apply("nll", [loss], [m, z, p, np.zeros(40, np.int32)])
    assert np.array_equal(loss, np.log(z))


def test_a_hidden_score_may_be_infinite() -> None:
    """It counts for nothing; added to minus infinity it would be no number."""
    s = np.array([[[1, np.inf], [2, 2]]], F32)
    p, m, z = np.empty_like(s), np.empty((1, 2), F32), np.empty((1, 2), F32)
    apply("softmax", [p, m, z], [s], True, 0, 0)
    assert np.array_equal(p, [[[1, 0], [0.5, 0.5]]])
    again = np.empty_like(s)
    apply("probs", [again], [s, m, z], True, 0, 0)
    assert np.array_equal(again, p)


def test_one_key_with_all_the_weight_has_no_slope() -> None:
    """Whatever the values are: its dp less the mean of dp is 0 to the last bit, where <dO, O> is one rounding off."""
    rng = np.random.default_rng(3)
    p, dp = np.zeros((1, 40, 7), F32), rng.normal(0, 1e3, (1, 40, 7)).astype(F32)
    p[0, np.arange(40), np.arange(40) % 7] = 1
    delta = (p * dp).sum(-1) * F32(1 + ULP)
    apply("rowmean", [delta], [p, dp, delta])
    ds = np.empty_like(dp)
    apply("softmax_bwd", [ds], [p, dp, delta], 0.3)
    assert not ds.any()


@pytest.mark.parametrize("opcode", ["gelu_bwd", "gelu_erf_bwd", "swiglu_bwd"])
def test_slopes_of_activations_are_one_or_zero_far_out(opcode: str) -> None:
    x = np.array([1e4, -1e4, 1e15, -1e15, 1e30, -1e30], F32)
    one, dx, other = np.ones_like(x), np.empty_like(x), np.empty_like(x)
    writes, reads = ([dx, other], [x, one, one]) if opcode == "swiglu_bwd" else ([dx], [x, one])
    apply(opcode, writes, reads)
    assert np.array_equal(dx, x > 0)


@pytest.mark.parametrize("size", [1e25, 1.0, 1e-25])
def test_the_squared_norm_neither_overflows_nor_vanishes(size: float) -> None:
    x, s = np.full((3, 5), size, F32), np.empty((), np.float64)
    apply("sqsum", [s], [x])
    assert s == pytest.approx(15 * float(F32(size)) ** 2, rel=1e-12, abs=0)


def test_the_gradient_of_a_balance_keeps_its_digits_where_one_expert_is_nearly_certain() -> None:
    """A token of a sequence of three has a first choice 9 and more above the others, at logits of 20,000."""
    x = np.array([[[20_000, 19_991, 19_985, 0], [1, 2, 3, 4], [3, 1, 2, 0]]], F32)
    p = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    shares = np.array([2, 0, 0, 1]) * 4 / 3
    want = p * ((shares[:, None] - shares) @ p[..., None])[..., 0] / 3
    dx = np.empty_like(x)
    apply("balance_bwd", [dx], [x, np.ones((), F32)], 1, 1.0)
    assert off(dx[0, 0], want[0, 0]) < 16
    assert off(dx, want) < 16
