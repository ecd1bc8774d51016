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


def _softmax(op: Op, q: Array, k: Array) -> tuple[Array, Array, Array]:
    """Exponentials `b h g q k` of scores minus their row's maximum, the maxima and the sums of exponentials, both
    `b h g q 1`."""
    options = dict(op.attrs)
    scores, ahead = _scores(op, q, k), np.arange(k.shape[1]) - np.arange(q.shape[1])[:, None]
    if cap := float(options.get("cap", 0)):
        scores = cap * np.tanh(scores / cap)
    if heads := int(options.get("alibi", 0)):
        slopes = np.array(_slopes(heads), scores.dtype)
        scores = scores + slopes.reshape(*scores.shape[1:3], 1, 1) * ahead.astype(scores.dtype)
    if options["causal"]:
        scores = np.where(ahead > 0, -np.inf, scores)
    if window := int(options.get("window", 0)):
        scores = np.where(ahead <= -window, -np.inf, scores)
    if limit := int(options.get("limit", 0)):
        scores[..., limit:] = -np.inf
    maxima = scores.max(-1, keepdims=True)
    weights = np.exp(scores - maxima)
    return weights, maxima, weights.sum(-1, keepdims=True)


def _scores(op: Op, q: Array, k: Array) -> Array:
    """Scaled products `b h g q k`."""
    return np.asarray((_queries(q) @ _t(_keys(k))) * float(op.attr("scale")))


def _slopes(heads: int) -> list[float]:
    """The slopes of ALiBi, by the recursion of its authors: of a power of two a geometric row, of another number that
    of the power below, and every second one of twice that power."""
    if heads & (heads - 1) == 0:
        first = 2.0 ** (-8 / heads)
        return [first ** (i + 1) for i in range(heads)]
    power = 2 ** (heads.bit_length() - 1)
    return _slopes(power) + _slopes(2 * power)[::2][: heads - power]


def _attention(op: Op, xs: Sequence[Array]) -> list[Array]:
    q, k, v = xs
    weights, maxima, sums = _softmax(op, q, k)
    out = _from_queries((weights / sums) @ _keys(v), q)
    return [out, *(x[..., 0].transpose(0, 3, 1, 2).reshape(q.shape[:-1]) for x in (maxima, sums))]


def _attention_vjp(op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]) -> list[Array]:
    """Gradients of q, k, v, by ds = p (dp - <p, dp>) for the output. The sum of exponentials z has the slope exp(s - m)
    and, through the maximum m, -z at the first of the largest scores, where m has the slope 1."""
    q, k, v = xs
    weights, _, sums = _softmax(op, q, k)
    p = weights / sums
    dout, dmax, dsum = _queries(dys[0]), _queries(dys[1][..., None]), _queries(dys[2][..., None])
    dp = dout @ _t(_keys(v))
    first = np.arange(k.shape[1]) == weights.argmax(-1)[..., None]
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) + weights * dsum + first * (dmax - dsum * sums)
    ds = ds * float(op.attr("scale"))
    if cap := float(dict(op.attrs).get("cap", 0)):
        ds = ds / np.cosh(_scores(op, q, k) / cap) ** 2
    return [
        _from_queries(ds @ _keys(k), q),
        _from_keys(_t(ds) @ _queries(q)),
        _from_keys(_t(p) @ dout),
    ]


SEMANTICS: Final[dict[str, Semantics]] = {"attention": Semantics(_attention, _attention_vjp)}
