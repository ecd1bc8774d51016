"""Normalisation and rotary positions: rows of `d` elements, many rows to a block."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from wscc.backends.kernel_gemm import column_sum, row_dot, row_sum
from wscc.backends.scratch import Array, blocks, like, scratch


def layernorm(y: Array, x: Array, g: Array, b: Array, eps: float) -> None:
    for some_y, some_x in blocks(1, y, x):
        h, _ = _standardised(some_x, eps)
        h *= g
        np.add(h, b, out=some_y)


def layernorm_bwd(dx: Array, dg: Array, db: Array, x: Array, g: Array, dy: Array, eps: float) -> None:
    """With h the standardised row and u = dy g: dx = (u - mean u - h mean(u h)) / deviation."""
    dg.fill(0)
    db.fill(0)
    for some_dx, some_x, some_dy in blocks(1, dx, x, dy):
        h, inverse = _standardised(some_x, eps)
        p, m = like("norm.p", h), like("norm.m", inverse)
        np.multiply(some_dy, h, out=p)
        column_sum(p, dg)
        column_sum(some_dy, db)
        np.matmul(p, _weights(g), out=m)
        h *= m[..., None]
        np.multiply(some_dy, g, out=p)
        row_sum(p, m)
        m /= g.shape[0]
        p -= m[..., None]
        p -= h
        np.multiply(p, inverse[..., None], out=some_dx)


def rmsnorm(y: Array, x: Array, g: Array, eps: float) -> None:
    for some_y, some_x in blocks(1, y, x):
        inverse = _inverse_rms(some_x, eps)
        h = like("norm.h", some_x)
        np.multiply(some_x, inverse[..., None], out=h)
        np.multiply(h, g, out=some_y)


def rmsnorm_bwd(dx: Array, dg: Array, x: Array, g: Array, dy: Array, eps: float) -> None:
    """With h = x / rms and u = dy g: dx = (u - h mean(u h)) / rms."""
    dg.fill(0)
    for some_dx, some_x, some_dy in blocks(1, dx, x, dy):
        inverse = _inverse_rms(some_x, eps)
        h, p, m = like("norm.h", some_x), like("norm.p", some_x), like("norm.m", inverse)
        np.multiply(some_x, inverse[..., None], out=h)
        np.multiply(some_dy, h, out=p)
        column_sum(p, dg)
        np.matmul(p, _weights(g), out=m)
        h *= m[..., None]
        np.multiply(some_dy, g, out=p)
        p -= h
        np.multiply(p, inverse[..., None], out=some_dx)


def _standardised(x: Array, eps: float) -> tuple[Array, Array]:
    """(x - mean) / deviation in scratch, and 1 / deviation of every row."""
    h = like("norm.h", x)
    mean = scratch("norm.mean", x.shape[:-1], x.dtype)
    inverse = scratch("norm.inverse", x.shape[:-1], x.dtype)
    np.copyto(h, x)
    row_sum(h, mean)
    mean /= x.shape[-1]
    h -= mean[..., None]
    row_dot(h, h, inverse)
    _finish(inverse, x.shape[-1], eps)
    h *= inverse[..., None]
    return h, inverse


def _inverse_rms(x: Array, eps: float) -> Array:
    inverse = scratch("norm.inverse", x.shape[:-1], x.dtype)
    row_dot(x, x, inverse)
    return _finish(inverse, x.shape[-1], eps)


def _finish(squares: Array, n: int, eps: float) -> Array:
    """1 / sqrt(squares / n + eps), in place."""
    squares /= n
    squares += eps
    np.sqrt(squares, out=squares)
    return np.reciprocal(squares, out=squares)


def _weights(g: Array) -> Array:
    """g / d: with it a product is a weighted mean."""
    weights = like("norm.weights", g)
    np.divide(g, g.shape[0], out=weights)
    return weights


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
