"""Attention pieces. Scores are [*, q, k]; where a query may not see a key, minus infinity is added first."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from wscc.backends.interpreter.kernels.gemm import row_max, row_sum
from wscc.backends.interpreter.kernels.scratch import Array, blocks, like, scratch


def softmax(p: Array, lse: Array, s: Array, causal: bool, q_start: int, k_start: int) -> None:
    hidden = _hidden(causal, s.shape[-2], s.shape[-1], q_start - k_start, s.dtype)
    for some_p, some_lse, some_s in blocks(2, p, lse, s):
        highest = _row_stat("softmax.max", some_s)
        if hidden is not None:
            some_s = np.add(some_s, hidden, out=some_p)
        row_max(some_s, highest)
        if hidden is not None:
            highest[np.isneginf(highest)] = 0  # rows that see nothing: exp(-inf - 0) = 0
        np.subtract(some_s, highest[..., None], out=some_p)
        np.exp(some_p, out=some_p)
        total = _row_stat("softmax.sum", some_p)
        row_sum(some_p, total)
        np.log(total, out=some_lse)
        some_lse += highest
        if hidden is not None:
            total[total == 0] = 1
        np.reciprocal(total, out=total)
        some_p *= total[..., None]


def probs(p: Array, s: Array, lse: Array, causal: bool, q_start: int, k_start: int) -> None:
    hidden = _hidden(causal, s.shape[-2], s.shape[-1], q_start - k_start, s.dtype)
    for some_p, some_s, some_lse in blocks(2, p, s, lse):
        level = _row_stat("softmax.max", some_s)
        np.copyto(level, some_lse)
        level[np.isneginf(level)] = 0  # such a row is hidden here too
        np.subtract(some_s, level[..., None], out=some_p)
        if hidden is not None:
            some_p += hidden
        np.exp(some_p, out=some_p)


def softmax_bwd(ds: Array, p: Array, dp: Array, delta: Array, scale: float) -> None:
    for some_ds, some_p, some_dp, some_delta in blocks(2, ds, p, dp, delta):
        t = np.subtract(some_dp, some_delta[..., None], out=like("softmax.t", some_ds))
        t *= some_p
        np.multiply(t, scale, out=some_ds)


def merge(o: Array, l: Array, o1: Array, l1: Array, o2: Array, l2: Array) -> None:  # noqa: E741
    """Weights exp(l1 - L) and exp(l2 - L), L = log(exp l1 + exp l2); a row that nothing saw stays zero.

    They are divided by their sum as they are: L itself is rounded, and where scores are large exp(l - L) would be
    off by |L| roundings, with no sum of one to bound it.
    """
    highest = np.maximum(l1, l2)
    level = np.where(np.isneginf(highest), 0, highest)
    w1, w2 = np.exp(l1 - level), np.exp(l2 - level)
    total = w1 + w2
    with np.errstate(divide="ignore"):  # log 0 = -inf: nothing was seen
        joint = level + np.log(total)
    total[total == 0] = 1
    w1 /= total
    w2 /= total
    for some_o, some_1, some_2, some_w1, some_w2 in blocks(1, o, o1, o2, w1, w2):
        t = np.multiply(some_2, some_w2[..., None], out=like("merge", some_2))
        np.multiply(some_1, some_w1[..., None], out=some_o)
        some_o += t
    np.copyto(l, joint)


def _row_stat(name: str, s: Array) -> Array:
    return scratch(name, s.shape[:-1], s.dtype)


@lru_cache(maxsize=256)
def _hidden(causal: bool, q: int, k: int, ahead: int, dtype: Any) -> Array | None:
    """[q, k] of 0 and, where k > q + ahead, minus infinity; None if every query sees every key."""
    if not causal or ahead >= k - 1:
        return None
    mask = np.zeros((q, k), dtype)
    mask[np.arange(k) > np.arange(q)[:, None] + ahead] = -np.inf
    return mask
