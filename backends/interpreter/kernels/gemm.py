"""Kernels of contractions: matrix products, sums and dot products.

NumPy hands to BLAS only matrices of one unit stride; others are packed first.
"""

from __future__ import annotations

import numpy as np

from wscc.backends.interpreter.kernels.scratch import Array, blocks, scratch, scratch_like
from wscc.backends.interpreter.kernels.views import Prepared


def gemm(c: Array, a: Array, b: Array, scale: float, accumulate: bool) -> None:
    """c [*, m, n] = scale a [*, m, k] b [*, k, n], or c += that if `accumulate`; sums over k in f32 or f64."""
    if scale != 1.0:
        # The smallest of the three is scaled, so that no pass over a large product is needed.
        if a.size <= min(b.size, c.size):
            a, scale = np.multiply(a, scale, out=scratch_like("gemm.a", a)), 1.0
        elif b.size <= c.size:
            b, scale = np.multiply(b, scale, out=scratch_like("gemm.b", b)), 1.0
    tight = _gives_vector(a, b)
    a, b = _packed("gemm.a", a, tight), _packed("gemm.b", b, tight)
    direct = not accumulate and is_blas_matrix(c)
    product = c if direct else scratch_like("gemm.c", c)
    np.matmul(a, b, out=product)
    if scale != 1.0:
        np.multiply(product, scale, out=product)
    if accumulate:
        np.add(c, product, out=c)
    elif not direct:
        np.copyto(c, product)


def bound(c: Array, a: Array, b: Array, scale: float, accumulate: bool) -> Prepared:
    """The call that does `gemm` on these arrays: BLAS alone where no scaling, packing or addition is needed."""
    tight = _gives_vector(a, b)
    if scale == 1.0 and is_blas_matrix(a, tight=tight) and is_blas_matrix(b, tight=tight):
        if accumulate:
            return _accumulate, (c, a, b)
        if is_blas_matrix(c):
            return np.matmul, (a, b, c)
    return gemm, (c, a, b, scale, accumulate)


def _accumulate(c: Array, a: Array, b: Array) -> None:
    """c [*, m, n] += a [*, m, k] b [*, k, n], where BLAS can address both."""
    product = scratch_like("gemm.c", c)
    np.matmul(a, b, product)
    np.add(c, product, c)


def is_blas_matrix(x: Array, *, tight: bool = False) -> bool:
    """True if BLAS can address the matrices x [*, m, n]: one stride is an element, the other a row of them; of `tight`
    matrices with nothing in between."""
    item = x.itemsize
    (m, n), (sm, sn) = x.shape[-2:], x.strides[-2:]
    if tight:
        return (sn == item and sm == n * item) or (sm == item and sn == m * item)
    by_rows = sn == item and sm % item == 0 and sm >= n * item
    return by_rows or (sm == item and sn % item == 0 and sn >= m * item)


def _gives_vector(a: Array, b: Array) -> bool:
    """Whether a b is a row or a column. BLAS adds up such products in an order that depends on strides, so operands
    have to be tight, or replicas of a result would differ by where its operands lie."""
    return bool(a.shape[-2] == 1 or b.shape[-1] == 1)


def _packed(name: str, x: Array, tight: bool) -> Array:
    """The matrices x [*, m, n], copied if BLAS cannot address them; repeated matrices are copied once. Columns that lie
    together still do: BLAS adds up in another order than for rows."""
    if is_blas_matrix(x, tight=tight):
        return x
    distinct = x[tuple(slice(1) if s == 0 else slice(None) for s in x.strides[:-2])]
    if x.strides[-2] == x.itemsize != x.strides[-1]:
        packed = scratch_like(name, distinct.swapaxes(-1, -2)).swapaxes(-1, -2)
    else:
        packed = scratch_like(name, distinct)
    np.copyto(packed, distinct)
    return packed


def total(y: Array, x: Array, axes: str, accumulate: bool) -> None:
    """y [*] = sum of x [any shape] over the dimensions numbered in `axes` ("0,1"), or y += that if `accumulate`.

    The sum is taken in the element type of y, f32 or f64.
    """
    numbers = tuple(int(i) for i in axes.split(",")) if axes else ()
    out = scratch_like("sum", y) if accumulate else y
    np.add.reduce(x, axis=numbers, out=out)
    if accumulate:
        np.add(y, out, out=y)


def rowdot(r: Array, a: Array, b: Array) -> None:
    """r [*] = sum over e of a [*, e] b [*, e], in f32 or f64."""
    for a_block, b_block, r_block in blocks(1, a, b, r):
        row_dot(a_block, b_block, r_block)


def row_dot(a: Array, b: Array, out: Array) -> None:
    """out [*] = dot products of a [*, e] and b [*, e] along the last dimension."""
    np.vecdot(a, b, out=out)


def row_sum(x: Array, out: Array) -> None:
    """out [*] = sums of x [*, d] along the last dimension.

    By BLAS, several times faster than a reduction over short rows.
    """
    np.matmul(x, _ones(x.shape[-1], x.dtype), out=out)


def row_max(x: Array, out: Array) -> None:
    """out [*] = maxima of x [*, d] along the last dimension.

    Finding their positions is three times faster than `maximum.reduce`.
    """
    if x.shape[-1] == 0 or not x.flags.c_contiguous:
        np.maximum.reduce(x, axis=-1, out=out, initial=-np.inf)
        return
    positions = np.argmax(x, axis=-1).reshape(-1)
    positions += np.arange(0, x.size, x.shape[-1])
    np.copyto(out, x.reshape(-1)[positions].reshape(out.shape))


def column_sum(x: Array, out: Array, weights: Array | None = None) -> None:
    """out [d] += sum over the rows of x [*, d], each times its weight in `weights` [*] (None: one)."""
    rows = x.reshape(-1, x.shape[-1])
    partial_sum = scratch("column_sum", (x.shape[-1],), x.dtype)
    row_weights = _ones(rows.shape[0], x.dtype) if weights is None else weights.reshape(-1)
    np.matmul(row_weights, rows, out=partial_sum)
    np.add(out, partial_sum, out=out)


def _ones(n: int, dtype: np.dtype[np.generic]) -> Array:
    """[n] ones, in scratch."""
    ones = scratch("ones", (n,), dtype)
    ones.fill(1)
    return ones
