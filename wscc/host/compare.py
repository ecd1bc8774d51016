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
    """The largest e of each kind, and the name of its tensor."""

    loss: float
    grad: float
    weight: float
    worst_grad: str = ""
    worst_weight: str = ""

    @property
    def largest(self) -> float:
        """The largest of all."""
        return max(self.loss, self.grad, self.weight)


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
    sizes = scales(want)
    errors = {n: over(difference_norm(got.get(n), b), sizes[n]) for n, b in want.items()}
    return {**errors, **{n: float("inf") for n in got if n not in want}}


def scales(want: Tensors) -> dict[str, float]:
    """What the error of each tensor is divided by: its 2-norm, or 1e-3 G."""
    norms = {name: norm_of(b) for name, b in want.items()}
    overall = float(np.sqrt(np.mean(np.square(list(norms.values()))))) if norms else 0.0
    return {name: max(norm, _FLOOR * overall) for name, norm in norms.items()}


def difference_norm(a: NDArray[Any] | None, b: NDArray[Any] | None) -> float:
    """|a - b|2; infinite if one is missing, they have different shapes, or it is not finite."""
    if a is None or b is None or a.shape != b.shape:
        return float("inf")
    with np.errstate(all="ignore"):  # inf - inf is NaN, and NaN is far away
        distance = norm_of(np.asarray(a, np.float64) - np.asarray(b, np.float64))
    return distance if isfinite(distance) else float("inf")


def over(distance: float, size: float) -> float:
    """distance / size; 0 for no distance, infinite for one that is not finite, or from a size of 0."""
    if distance == 0.0:
        return 0.0
    return distance / size if size > 0.0 and isfinite(distance) else float("inf")


def norm_of(x: NDArray[Any]) -> float:
    """|x|2, in f64."""
    with np.errstate(all="ignore"):
        return float(np.linalg.norm(np.asarray(x, np.float64)))


def _largest(errors: Mapping[str, float]) -> tuple[float, str]:
    name = max(errors, key=lambda n: errors[n], default="")
    return errors.get(name, 0.0), name


def measure(got: Run, want: Run) -> Errors:
    """The errors of `got` relative to `want`."""
    grad, worst_grad = _largest(relative_errors(got.grads, want.grads))
    weight, worst_weight = _largest(relative_errors(got.weights, want.weights))
    losses = [
        over(difference_norm(np.asarray(a), np.asarray(b)), abs(b))
        for a, b in zip(got.losses, want.losses, strict=False)
    ]
    if len(got.losses) != len(want.losses) or not losses:
        losses = [float("inf")]
    return Errors(max(losses), grad, weight, worst_grad, worst_weight)
