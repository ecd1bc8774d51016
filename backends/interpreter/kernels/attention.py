"""Kernels of softmax attention: softmax, its derivative, and the merge of two chunks of keys.

Scores are [*, q, k]; a causal mask adds minus infinity where a query may not see a key.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from wscc.backends.interpreter.kernels.gemm import row_max, row_sum
from wscc.backends.interpreter.kernels.scratch import Array, blocks, scratch, scratch_like


def softmax(p: Array, lse: Array, s: Array, causal: bool, q_start: int, k_start: int) -> None:
    """p [*, q, k] = softmax over k of scores s [*, q, k], lse [*, q] = log-sum-exp; p may be s itself.

    f32 or f64, maximum subtracted first. Query i sees key j where k_start + j <= q_start + i or not `causal`; a row
    that sees nothing gives p = 0 and lse = -inf.
    """
    mask = _causal_mask(causal, s.shape[-2], s.shape[-1], q_start - k_start, s.dtype)
    for p_block, lse_block, s_block in blocks(2, p, lse, s):
        highest = _row_stat("softmax.max", s_block)
        if mask is not None:
            s_block = np.add(s_block, mask, out=p_block)
        row_max(s_block, highest)
        if mask is not None:
            highest[np.isneginf(highest)] = 0  # rows that see nothing: exp(-inf - 0) = 0
        np.subtract(s_block, highest[..., None], out=p_block)
        np.exp(p_block, out=p_block)
        total = _row_stat("softmax.sum", p_block)
        row_sum(p_block, total)
        np.log(total, out=lse_block)
        lse_block += highest
        if mask is not None:
            total[total == 0] = 1
        np.reciprocal(total, out=total)
        p_block *= total[..., None]


def probs(p: Array, s: Array, lse: Array, causal: bool, q_start: int, k_start: int) -> None:
    """p [*, q, k] = exp(s [*, q, k] - lse [*, q]), f32 or f64; masked entries (as in `softmax`) are 0."""
    mask = _causal_mask(causal, s.shape[-2], s.shape[-1], q_start - k_start, s.dtype)
    for p_block, s_block, lse_block in blocks(2, p, s, lse):
        level = _row_stat("softmax.max", s_block)
        np.copyto(level, lse_block)
        level[np.isneginf(level)] = 0  # such a row is hidden here too
        np.subtract(s_block, level[..., None], out=p_block)
        if mask is not None:
            p_block += mask
        np.exp(p_block, out=p_block)


def softmax_bwd(ds: Array, p: Array, dp: Array, delta: Array, scale: float) -> None:
    """ds [*, q, k] = p [*, q, k] (dp [*, q, k] - delta [*, q]) scale, f32 or f64; delta = rowdot(p, dp)."""
    for ds_block, p_block, dp_block, delta_block in blocks(2, ds, p, dp, delta):
        t = np.subtract(dp_block, delta_block[..., None], out=scratch_like("softmax.t", ds_block))
        t *= p_block
        np.multiply(t, scale, out=ds_block)


def merge(o: Array, l: Array, o1: Array, l1: Array, o2: Array, l2: Array) -> None:  # noqa: E741
    """o [*, e], l [*] = attention over two chunks of keys, from o1, o2 [*, e] and log-sum-exps l1, l2 [*], f32 or f64.

    Online softmax (Milakov and Gimelshein 2018): weights are exp(l1 - L) and exp(l2 - L), L = log(exp l1 + exp l2);
    a row that saw no key stays zero. The weights are divided by their own sum: L itself is rounded, and where scores
    are large exp(l - L) would be off by |L| roundings, with no sum of one to bound it.
    """
    highest = np.maximum(l1, l2)
    level = np.where(np.isneginf(highest), 0, highest)
    w1, w2 = np.exp(l1 - level), np.exp(l2 - level)
    total = w1 + w2
    with np.errstate(divide="ignore"):  # log 0 = -inf: no key was seen
        joint = level + np.log(total)
    total[total == 0] = 1
    w1 /= total
    w2 /= total
    for o_block, o1_block, o2_block, w1_block, w2_block in blocks(1, o, o1, o2, w1, w2):
        t = np.multiply(o2_block, w2_block[..., None], out=scratch_like("merge", o2_block))
        np.multiply(o1_block, w1_block[..., None], out=o_block)
        o_block += t
    np.copyto(l, joint)


def _row_stat(name: str, s: Array) -> Array:
    """Scratch [*, q] for a statistic of each row of s [*, q, k]."""
    return scratch(name, s.shape[:-1], s.dtype)


@lru_cache(maxsize=256)
def _causal_mask(causal: bool, q: int, k: int, ahead: int, dtype: Any) -> Array | None:
    """Mask [q, k]: minus infinity where k > q + ahead, else 0; None if every query sees every key."""
    if not causal or ahead >= k - 1:
        return None
    mask = np.zeros((q, k), dtype)
    mask[np.arange(k) > np.arange(q)[:, None] + ahead] = -np.inf
    return mask
