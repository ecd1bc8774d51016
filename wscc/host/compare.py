"""Comparison of two training runs: a relative error for each tensor, never pooled, never for each element.

    e = |a - b|2 / max(|b|2, 1e-3 G),   G the root mean square over all tensors of |b|2

A NaN anywhere is an infinite error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from wscc.ir.train import Train
from wscc.ir.types import DType

Tensors = Mapping[str, NDArray[Any]]
_FLOOR: Final = 1e-3  # of G: below it a tensor is rounding noise of the others


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """The compared results: losses by step, the gradients of the first step before clipping, the last weights.

    Each layer of an array is a tensor of its own: see `by_layer`.
    """

    losses: Sequence[float]
    grads: Tensors
    weights: Tensors


@dataclass(frozen=True, slots=True)
class Errors:
    """The largest e of each kind, and the name of its tensor; `weight_change` is the largest |dw| of an element."""

    loss: float
    grad: float
    weight: float
    weight_change: float
    first_loss: float
    worst_grad: str = ""
    worst_weight: str = ""
    most_changed: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """The verdict; `worst` names what is furthest beyond (or nearest to) its limit."""

    ok: bool
    dtype: DType
    loss_rel_err: float
    grad_rel_err: float
    weight_rel_err: float
    worst: str


def by_layer(arrays: Tensors, extents: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[Any]]:
    """The elements of arrays with extents, by name: `w` with extents (2,) becomes `w[0]` and `w[1]`."""
    out: dict[str, NDArray[Any]] = {}
    for name, array in arrays.items():
        for index in np.ndindex(extents.get(name, ())):
            suffix = f"[{','.join(map(str, index))}]" if index else ""
            out[name + suffix] = np.asarray(array[index])
    return out


def relative_errors(got: Tensors, want: Tensors) -> dict[str, float]:
    """e of every tensor; infinite where `got` lacks it, has another shape or holds a NaN."""
    norms = {name: _norm(b) for name, b in want.items()}
    overall = float(np.sqrt(np.mean(np.square(list(norms.values()))))) if norms else 0.0
    errors = {n: _error(got.get(n), b, max(norms[n], _FLOOR * overall)) for n, b in want.items()}
    return {**errors, **{n: float("inf") for n in got if n not in want}}


def _norm(x: NDArray[Any]) -> float:
    return float(np.linalg.norm(np.asarray(x, np.float64)))


def _difference(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):  # inf - inf is NaN, and NaN is far away
        return np.asarray(np.asarray(a, np.float64) - np.asarray(b, np.float64))


def _error(a: NDArray[Any] | None, b: NDArray[Any], scale: float) -> float:
    """|a - b|2 / scale; infinite if `a` is missing, of another shape or not finite."""
    if a is None or a.shape != b.shape:
        return float("inf")
    distance = _norm(_difference(a, b))
    if distance == 0.0:
        return 0.0
    e = distance / scale if scale > 0.0 else float("inf")
    return e if np.isfinite(e) else float("inf")


def _largest(errors: Mapping[str, float]) -> tuple[float, str]:
    name = max(errors, key=lambda n: errors[n], default="")
    return errors.get(name, 0.0), name


def measure(got: Run, want: Run) -> Errors:
    """The errors of `got` relative to `want`."""
    grad, worst_grad = _largest(relative_errors(got.grads, want.grads))
    weight, worst_weight = _largest(relative_errors(got.weights, want.weights))
    losses = [
        _error(np.asarray(a), np.asarray(b), abs(b)) for a, b in zip(got.losses, want.losses, strict=False)
    ]
    if len(got.losses) != len(want.losses) or not losses:
        losses = [float("inf")]
    change, most_changed = _largest({n: _change(got.weights.get(n), b) for n, b in want.weights.items()})
    return Errors(max(losses), grad, weight, change, losses[0], worst_grad, worst_weight, most_changed)


def _change(a: NDArray[Any] | None, b: NDArray[Any]) -> float:
    """The largest |a - b| of any element; infinite as in `relative_errors`."""
    if a is None or a.shape != b.shape:
        return float("inf")
    gap = float(np.abs(_difference(a, b)).max(initial=0.0))
    return gap if np.isfinite(gap) else float("inf")


def judge(got: Run, want: Run, train: Train, dtype: DType, bf16_error: Errors | None = None) -> Check:
    """The verdict on `got`, computed in `dtype`, compared with the reference `want`.

    f64 and f32: `want` is the reference in the same type. bf16: `want` is the reference in f64, and `bf16_error` the
    error of the reference in bf16, of which twice is allowed.
    """
    e = measure(got, want)
    limits = _limits(e, train, dtype, len(want.losses), bf16_error)
    ratio = {name: _ratio(value, limit) for name, (value, limit) in limits.items()}
    worst = max(ratio, key=lambda n: ratio[n])
    return Check(all(r <= 1 for r in ratio.values()), dtype, e.loss, e.grad, e.weight, worst)


def _ratio(value: float, limit: float) -> float:
    if value == 0.0:
        return 0.0
    return value / limit if limit > 0.0 else float("inf")


def _limits(
    e: Errors, train: Train, dtype: DType, steps: int, bf16_error: Errors | None
) -> dict[str, tuple[float, float]]:
    """(error, limit) by the name of the tensor with the largest error of each kind."""
    grad, weight = f"gradient of {e.worst_grad}", f"weight {e.worst_weight}"
    if dtype is DType.F64:
        return {"loss": (e.loss, 1e-10), grad: (e.grad, 1e-10), weight: (e.weight, 1e-10)}
    if dtype is DType.BF16:
        assert bf16_error is not None, "bf16 is judged against the single device's own error"
        return {
            "loss": (e.loss, 2 * bf16_error.loss),
            grad: (e.grad, 2 * bf16_error.grad),
            weight: (e.weight, 2 * bf16_error.weight),
        }
    if train.optimizer.kind == "sgd":
        return {"loss": (e.loss, 1e-6), grad: (e.grad, 1e-5), weight: (e.weight, 1e-5)}
    # A gradient that is exactly zero (a key bias) is rounding noise here, and AdamW divides noise by itself:
    # such weights move by lr a step in any direction, and later losses are those of other weights.
    largest_change = 2 * train.optimizer.lr * steps
    changed, loss = f"weight {e.most_changed}", e.first_loss if isfinite(e.loss) else e.loss
    return {"loss": (loss, 1e-6), grad: (e.grad, 1e-5), changed: (e.weight_change, largest_change)}
