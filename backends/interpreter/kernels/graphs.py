"""The kernel of graph networks: the product of a sparse matrix, in compressed rows, and a dense one."""

from __future__ import annotations

import numpy as np

from wscc.backends.interpreter.kernels.scratch import BLOCK, Array


def spmm(y: Array, entries: Array, weights: Array, x: Array, accumulate: bool) -> None:
    """y [b, n, d] = the sum of weights [e] times rows of x [b, m, d] over the entries of each row, or y +=.

    entries [n + 1 + e] (i32): where each row starts and the last one ends, then the column of each entry. What no
    matrix has is clipped: no memory is touched but that of the operands.
    """
    if not accumulate:
        y.fill(0)
    rows = y.shape[1]
    ends = np.maximum.accumulate(entries[: rows + 1].clip(0, len(weights)))
    columns = entries[rows + 1 :].clip(0, x.shape[1] - 1)
    filled = np.flatnonzero(np.diff(ends))
    each = max(1, BLOCK // max(1, x.shape[0] * x.shape[2]))
    first = 0
    while first < len(filled):
        start = ends[filled[first]]
        last = max(first + 1, int(np.searchsorted(ends[filled + 1], start + each, side="right")))
        some = filled[first:last]
        part = slice(start, ends[some[-1] + 1])
        terms = x[:, columns[part]] * weights[part, None]
        y[:, some] += np.add.reduceat(terms, ends[some] - start, axis=1)
        first = last
