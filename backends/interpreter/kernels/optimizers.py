"""The optimizers: one pass over blocks of each parameter, in place."""

from __future__ import annotations

from math import cos, pi, sqrt

import numpy as np

from wscc.backends.interpreter.kernels.scratch import Array, blocks, like


def tick(t: Array, old: Array) -> None:
    np.add(old, 1, out=t)


def adamw(
    w: Array, m: Array, v: Array, w0: Array, m0: Array, v0: Array, g: Array, norm2: Array, t: Array,
    lr: float, beta1: float, beta2: float, eps: float, weight_decay: float,
    clip: float, warmup: int, decay: int, floor: float,
) -> None:  # fmt: skip
    step = int(t)
    rate = lr * learning_rate_factor(step, warmup, decay, floor)
    shrink = _clip_factor(norm2, clip)
    correct1, correct2 = 1 - beta1**step, 1 - beta2**step
    for some_w, some_m, some_v, w_old, m_old, v_old, some_g in blocks(0, w, m, v, w0, m0, v0, g):
        a = like("adamw.a", some_w)
        np.multiply(some_g, shrink * (1 - beta1), out=a)
        np.multiply(m_old, beta1, out=some_m)
        some_m += a
        np.multiply(some_g, shrink * sqrt(1 - beta2), out=a)
        a *= a
        np.multiply(v_old, beta2, out=some_v)
        some_v += a
        # rate (m / correct1) / (sqrt(v / correct2) + eps), the scalars pulled out
        np.sqrt(some_v, out=a)
        a += eps * sqrt(correct2)
        np.divide(some_m, a, out=a)
        a *= rate * sqrt(correct2) / correct1
        if weight_decay:
            w_old = np.multiply(w_old, 1 - rate * weight_decay, out=like("adamw.b", some_w))
        np.subtract(w_old, a, out=some_w)


def sgd(
    w: Array, w0: Array, g: Array, norm2: Array, t: Array,
    lr: float, clip: float, warmup: int, decay: int, floor: float,
) -> None:  # fmt: skip
    rate = lr * learning_rate_factor(int(t), warmup, decay, floor) * _clip_factor(norm2, clip)
    for some_w, w_old, some_g in blocks(0, w, w0, g):
        a = np.multiply(some_g, rate, out=like("sgd", some_w))
        np.subtract(w_old, a, out=some_w)


def learning_rate_factor(step: int, warmup: int, decay: int, floor: float) -> float:
    """`Schedule` at a step, counted from 1."""
    if step < warmup:
        return step / warmup
    if decay == 0:
        return 1.0
    progress = min(1.0, (step - warmup) / (decay - warmup)) if decay > warmup else 1.0
    return floor + (1 - floor) * 0.5 * (1 + cos(pi * progress))


def _clip_factor(norm2: Array, clip: float) -> float:
    return min(1.0, clip / (sqrt(float(norm2)) + 1e-6)) if clip > 0 else 1.0


def delay(time: int) -> None:
    """Nothing: only a clock would notice."""
