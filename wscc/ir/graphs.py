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
    _require_rows("spmm", x)
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


def edge_attention(
    b: Builder, edges: Value, s: Value, t: Value, values: Value, *, slope: float = 0.2, span: Span = NO_SPAN
) -> Value:
    """Graph attention (Velickovic et al., ICLR 2018): row n of the result is the mean of rows m of `values` [batch,
    nodes, heads, f] over its edges (n, m), weighed by the softmax of leaky_relu(s [batch, nodes, heads] at n + t at m),
    which has the `slope` below 0. A node without edges gets 0."""
    if len(values.type.shape) != 4:
        raise ShapeMismatch(
            f"`edge_attention` takes values [batch, nodes, heads, f], not {list(values.type.shape)}"
        )
    rule = "e! c!, b n@ h, b m! h, b m! h f -> b n@ h f"
    result = b.one(
        "edge_attention", [edges, s, t, values], rule, attrs={"slope": slope}, hints=["gat"], span=span
    )
    if s.type.shape != t.type.shape:
        raise ShapeMismatch(f"`edge_attention` of s {list(s.type.shape)} and t {list(t.type.shape)}")
    return result


def edge_max(b: Builder, edges: Value, x: Value, *, span: Span = NO_SPAN) -> Value:
    """Row n of the result is the largest, element by element, of rows m of x [batch, nodes, d] over its edges (n, m),
    as in GraphSAGE's pooling (Hamilton et al., NeurIPS 2017). A node without edges gets 0. The gradient is shared
    equally among edges that bring the same largest element."""
    _require_rows("edge_max", x)
    sizes = {"n": x.type.shape[1]}
    return b.one(
        "edge_max", [edges, x], "e! c!, b m! d -> b n@ d", sizes=sizes, hints=["edge_max"], span=span
    )


def edge_sum(b: Builder, edges: Value, x: Value, weights: Value, *, span: Span = NO_SPAN) -> Value:
    """Row n of the result is the sum over edges (n, m) of row m of x [batch, nodes, d] times the weight of the edge, of
    `weights` [edges], which may be a parameter. A node without edges gets 0."""
    _require_rows("edge_sum", x)
    if weights.type.shape != edges.type.shape[:1]:
        raise ShapeMismatch(
            f"`edge_sum` takes a weight for each of {edges.type.shape[0]} edges, not {list(weights.type.shape)}"
        )
    return b.one(
        "edge_sum", [edges, x, weights], "e! c!, b m! d, e! -> b n@ d", sizes={"n": x.type.shape[1]},
        hints=["edge_sum"], span=span,
    )  # fmt: skip


def _require_rows(name: str, x: Value) -> None:
    if len(x.type.shape) != 3:
        raise ShapeMismatch(f"`{name}` takes x [batch, nodes, d], not {list(x.type.shape)}")
