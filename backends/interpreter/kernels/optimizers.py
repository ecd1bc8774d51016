"""Kernels of the optimizers: one pass over blocks of each parameter.

w0, m0, v0 are the values of before, w, m, v those of after; both may be the same memory. norm2 [] is the squared
global norm of the gradients, t [] the step, counted from 1.
"""

from __future__ import annotations

from math import cos, pi, sqrt

import numpy as np

from wscc.backends.interpreter.kernels.scratch import Array, blocks, scratch_like


def tick(t: Array, t0: Array) -> None:
    """t [] = t0 [] + 1, the number of the step."""
    np.add(t0, 1, out=t)


def adamw(
    w: Array, m: Array, v: Array, w0: Array, m0: Array, v0: Array, g: Array, norm2: Array, t: Array,
    lr: float, beta1: float, beta2: float, eps: float, weight_decay: float,
    clip: float, warmup: int, decay: int, floor: float,
) -> None:  # fmt: skip
    """w, m, v [*] = AdamW (Loshchilov and Hutter 2019) of w0, m0, v0, g [*], norm2 [], t [], in f32 or f64.

    g is scaled by min(1, clip / sqrt(norm2)), lr by `lr_schedule` at step t. A rate of 0 leaves w as it is, bit by bit,
    whatever g is.
    """
    step = int(t)
    rate = lr * learning_rate_factor(step, warmup, decay, floor)
    shrink = _clip_factor(norm2, clip)
    correct1, correct2 = 1 - beta1**step, 1 - beta2**step
    for w_block, m_block, v_block, w_old, m_old, v_old, g_block in blocks(0, w, m, v, w0, m0, v0, g):
        a = scratch_like("adamw.a", w_block)
        np.multiply(g_block, shrink * (1 - beta1), out=a)
        np.multiply(m_old, beta1, out=m_block)
        m_block += a
        np.multiply(g_block, shrink * sqrt(1 - beta2), out=a)
        a *= a
        np.multiply(v_old, beta2, out=v_block)
        v_block += a
        if rate == 0:
            np.copyto(w_block, w_old)
            continue
        # rate (m / correct1) / (sqrt(v / correct2) + eps), the scalars pulled out
        np.sqrt(v_block, out=a)
        a += eps * sqrt(correct2)
        np.divide(m_block, a, out=a)
        a *= rate * sqrt(correct2) / correct1
        if weight_decay:
            w_old = np.multiply(w_old, 1 - rate * weight_decay, out=scratch_like("adamw.b", w_block))
        np.subtract(w_old, a, out=w_block)


def sgd(
    w: Array, w0: Array, g: Array, norm2: Array, t: Array,
    lr: float, clip: float, warmup: int, decay: int, floor: float,
) -> None:  # fmt: skip
    """w [*] = w0 [*] - lr g [*], with g and lr scaled by norm2 [] and t [] as in `adamw`, in f32 or f64."""
    rate, shrink = lr * learning_rate_factor(int(t), warmup, decay, floor), _clip_factor(norm2, clip)
    for w_block, w_old, g_block in blocks(0, w, w0, g):
        if rate == 0:
            np.copyto(w_block, w_old)
            continue
        a = np.multiply(g_block, shrink, out=scratch_like("sgd", w_block))
        a *= rate  # apart from `shrink`: the product of both may be too small for f32
        np.subtract(w_old, a, out=w_block)


def learning_rate_factor(step: int, warmup: int, decay: int, floor: float) -> float:
    """The factor of the learning rate at a step, counted from 1: linear warmup, then a half cosine to `floor`.

    `decay` is the step at which `floor` is reached; 0: the rate stays at 1.
    """
    if step < warmup:
        return step / warmup
    if decay == 0:
        return 1.0
    progress = min(1.0, (step - warmup) / (decay - warmup)) if decay > warmup else 1.0
    return floor + (1 - floor) * 0.5 * (1 + cos(pi * progress))


def _clip_factor(norm2: Array, clip: float) -> float:
    """min(1, clip / norm) for the squared norm norm2 []; 1 if `clip` is 0."""
    return min(1.0, clip / (sqrt(float(norm2)) + 1e-6)) if clip > 0 else 1.0


def delay(time: int) -> None:
    """No result: an instruction that takes `time` picoseconds and computes nothing."""
