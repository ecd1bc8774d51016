"""The bound of an update: no kernel of the interpreter goes beyond it, in any types; one rounding more, or a scalar
that is a little off, does."""

from __future__ import annotations

from itertools import product
from math import sqrt
from typing import Any

import numpy as np
import pytest

from wscc.backends.interpreter.kernels.table import apply
from wscc.ir.train import LrSchedule, Optimizer, Train
from wscc.ir.types import DType
from wscc.reference.update import Bound, Update

FLOATS = (DType.F64, DType.F32, DType.BF16)
TYPES = list(product(FLOATS, FLOATS))
N, STEP = 256, 3


def scalars(train: Train) -> list[float]:
    o, s = train.optimizer, train.lr_schedule
    own = [o.beta1, o.beta2, o.eps, o.weight_decay] if o.kind == "adamw" else []
    return [o.lr, *own, train.clip, s.warmup, s.decay, s.floor]


def drawn(seed: int, weight: DType, grad: DType) -> tuple[Any, list[Any], Any]:
    """A weight, its moments and its gradient, with zeros and numbers of very different sizes."""
    rng = np.random.default_rng(seed)
    g = rng.normal(size=N) * 10.0 ** rng.integers(-12, 2, N)
    g[:4] = 0.0
    m, v = rng.normal(size=N) * 0.1, rng.random(N) ** 4
    m[2:6], v[2:6] = 0.0, 0.0
    w = rng.normal(size=N)
    return w.astype(weight.numpy), [m.astype(grad.numpy), v.astype(grad.numpy)], g.astype(grad.numpy)


def step(train: Train, w: Any, moments: list[Any], g: Any) -> tuple[tuple[Bound, ...], list[Any]]:
    """The bounds, and what the interpreter computes."""
    norm2 = np.float64((g.astype(np.float64) ** 2).sum())
    moments = moments if train.optimizer.kind == "adamw" else []
    bounds = Update(train, STEP, sqrt(norm2), N).of(train.rates, w, tuple(moments), g)
    out = [np.empty_like(x) for x in (w, *moments)]
    stored = norm2.astype(np.float64 if g.dtype == np.float64 else np.float32)
    reads = [w, *moments, g, np.asarray(stored), np.asarray(STEP, np.int32)]
    apply(train.optimizer.kind, out, reads, *scalars(train))
    return bounds, out


def training(kind: str, seed: int) -> Train:
    optimizer = Optimizer(kind, lr=10.0**-seed, weight_decay=0.1 * (seed % 2))
    return Train(1, 1, optimizer, LrSchedule(warmup=4 * (seed % 3)), clip=0.5 * (seed % 2))


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_no_kernel_goes_beyond_the_bound_in_any_types(kind: str) -> None:
    for (weight, grad), seed in product(TYPES, range(6)):
        bounds, got = step(training(kind, seed), *drawn(seed, weight, grad))
        for bound, x in zip(bounds, got, strict=True):
            assert bound.excess(x) <= 1, (weight, grad, seed)


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_one_rounding_to_a_narrower_type_does(kind: str) -> None:
    """Of the weight, and of each moment; but moments in f64 beside a narrower weight are computed in f32 anyway."""
    for weight, grad in TYPES:
        bounds, got = step(training(kind, 2), *drawn(0, weight, grad))
        for bound, x in zip(bounds, got, strict=True):
            if x is not got[0] and grad is DType.F64 and weight is not DType.F64:
                continue
            narrower = {np.float64: np.float32, np.float32: DType.BF16.numpy}.get(x.dtype.type)
            if narrower is not None:
                assert bound.excess(x.astype(narrower).astype(x.dtype)) > 100


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_a_rate_that_is_a_little_off_does(kind: str) -> None:
    """By 2^-7, in every combination of types; in bf16, where a number of elements is then rounded otherwise."""
    train = training(kind, 1)
    off = Train(
        1, 1, Optimizer(kind, lr=train.optimizer.lr * (1 + 2**-7), weight_decay=0.1), train.lr_schedule, 0.5
    )
    for weight, grad in TYPES:
        bounds, _ = step(train, *drawn(0, weight, grad))
        _, got = step(off, *drawn(0, weight, grad))
        assert bounds[0].excess(got[0]) > 1, (weight, grad)


def test_numbers_that_are_none_are_infinitely_far() -> None:
    bounds, got = step(training("sgd", 1), *drawn(0, DType.F32, DType.F32))
    got[0][3] = np.nan
    assert bounds[0].excess(got[0]) == float("inf")
