"""Contractions. NumPy hands to BLAS only matrices of one unit stride; others are packed first."""

from __future__ import annotations

import numpy as np

from wscc.backends.interpreter.kernels.scratch import Array, blocks, like, scratch
from wscc.backends.interpreter.kernels.views import Prepared


def gemm(c: Array, a: Array, b: Array, scale: float, accumulate: bool) -> None:
    if scale != 1.0:
        # The smallest of the three is scaled, so that no pass over a large product is needed.
        if a.size <= min(b.size, c.size):
            a, scale = np.multiply(a, scale, out=like("gemm.a", a)), 1.0
        elif b.size <= c.size:
            b, scale = np.multiply(b, scale, out=like("gemm.b", b)), 1.0
    a, b = _packed("gemm.a", a), _packed("gemm.b", b)
    direct = not accumulate and is_blas_matrix(c)
    product = c if direct else like("gemm.c", c)
    np.matmul(a, b, out=product)
    if scale != 1.0:
        np.multiply(product, scale, out=product)
    if accumulate:
        np.add(c, product, out=c)
    elif not direct:
        np.copyto(c, product)


def bound(c: Array, a: Array, b: Array, scale: float, accumulate: bool) -> Prepared:
    """`gemm` of these arrays, with all decided that does not change: BLAS alone where nothing else is to be done."""
    if scale == 1.0 and is_blas_matrix(a) and is_blas_matrix(b):
        if accumulate:
            return _accumulate, (c, a, b)
        if is_blas_matrix(c):
            return np.matmul, (a, b, c)
    return gemm, (c, a, b, scale, accumulate)


def _accumulate(c: Array, a: Array, b: Array) -> None:
    product = like("gemm.c", c)
    np.matmul(a, b, product)
    np.add(c, product, c)


def is_blas_matrix(x: Array) -> bool:
    """Whether BLAS can address the last two dimensions: one stride is an element, the other a row of them."""
    item = x.itemsize
    (m, n), (sm, sn) = x.shape[-2:], x.strides[-2:]
    by_rows = sn == item and sm % item == 0 and sm >= n * item
    return by_rows or (sm == item and sn % item == 0 and sn >= m * item)


def _packed(name: str, x: Array) -> Array:
    """The matrix, copied if BLAS cannot read it as it lies; repeated matrices are copied once."""
    if is_blas_matrix(x):
        return x
    once = x[tuple(slice(1) if s == 0 else slice(None) for s in x.strides[:-2])]
    packed = like(name, once)
    np.copyto(packed, once)
    return packed


def total(y: Array, x: Array, axes: str, accumulate: bool) -> None:
    """`sum`: over the axes numbered in the text."""
    over = tuple(int(i) for i in axes.split(",")) if axes else ()
    out = like("sum", y) if accumulate else y
    np.add.reduce(x, axis=over, out=out)
    if accumulate:
        np.add(y, out, out=y)


def rowdot(r: Array, a: Array, b: Array) -> None:
    for some_a, some_b, some_r in blocks(1, a, b, r):
        row_dot(some_a, some_b, some_r)


def row_dot(a: Array, b: Array, out: Array) -> None:
    """Dot products along the last dimension."""
    np.vecdot(a, b, out=out)


def row_sum(x: Array, out: Array) -> None:
    """Sums along the last dimension: by BLAS, several times faster than a reduction over short rows."""
    np.matmul(x, _ones(x.shape[-1], x.dtype), out=out)


def row_max(x: Array, out: Array) -> None:
    """Maxima along the last dimension: finding where they are is three times faster than `maximum.reduce`."""
    if x.shape[-1] == 0 or not x.flags.c_contiguous:
        np.maximum.reduce(x, axis=-1, out=out, initial=-np.inf)
        return
    where = np.argmax(x, axis=-1).reshape(-1)
    where += np.arange(0, x.size, x.shape[-1])
    np.copyto(out, x.reshape(-1)[where].reshape(out.shape))


def column_sum(x: Array, out: Array, weights: Array | None = None) -> None:
    """`out += ` the sums over all dimensions but the last, of every row times its weight."""
    rows = x.reshape(-1, x.shape[-1])
    part = scratch("column_sum", (x.shape[-1],), x.dtype)
    each = _ones(rows.shape[0], x.dtype) if weights is None else weights.reshape(-1)
    np.matmul(each, rows, out=part)
    np.add(out, part, out=out)


def _ones(n: int, dtype: np.dtype[np.generic]) -> Array:
    ones = scratch("ones", (n,), dtype)
    ones.fill(1)
    return ones
