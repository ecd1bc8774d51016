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


SEMANTICS: Final[dict[str, Semantics]] = {"spmm": Semantics(_spmm, _spmm_vjp)}
