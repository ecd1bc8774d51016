"""Kernels of normalisation over the last dimension, and of rotary positions."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from wscc.backends.interpreter.kernels.gemm import column_sum, row_dot, row_sum
from wscc.backends.interpreter.kernels.scratch import Array, blocks, scratch, scratch_like


def layernorm(y: Array, x: Array, g: Array, b: Array, eps: float) -> None:
    """y [*, d] = layernorm of x [*, d] with gain g [d] and bias b [d], biased variance, in f32 or f64."""
    for y_block, x_block in blocks(1, y, x):
        c, s = _centred(x_block), scratch("norm.s", x_block.shape[:-1], x_block.dtype)
        row_dot(c, c, s)
        _finish(s, x.shape[-1], eps)
        c *= s[..., None]
        c *= g
        np.add(c, b, out=y_block)


def layernorm_bwd(dx: Array, dg: Array, db: Array, x: Array, g: Array, dy: Array, eps: float) -> None:
    """dx [*, d], dg [d], db [d] = gradients of `layernorm` at x [*, d], g [d] for dy [*, d], in f32 or f64.

    With c = x - mean, s = 1 / deviation, u = dy g: dx = s (u - mean u - c s^2 mean(u c)), dg = sum dy c s.
    Rows are scaled as late as possible, where that is a number for each row and not a pass.
    """
    dg.fill(0)
    db.fill(0)
    for dx_block, x_narrow, dy_block in blocks(1, dx, x, dy):
        x_block = _as_wide(x_narrow, dy)
        c, s = _centred(x_block), scratch("norm.s", x_block.shape[:-1], x_block.dtype)
        row_dot(c, c, s)
        _finish(s, x.shape[-1], eps)
        _backward(dx_block, dg, c, s, g, dy_block, db)


def _backward(dx: Array, dg: Array, c: Array, s: Array, g: Array, dy: Array, db: Array | None) -> None:
    """dx [*, d] of both norms, and dg [d], db [d] added to; `c` [*, d] is overwritten.

    `c` are the centred rows and s [*] their inverse deviations. Without `db` no mean is subtracted.
    """
    p, m = scratch_like("norm.p", c), scratch_like("norm.m", s)
    weights = np.divide(g, g.shape[0], out=scratch("norm.weights", g.shape, c.dtype))
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
    """y [*, d] = x [*, d] / sqrt(mean(x^2) + eps) g [d], in f32 or f64."""
    for y_block, x_block in blocks(1, y, x):
        h = np.multiply(x_block, _inverse_rms(x_block, eps)[..., None], out=scratch_like("norm.c", x_block))
        np.multiply(h, g, out=y_block)


def rmsnorm_bwd(dx: Array, dg: Array, x: Array, g: Array, dy: Array, eps: float) -> None:
    """dx [*, d], dg [d] = gradients of `rmsnorm` at x [*, d], g [d] for dy [*, d], in f32 or f64.

    As `layernorm_bwd`, with x itself in place of x - mean.
    """
    dg.fill(0)
    for dx_block, x_narrow, dy_block in blocks(1, dx, x, dy):
        x_block = _as_wide(x_narrow, dy)
        c, s = scratch_like("norm.c", x_block), _inverse_rms(x_block, eps)
        np.copyto(c, x_block)
        _backward(dx_block, dg, c, s, g, dy_block, None)


def _as_wide(x: Array, dy: Array) -> Array:
    """x [*, d] in the type of `dy` where that is wider: a gradient of a weight, in the type of gradients, that goes on
    through the norm of a weight."""
    if np.promote_types(x.dtype, dy.dtype) == x.dtype:
        return x
    wide = scratch("norm.x", x.shape, dy.dtype)
    np.copyto(wide, x)
    return wide


def _centred(x: Array) -> Array:
    """x [*, d] minus the mean of each row, in scratch.

    Twice: a mean of 1e4 is rounded by as much as 5e-4, which the mean of the differences tells.
    """
    c, mean = scratch_like("norm.c", x), scratch("norm.mean", x.shape[:-1], x.dtype)
    for rows in (x, c):
        row_sum(rows, mean)
        mean /= x.shape[-1]
        np.subtract(rows, mean[..., None], out=c)
    return c


def _inverse_rms(x: Array, eps: float) -> Array:
    """1 / sqrt(mean(x^2) + eps) [*] of each row of x [*, d], in scratch."""
    inverse = scratch("norm.s", x.shape[:-1], x.dtype)
    row_dot(x, x, inverse)
    return _finish(inverse, x.shape[-1], eps)


def _finish(squares: Array, n: int, eps: float) -> Array:
    """1 / sqrt(squares / n + eps), in place of the sums of squares."""
    squares /= n
    squares += eps
    np.sqrt(squares, out=squares)
    return np.reciprocal(squares, out=squares)


def rope(
    y: Array, x: Array, theta: float, sign: float, start: int, width: int | None = None, *options: float
) -> None:
    """y [b, s, *, e] = x [b, s, *, e] with pairs (i, i + e/2) turned by sign (start + s) theta^(-2i/e).

    Rotary positions (Su et al. 2021) in the half-split form of Llama, in f32 or f64. With `width`, the first elements
    alone are turned, in its halves; `options` is `factor low high original` (`_scaled`) and `interleaved`: neighbours
    (2i, 2i + 1) are turned, not halves.
    """
    if width is not None and width < x.shape[-1]:
        y[..., width:] = x[..., width:]
        y, x = y[..., :width], x[..., :width]
    half = x.shape[-1] // 2
    *scaling, interleaved = options or (0,)
    cosine, sine = _rotations(x.shape[1], half, theta, sign, start, x.dtype, tuple(scaling))
    first, second = (
        (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(half), slice(half, None))
    )
    shape = (x.shape[1], *[1] * (x.ndim - 3), half)
    cosine, sine = cosine.reshape(shape), sine.reshape(shape)
    for y_row, x_row in zip(y, x, strict=True):
        lower, upper = x_row[..., first], x_row[..., second]
        turned, product = scratch_like("rope.turned", lower), scratch_like("rope.product", lower)
        np.multiply(lower, cosine, out=turned)
        np.multiply(upper, sine, out=product)
        turned -= product
        np.multiply(lower, sine, out=product)  # before `lower` may be overwritten
        np.multiply(upper, cosine, out=y_row[..., second])
        y_row[..., second] += product
        y_row[..., first] = turned


@lru_cache(maxsize=256)
def _rotations(
    rows: int, half: int, theta: float, sign: float, start: int, dtype: Any, scaling: tuple[float, ...]
) -> tuple[Array, Array]:
    """Cosines and sines [rows, half] of every position and frequency, computed in f64."""
    frequency = theta ** (-np.arange(half) / half)
    if scaling:
        frequency *= _scaled(frequency, *scaling)
    angle = sign * np.multiply.outer(np.arange(start, start + rows), frequency)
    return np.cos(angle).astype(dtype), np.sin(angle).astype(dtype)


def _scaled(frequency: Array, factor: float, low: float, high: float, original: float) -> Array:
    """What scales each frequency: 1 / factor where it turns less than `low` times in `original` positions, 1 where it
    does more than `high` times, and between them in proportion (Llama 3.1); 1 / factor for all if `original` is 0."""
    kept = np.clip((original * frequency / (2 * np.pi) - low) / (high - low), 0, 1)
    scale: Array = kept + (1 - kept) / factor
    return scale
