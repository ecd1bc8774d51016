"""AdamW (Loshchilov and Hutter 2019) and SGD as the papers write them, on whole arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import cos, pi, sqrt
from typing import Final

import numpy as np

from wscc.ir.module import Module
from wscc.ir.train import LrSchedule, Rates, Train
from wscc.reference.semantics import Array, Precision, wide

_CLIP_EPS: Final = 1e-6  # of `torch.nn.utils.clip_grad_norm_`


def rate(lr_schedule: LrSchedule, t: int) -> float:
    """The factor of the learning rate in step `t`, counted from 1: linear warmup, then a half cosine."""
    if t < lr_schedule.warmup:
        return t / lr_schedule.warmup
    if not lr_schedule.decay:
        return 1.0
    length = lr_schedule.decay - lr_schedule.warmup
    progress = min(1.0, (t - lr_schedule.warmup) / length) if length > 0 else 1.0
    return lr_schedule.floor + (1 - lr_schedule.floor) * 0.5 * (1 + cos(pi * progress))


def clip_factor(clip: float, norm: float) -> float:
    """What gradients of the 2-norm `norm` are multiplied by, so that their norm is at most `clip`; 0: no clip."""
    return min(1.0, clip / (norm + _CLIP_EPS)) if clip else 1.0


def global_norm(grads: dict[str, Array]) -> float:
    """The 2-norm of all gradients as one vector."""
    return sqrt(sum(float(np.square(g.astype(np.float64)).sum()) for g in grads.values()))


@dataclass(slots=True)
class Optimizer:
    """The state of the optimizer: step `t` and the moments of AdamW by weight, in the element type of gradients."""

    train: Train
    precision: Precision
    # Of parameters that have rates of their own.
    rates: Mapping[str, Rates] = field(default_factory=dict)
    t: int = 0
    mean: dict[str, Array] = field(default_factory=dict)
    square: dict[str, Array] = field(default_factory=dict)

    @staticmethod
    def of(module: Module, precision: Precision) -> Optimizer:
        """The optimizer of a module before its first step."""
        rates = {a.name: a.rates for a in module.arrays if a.rates is not None}
        return Optimizer(module.train, precision, rates)

    def update(self, weights: dict[str, Array], grads: dict[str, Array], norm: float) -> dict[str, Array]:
        """The weights after one step, in their old types; a weight without gradient stays. `norm` is that of all
        gradients."""
        self.t += 1
        factor = clip_factor(self.train.clip, norm)
        step = self._adamw if self.train.optimizer.kind == "adamw" else self._sgd
        updated = {n: step(n, wide(weights[n]), wide(g) * factor) for n, g in grads.items()}
        return {n: updated[n].astype(w.dtype) if n in updated else w for n, w in weights.items()}

    def _lr(self, name: str) -> float:
        """The learning rate of a weight in this step."""
        return self.rates.get(name, self.train.rates).lr * rate(self.train.lr_schedule, self.t)

    def _sgd(self, name: str, w: Array, g: Array) -> Array:
        lr = self._lr(name)
        return w - lr * g if lr else w

    def _adamw(self, name: str, w: Array, g: Array) -> Array:
        o, lr, weight_decay = (
            self.train.optimizer,
            self._lr(name),
            self.rates.get(name, self.train.rates).weight_decay,
        )
        m = self._moment(self.mean, name, g, o.beta1)
        v = self._moment(self.square, name, g * g, o.beta2)
        unbiased_m = m / (1 - o.beta1**self.t)
        unbiased_v = v / (1 - o.beta2**self.t)
        if not lr:
            return w  # as it is, whatever the gradient
        return w - lr * (unbiased_m / (np.sqrt(unbiased_v) + o.eps) + weight_decay * w)

    def _moment(self, moments: dict[str, Array], name: str, x: Array, beta: float) -> Array:
        """The moving average of `x` after this step; `moments` keeps it rounded, the step takes it as it is."""
        old = wide(moments[name]) if name in moments else np.zeros_like(x)
        new = beta * old + (1 - beta) * x
        moments[name] = self.precision.exact(new, self.train.grads)
        return np.asarray(new)
