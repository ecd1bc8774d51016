"""The update of a weight and its moments, element by element in f64, with how far arithmetic in their types may be off.

A bound, not an estimate: an update is a few operations on numbers that are all known (the weight, its moments and its
gradient before the step), so that what is beyond the bound is wrong. u is the unit roundoff of the arithmetic (f64, or
f32 in place of all that is narrower), q that of the weight alone, h half a unit in the last place of the type that
stores the result, a the change of the weight:

    sgd     |w - w'|  <=  q |w'| + 4 u |a| + h(w')
    adamw   |m - m'|  <=  4 u (beta1 |m0| + (1 - beta1) |g|) + h(m')
            |v - v'|  <=  8 u v' + h(v')
            |w - w'|  <=  q (2 |w0| + |w'|) + 8 u |a| + what m and v before they are stored make of a + h(w')

A clip adds the error of the norm of all gradients to g: up to 2^16 squares are added in the type of gradients, at least
f32.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Final

import numpy as np

from wscc.ir.train import Rates, Train
from wscc.ir.types import DType
from wscc.reference.optimizer import clip_factor, rate
from wscc.reference.semantics import Array

Types = tuple[DType, DType]  # of the weight, and of its gradient and moments
_BLOCK: Final = 1 << 16  # squares that are added in the type of gradients
_LEAST_EXPONENT: Final = {DType.F64: -1022, DType.F32: -126, DType.BF16: -126}


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """The elements of a result in f64, and how far each may be from it."""

    value: Array
    slack: Array

    def excess(self, got: Array) -> float:
        """The largest error of an element of `got`, over its bound: at most 1 for a right result."""
        with np.errstate(all="ignore"):
            off = np.abs(got.astype(np.float64) - self.value)
            ratio = np.where(off == 0, 0.0, off / self.slack)
        worst = float(ratio.max(initial=0.0))
        return worst if np.isfinite(worst) else float("inf")


@dataclass(frozen=True, slots=True)
class Update:
    """The update in step `t`, from 1, of a training whose gradients have the 2-norm `norm` and `elements` elements."""

    train: Train
    t: int
    norm: float
    elements: int

    def of(self, rates: Rates, w: Array, moments: tuple[Array, ...], g: Array) -> tuple[Bound, ...]:
        """The weight after the step at its own rates, then its moments; all in the types in which they are stored."""
        types = DType.of(w.dtype), DType.of(g.dtype)
        factor = clip_factor(self.train.clip, self.norm)
        wide, scaled = w.astype(np.float64), g.astype(np.float64) * factor
        with np.errstate(all="ignore"):
            if self.train.optimizer.kind == "sgd":
                return (self._sgd(rates, wide, scaled, types),)
            first = tuple(m.astype(np.float64) for m in moments)
            return self._adamw(rates, wide, first, scaled, types)

    def _lr(self, rates: Rates) -> float:
        return rates.lr * rate(self.train.lr_schedule, self.t)

    def _norm_error(self, grads: DType) -> float:
        """The relative error of the clip's factor."""
        u, _ = _arithmetic((grads, grads))
        return 4 * u * (16 + sqrt(min(self.elements, _BLOCK))) if self.train.clip else 0.0

    def _sgd(self, rates: Rates, w: Array, g: Array, types: Types) -> Bound:
        q, u = _arithmetic(types)
        change = self._lr(rates) * g
        new = w - change
        slack = q * np.abs(new) + (4 * u + self._norm_error(types[1])) * np.abs(change)
        return Bound(new, slack + half_ulp(new, slack, types[0]))

    def _adamw(
        self, rates: Rates, w: Array, moments: tuple[Array, ...], g: Array, types: Types
    ) -> tuple[Bound, ...]:
        o, lr, clip = self.train.optimizer, self._lr(rates), self._norm_error(types[1])
        q, u = _arithmetic(types)
        old_m, old_v = moments
        part_m, part_v = (1 - o.beta1) * g, (1 - o.beta2) * g * g
        m, v = o.beta1 * old_m + part_m, o.beta2 * old_v + part_v
        off_m = 4 * u * (np.abs(o.beta1 * old_m) + np.abs(part_m)) + clip * np.abs(part_m)
        lost = 2.0**-147 if u > DType.F64.roundoff else 0.0  # the least number of f32 is 2^-149
        off_v = 8 * u * np.abs(v) + 2 * clip * part_v + lost
        correct_m, correct_v = 1 - o.beta1**self.t, 1 - o.beta2**self.t
        root = np.sqrt(v / correct_v) + o.eps
        low = np.sqrt(np.maximum(v - off_v, 0) / correct_v) + o.eps
        high = np.sqrt((v + off_v) / correct_v) + o.eps
        scale = lr / correct_m
        change = scale * m / root
        off = scale * (off_m / low + np.abs(m) * np.maximum(1 / low - 1 / root, 1 / root - 1 / high))
        new = w * (1 - lr * rates.weight_decay) - change
        slack = q * (2 * np.abs(w) + np.abs(new)) + 8 * u * np.abs(change) + off
        return (
            Bound(new, slack + half_ulp(new, slack, types[0])),
            Bound(m, off_m + half_ulp(m, off_m, types[1])),
            Bound(v, off_v + half_ulp(v, off_v, types[1])),
        )


def half_ulp(x: Array, slack: Array, dtype: DType) -> Array:
    """Half a unit in the last place of `dtype` at |x| + slack."""
    exponents = np.frexp(np.abs(x) + slack)[1] - 1
    return np.asarray(np.ldexp(1.0, np.maximum(exponents, _LEAST_EXPONENT[dtype]) - dtype.precision))


def _arithmetic(types: Types) -> tuple[float, float]:
    """The unit roundoff of arithmetic with weights, and with weights and gradients."""
    weight, grad = (DType.F64.roundoff if t is DType.F64 else DType.F32.roundoff for t in types)
    return weight, max(weight, grad)
