"""Semantics of softmax attention, multi-head (`b q h e`) and grouped-query (`b q h g e`), on whole score matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from wscc.ir.op import Op
from wscc.reference.semantics import Array, Semantics


def _queries(x: Array) -> Array:
    """`b q h [g] e` as `b h g q e`."""
    grouped = x if x.ndim == 5 else x[:, :, :, None]
    return grouped.transpose(0, 2, 3, 1, 4)


def _keys(x: Array) -> Array:
    """`b k h e` as `b h 1 k e`."""
    return x.transpose(0, 2, 1, 3)[:, :, None]


def _from_queries(x: Array, queries: Array) -> Array:
    """`b h g q e` in the shape of `queries`, `b q h [g] e`."""
    return x.transpose(0, 3, 1, 2, 4).reshape(queries.shape)


def _from_keys(x: Array) -> Array:
    """`b h g k e` as `b k h e`, summed over `g`: the heads of a group share their keys."""
    return np.asarray(x.sum(2)).transpose(0, 2, 1, 3)


def _t(x: Array) -> Array:
    return x.swapaxes(-1, -2)


def _softmax(op: Op, q: Array, k: Array) -> tuple[Array, Array]:
    """Probabilities `b h g q k` and log-sum-exp `b h g q`."""
    scores = (_queries(q) @ _t(_keys(k))) * float(op.attr("scale"))
    if op.attr("causal"):
        future = np.arange(k.shape[1]) > np.arange(q.shape[1])[:, None]
        scores = np.where(future, -np.inf, scores)
    maximum = scores.max(-1, keepdims=True)
    weights = np.exp(scores - maximum)
    total = weights.sum(-1, keepdims=True)
    return weights / total, (np.log(total) + maximum)[..., 0]


def _attention(op: Op, xs: Sequence[Array]) -> list[Array]:
    q, k, v = xs
    p, lse = _softmax(op, q, k)
    out = _from_queries(p @ _keys(v), q)
    return [out, lse.transpose(0, 3, 1, 2).reshape(q.shape[:-1])]


def _attention_vjp(op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]) -> list[Array]:
    """Gradients of q, k, v, by ds = p (dp - <p, dp> + dlse); the last term because d lse / d scores = p."""
    q, k, v = xs
    p, _ = _softmax(op, q, k)
    dout = _queries(dys[0])
    dlse = _queries(dys[1][..., None])
    dp = dout @ _t(_keys(v))
    ds = p * (dp - (p * dp).sum(-1, keepdims=True) + dlse) * float(op.attr("scale"))
    return [
        _from_queries(ds @ _keys(k), q),
        _from_keys(_t(ds) @ _queries(q)),
        _from_keys(_t(p) @ dout),
    ]


SEMANTICS: Final[dict[str, Semantics]] = {"attention": Semantics(_attention, _attention_vjp)}
