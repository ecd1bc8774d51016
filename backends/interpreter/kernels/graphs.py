"""Kernels of graph networks: sums over the entries of a sparse matrix in compressed rows."""

from __future__ import annotations

import numpy as np

from wscc.backends.interpreter.kernels.scratch import BLOCK, Array


class _Entries:
    """Compressed rows: `filled` rows have entries, from `starts` on. Of each entry, the `number` of its row among
    these, and its column. What no matrix has is clipped: no memory is touched but that of the operands."""

    def __init__(self, entries: Array, rows: int, columns: int) -> None:
        room = len(entries) - rows - 1
        ends = np.maximum.accumulate(entries[: rows + 1].clip(0, room))
        counts = np.diff(ends)
        self.filled = np.flatnonzero(counts)
        self.starts = ends[self.filled] - ends[0]
        self.number = np.repeat(np.arange(len(self.filled)), counts[self.filled])
        self.part = slice(ends[0], ends[-1])
        self.columns = entries[rows + 1 :][self.part].clip(0, columns - 1)

    def sums(self, x: Array) -> Array:
        """The sums of x [entries, *] by row, [filled, *]."""
        return np.asarray(np.add.reduceat(x, self.starts))


def spmm(y: Array, entries: Array, weights: Array, x: Array, accumulate: bool) -> None:
    """y [b, n, d] = the sum of weights [e] times rows of x [b, m, d] over the entries of each row, or y +=.

    entries [n + 1 + e] (i32): where each row starts and the last one ends, then the column of each entry.
    """
    if not accumulate:
        y.fill(0)
    e = _Entries(entries, y.shape[1], x.shape[1])
    weights, ends = weights[e.part], np.append(e.starts[1:], len(e.columns))
    each = max(1, BLOCK // max(1, x.shape[0] * x.shape[2]))
    first = 0
    while first < len(e.filled):
        start = e.starts[first]
        last = max(first + 1, int(np.searchsorted(ends, start + each, side="right")))
        part = slice(start, ends[last - 1])
        terms = x[:, e.columns[part]] * weights[part, None]
        y[:, e.filled[first:last]] += np.add.reduceat(terms, e.starts[first:last] - start, axis=1)
        first = last


def _shares(e: _Entries, s: Array, t: Array, slope: float) -> tuple[Array, Array]:
    """The share [entries, h] of each entry in its row, and the slope of leaky_relu at its score."""
    z = s[e.filled][e.number] + t[e.columns]
    slopes = np.where(z > 0, 1, slope).astype(z.dtype)
    z *= slopes
    z -= np.maximum.reduceat(z, e.starts)[e.number]
    np.exp(z, out=z)
    z /= e.sums(z)[e.number]
    return z, slopes


def edge_attention(y: Array, entries: Array, s: Array, t: Array, v: Array, slope: float) -> None:
    """y [b, n, h, f] = the mean of rows of v [b, m, h, f] over the entries of each row, weighed by the softmax of
    leaky_relu(s [b, n, h] + t [b, m, h]); 0 where there are none."""
    y.fill(0)
    e = _Entries(entries, y.shape[1], v.shape[1])
    for b in range(len(y)) if len(e.filled) else ():
        p, _ = _shares(e, s[b], t[b], slope)
        y[b, e.filled] = e.sums(p[..., None] * v[b][e.columns])


def edge_attention_bwd(
    ds: Array, dt: Array, dv: Array, entries: Array, s: Array, t: Array, v: Array, dy: Array, slope: float
) -> None:
    """ds [b, n, h], dt [b, m, h] and dv [b, m, h, f] of `edge_attention`, from dy [b, n, h, f]. All are linear in dy,
    so that parts of f add up. In f64, rounded at the end: in a row with one slope, terms of ds cancel whatever they
    are."""
    e = _Entries(entries, dy.shape[1], v.shape[1])
    sums = [np.zeros(out.shape[1:]) for out in (ds, dt, dv)]
    for b in range(len(dy)):
        for x in sums:
            x.fill(0)
        if len(e.filled):
            at_b = [x[b].astype(np.float64) for x in (s, t, v, dy)]
            _add_gradients(sums, e, at_b, slope)
        for out, x in zip((ds, dt, dv), sums, strict=True):
            out[b] = x


def _add_gradients(sums: list[Array], e: _Entries, operands: list[Array], slope: float) -> None:
    (ds, dt, dv), (s, t, v, dy) = sums, operands
    p, slopes = _shares(e, s, t, slope)
    from_row = dy[e.filled][e.number]
    dp = (from_row * v[e.columns]).sum(-1)
    dz = p * (dp - e.sums(p * dp)[e.number]) * slopes
    ds[e.filled] = e.sums(dz)
    np.add.at(dt, e.columns, dz)
    np.add.at(dv, e.columns, p[..., None] * from_row)


def edge_max(y: Array, entries: Array, x: Array) -> None:
    """y [b, n, d] = the largest of rows of x [b, m, d] over the entries of each row, element by element; 0 where there
    are none."""
    y.fill(0)
    e = _Entries(entries, y.shape[1], x.shape[1])
    for b in range(len(y)) if len(e.filled) else ():
        y[b, e.filled] = np.maximum.reduceat(x[b][e.columns], e.starts)


def edge_max_bwd(dx: Array, entries: Array, x: Array, dy: Array) -> None:
    """dx [b, m, d] of `edge_max`, from dy [b, n, d]: entries that bring the same largest element have equal shares, as
    in PyTorch's `scatter_reduce`. Added up in f64."""
    dx.fill(0)
    e = _Entries(entries, dy.shape[1], x.shape[1])
    for b in range(len(dx)) if len(e.filled) else ():
        terms = x[b][e.columns]
        is_largest = terms == np.maximum.reduceat(terms, e.starts)[e.number]
        shares = dy[b, e.filled].astype(np.float64) / e.sums(is_largest.astype(np.float64))
        sums = np.zeros(dx.shape[1:])
        np.add.at(sums, e.columns, is_largest * shares[e.number])
        dx[b] = sums


def edge_sum(y: Array, entries: Array, numbers: Array, x: Array, w: Array) -> None:
    """y [b, n, d] = the sum of rows of x [b, m, d] over the entries of each row, times w [e] at the entry's number."""
    y.fill(0)
    e = _Entries(entries, y.shape[1], x.shape[1])
    weights = w[_numbers(e, numbers, w), None]
    for b in range(len(y)) if len(e.filled) else ():
        y[b, e.filled] = e.sums(x[b][e.columns] * weights)


def edge_sum_bwd(dx: Array, dw: Array, entries: Array, numbers: Array, x: Array, w: Array, dy: Array) -> None:
    """dx [b, m, d] and dw [e] of `edge_sum`, from dy [b, n, d]. Added up in f64."""
    e = _Entries(entries, dy.shape[1], x.shape[1])
    number, of_edges = _numbers(e, numbers, w), np.zeros(len(w))
    weights = w[number, None].astype(np.float64)
    for b in range(len(dx)):
        sums = np.zeros(dx.shape[1:])
        if len(e.filled):
            from_row = dy[b, e.filled].astype(np.float64)[e.number]
            np.add.at(sums, e.columns, from_row * weights)
            np.add.at(of_edges, number, (from_row * x[b][e.columns]).sum(-1))
        dx[b] = sums
    dw[...] = of_edges


def _numbers(e: _Entries, numbers: Array, w: Array) -> Array:
    """The number of each entry among w; what it does not have is clipped, as columns are."""
    return numbers[e.part].clip(0, len(w) - 1)
