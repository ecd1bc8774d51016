"""Normalisation and rotary positions: rows of `d` elements, many rows to a block."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from wscc.backends.interpreter.kernels.gemm import column_sum, row_dot, row_sum
from wscc.backends.interpreter.kernels.scratch import Array, blocks, like, scratch


def layernorm(y: Array, x: Array, g: Array, b: Array, eps: float) -> None:
    for some_y, some_x in blocks(1, y, x):
        c, s = _centred(some_x), scratch("norm.s", some_x.shape[:-1], some_x.dtype)
        row_dot(c, c, s)
        _finish(s, x.shape[-1], eps)
        c *= s[..., None]
        c *= g
        np.add(c, b, out=some_y)


def layernorm_bwd(dx: Array, dg: Array, db: Array, x: Array, g: Array, dy: Array, eps: float) -> None:
    """With c = x - mean, s = 1 / deviation, u = dy g: dx = s (u - mean u - c s^2 mean(u c)), dg = sum dy c s.

    Rows are scaled as late as possible, where that is a number for each row and not a pass.
    """
    dg.fill(0)
    db.fill(0)
    for some_dx, some_x, some_dy in blocks(1, dx, x, dy):
        c, s = _centred(some_x), scratch("norm.s", some_x.shape[:-1], some_x.dtype)
        row_dot(c, c, s)
        _finish(s, x.shape[-1], eps)
        _backward(some_dx, dg, c, s, g, some_dy, db)


def _backward(dx: Array, dg: Array, c: Array, s: Array, g: Array, dy: Array, db: Array | None) -> None:
    """The end of both norms; `c` is overwritten. Without `db` there is no mean to take away."""
    p, m = like("norm.p", c), like("norm.m", s)
    weights = np.divide(g, g.shape[0], out=like("norm.weights", g))
    np.multiply(dy, c, out=p)
    column_sum(p, dg, s)
    np.matmul(p, weights, out=m)
    m *= s
    m *= s
    c *= m[..., None]
    if db is not None:
        column_sum(dy, db)
        np.matmul(dy, weights, out=m)
        c += m[..., None]
    np.multiply(dy, g, out=p)
    p -= c
    np.multiply(p, s[..., None], out=dx)


def rmsnorm(y: Array, x: Array, g: Array, eps: float) -> None:
    for some_y, some_x in blocks(1, y, x):
        h = np.multiply(some_x, _inverse_rms(some_x, eps)[..., None], out=like("norm.c", some_x))
        np.multiply(h, g, out=some_y)


def rmsnorm_bwd(dx: Array, dg: Array, x: Array, g: Array, dy: Array, eps: float) -> None:
    """As `layernorm_bwd`, with x itself in place of x - mean."""
    dg.fill(0)
    for some_dx, some_x, some_dy in blocks(1, dx, x, dy):
        c, s = like("norm.c", some_x), _inverse_rms(some_x, eps)
        np.copyto(c, some_x)
        _backward(some_dx, dg, c, s, g, some_dy, None)


def _centred(x: Array) -> Array:
    """x - mean, in scratch."""
    mean = scratch("norm.mean", x.shape[:-1], x.dtype)
    row_sum(x, mean)
    mean /= x.shape[-1]
    return np.subtract(x, mean[..., None], out=like("norm.c", x))


def _inverse_rms(x: Array, eps: float) -> Array:
    inverse = scratch("norm.s", x.shape[:-1], x.dtype)
    row_dot(x, x, inverse)
    return _finish(inverse, x.shape[-1], eps)


def _finish(squares: Array, n: int, eps: float) -> Array:
    """1 / sqrt(squares / n + eps), in place."""
    squares /= n
    squares += eps
    np.sqrt(squares, out=squares)
    return np.reciprocal(squares, out=squares)


def rope(y: Array, x: Array, theta: float, sign: float, start: int) -> None:
    half = x.shape[-1] // 2
    cosine, sine = _turns(x.shape[1], half, theta, sign, start, x.dtype)
    shape = (x.shape[1], *[1] * (x.ndim - 3), half)
    cosine, sine = cosine.reshape(shape), sine.reshape(shape)
    for one_y, one_x in zip(y, x, strict=True):
        lower, upper = one_x[..., :half], one_x[..., half:]
        new, other = like("rope.new", lower), like("rope.other", lower)
        np.multiply(lower, cosine, out=new)
        np.multiply(upper, sine, out=other)
        new -= other
        np.multiply(lower, sine, out=other)  # before `lower` may be overwritten
        np.multiply(upper, cosine, out=one_y[..., half:])
        one_y[..., half:] += other
        one_y[..., :half] = new


@lru_cache(maxsize=256)
def _turns(rows: int, half: int, theta: float, sign: float, start: int, dtype: Any) -> tuple[Array, Array]:
    """Cosine and sine of every position and frequency, computed in f64."""
    frequency = theta ** (-np.arange(half) / half)
    angle = sign * np.multiply.outer(np.arange(start, start + rows), frequency)
    return np.cos(angle).astype(dtype), np.sin(angle).astype(dtype)
