"""Constructors of the ops of graph networks, and the weights of edges.

Edges are pairs (n, m) of nodes, [edges, 2]: row n of a result takes something of row m of an operand. They are an array
of the module that is known before compilation (`Kind.EDGES`), so that each die has the edges between its own nodes and
those that come by, and no others.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from wscc.diagnostics import NO_SPAN, Span
from wscc.ir.builder import Builder, ShapeMismatch
from wscc.ir.op import Value

WEIGHTS: Final = ("sum", "mean", "symmetric")


def spmm(b: Builder, edges: Value, x: Value, *, weights: str = "sum", span: Span = NO_SPAN) -> Value:
    """The product of a sparse matrix with x [batch, nodes, d]: row n of the result is the sum over edges (n, m) of the
    weight of the edge times row m of x."""
    if len(x.type.shape) != 3:
        raise ShapeMismatch(f"`spmm` takes x [batch, nodes, d], not {list(x.type.shape)}")
    return b.one(
        "spmm", [edges, x], "e! c!, b m~@ d -> b n@ d", sizes={"n": x.type.shape[1]}, attrs={"weights": weights},
        hints=["spmm"], span=span,
    )  # fmt: skip


def edge_weights(edges: NDArray[Any], nodes: int, weights: str) -> NDArray[np.float64]:
    """The weight of each edge (n, m): 1 for `sum`; for `mean` 1 / deg(n); for `symmetric` 1 / sqrt(deg(n) deg(m)), as
    in Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional Networks", ICLR 2017, whose edges
    include one from each node to itself. deg(n) is the number of edges of row n."""
    if weights == "sum":
        return np.ones(len(edges))
    degrees = np.bincount(edges[:, 0], minlength=nodes).clip(1).astype(np.float64)
    if weights == "mean":
        return np.asarray(1 / degrees[edges[:, 0]])
    return np.asarray(1 / np.sqrt(degrees[edges[:, 0]] * degrees[edges[:, 1]]))
