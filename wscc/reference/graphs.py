"""Semantics of the product of a sparse matrix: each edge adds a row to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from wscc.ir.op import Op
from wscc.reference.semantics import Array, Semantics


def _weights(op: Op, edges: Array) -> Array:
    """The weight of each edge (n, m): 1, or by the number of edges of row n (and m), as `wscc.ir.graphs` says."""
    if op.attr("weights") == "sum":
        return np.ones(len(edges))
    nodes, counts = np.unique(edges[:, 0], return_counts=True)
    of_node = np.ones(int(edges.max()) + 1)
    of_node[nodes] = counts
    if op.attr("weights") == "mean":
        return np.asarray(of_node[edges[:, 0]] ** -1)
    return np.asarray(of_node[edges].prod(axis=1) ** -0.5)


def _moved(x: Array, weights: Array, source: Array, target: Array, rows: int) -> Array:
    """Rows `source` of x [b, *, d], weighed and added up at rows `target` of `rows`, in f64."""
    out = np.zeros((rows, x.shape[0], x.shape[2]))
    np.add.at(out, target, x.swapaxes(0, 1)[source] * weights[:, None, None])
    return out.swapaxes(0, 1).astype(x.dtype)


def _spmm(op: Op, xs: Sequence[Array]) -> list[Array]:
    edges, x = xs
    return [_moved(x, _weights(op, edges), edges[:, 1], edges[:, 0], op.results[0].type.shape[1])]


def _spmm_vjp(op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]) -> list[Array | None]:
    edges, x = xs
    return [None, _moved(dys[0], _weights(op, edges), edges[:, 0], edges[:, 1], x.shape[1])]


def _shares(edges: Array, s: Array, t: Array, slope: float) -> Array:
    """The share [b, e, h] that each edge has of its row: exp of its score over the sum of the row's."""
    z = s[:, edges[:, 0]] + t[:, edges[:, 1]]
    z = np.where(z > 0, z, slope * z)
    top = np.full(s.shape, -np.inf)
    np.maximum.at(top.swapaxes(0, 1), edges[:, 0], z.swapaxes(0, 1))
    p = np.exp(z - top[:, edges[:, 0]])
    return np.asarray(p / _onto(p, edges[:, 0], s.shape[1])[:, edges[:, 0]])


def _onto(x: Array, rows: Array, count: int) -> Array:
    """The sums [b, count, *] of x [b, e, *] by row, in f64."""
    out = np.zeros((count, x.shape[0], *x.shape[2:]))
    np.add.at(out, rows, x.swapaxes(0, 1))
    return out.swapaxes(0, 1)


def _edge_attention(op: Op, xs: Sequence[Array]) -> list[Array]:
    edges, s, t, v = xs
    p = _shares(edges, s, t, float(op.attr("slope")))
    return [_onto(p[..., None] * v[:, edges[:, 1]], edges[:, 0], s.shape[1]).astype(v.dtype)]


def _edge_attention_vjp(
    op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]
) -> list[Array | None]:
    """A score moves its share p by p (1 - p), and others of the row by -p p': together p times what the row gains by
    this edge more than by its mean."""
    (edges, s, t, v), slope = xs, float(op.attr("slope"))
    to, source = edges.T
    p, dy = _shares(edges, s, t, slope), dys[0][:, to]
    gain = ((v[:, source] - ys[0][:, to]) * dy).sum(-1)
    dz = p * gain * np.where(s[:, to] + t[:, source] > 0, 1, slope)
    grads = (
        _onto(dz, to, s.shape[1]),
        _onto(dz, source, t.shape[1]),
        _onto(p[..., None] * dy, source, v.shape[1]),
    )
    return [None, *(g.astype(x.dtype) for g, x in zip(grads, (s, t, v), strict=True))]


def _edge_max(op: Op, xs: Sequence[Array]) -> list[Array]:
    edges, x = xs
    y = np.full((op.results[0].type.shape[1], x.shape[0], x.shape[2]), -np.inf)
    np.maximum.at(y, edges[:, 0], x.swapaxes(0, 1)[edges[:, 1]])
    return [np.where(np.isneginf(y), 0, y).swapaxes(0, 1).astype(x.dtype)]


def _edge_max_vjp(
    op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]
) -> list[Array | None]:
    """Edges that bring the maximum of their row share its gradient."""
    x, (to, source) = xs[1], xs[0].T
    brings = (x[:, source] == ys[0][:, to]).astype(float)
    share = brings / _onto(brings, to, ys[0].shape[1])[:, to].clip(1)
    return [None, _onto(share * dys[0][:, to], source, x.shape[1]).astype(x.dtype)]


def _edge_sum(op: Op, xs: Sequence[Array]) -> list[Array]:
    edges, x, w = xs
    return [_moved(x, w, edges[:, 1], edges[:, 0], op.results[0].type.shape[1])]


def _edge_sum_vjp(
    op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]
) -> list[Array | None]:
    edges, x, w = xs
    each = np.einsum("bed,bed->e", x[:, edges[:, 1]], dys[0][:, edges[:, 0]], dtype=np.float64)
    return [None, _moved(dys[0], w, edges[:, 0], edges[:, 1], x.shape[1]), each.astype(w.dtype)]


SEMANTICS: Final[dict[str, Semantics]] = {
    "spmm": Semantics(_spmm, _spmm_vjp),
    "edge_attention": Semantics(_edge_attention, _edge_attention_vjp),
    "edge_max": Semantics(_edge_max, _edge_max_vjp),
    "edge_sum": Semantics(_edge_sum, _edge_sum_vjp),
}
