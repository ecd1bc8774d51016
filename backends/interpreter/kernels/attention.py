"""Kernels of softmax attention: softmax, its derivative, and the merge of two chunks of keys.

Scores are [*, q, k]; a causal mask puts minus infinity where a query may not see a key.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from wscc.backends.interpreter.kernels.gemm import row_dot, row_max, row_sum
from wscc.backends.interpreter.kernels.scratch import Array, blocks, scratch, scratch_like

# The rounding of a sum of probabilities, in units of the last place of 1.
WHOLE: Final = 4


def softmax(
    p: Array,
    m: Array,
    z: Array,
    s: Array,
    causal: bool,
    q_start: int,
    k_start: int,
    limit: int = 0,
    window: int = 0,
) -> None:
    """p [*, q, k] = softmax over k of scores s [*, q, k], with maximum m and sum of exp(s - m) z [*, q] of each row.

    f32 or f64; p may be s itself. Query i sees key j where k_start + j <= q_start + i or not `causal`, and where
    k_start + j < limit and k_start + j > q_start + i - window (0: no limit, no window); a row that sees nothing gives
    p = 0, m = -inf and z = 0.
    """
    ahead, last = q_start - k_start, limit - k_start if limit else None
    mask = _mask(causal, s.shape[-2], s.shape[-1], ahead, last, window, s.dtype)
    for p_block, m_block, z_block, s_block in blocks(2, p, m, z, s):
        highest, total = _row_stat("softmax.max", s_block), _row_stat("softmax.sum", s_block)
        if mask is not None:
            s_block = np.minimum(s_block, mask, out=p_block)
        row_max(s_block, highest)
        np.copyto(m_block, highest)
        _exponentials(p_block, s_block, highest)
        row_sum(p_block, total)
        np.copyto(z_block, total)
        _divide(p_block, total)


def probs(
    p: Array,
    s: Array,
    m: Array,
    z: Array,
    causal: bool,
    q_start: int,
    k_start: int,
    limit: int = 0,
    window: int = 0,
) -> None:
    """p [*, q, k] = exp(s [*, q, k] - m [*, q]) / z [*, q], f32 or f64, as `softmax` gave it; masked entries are 0."""
    ahead, last = q_start - k_start, limit - k_start if limit else None
    mask = _mask(causal, s.shape[-2], s.shape[-1], ahead, last, window, s.dtype)
    for p_block, s_block, m_block, z_block in blocks(2, p, s, m, z):
        highest, total = _row_stat("softmax.max", s_block), _row_stat("softmax.sum", s_block)
        np.copyto(highest, m_block)
        np.copyto(total, z_block)
        if mask is not None:
            s_block = np.minimum(s_block, mask, out=p_block)
        _exponentials(p_block, s_block, highest)
        _divide(p_block, total)


def alibi(
    y: Array, x: Array, heads: int, group: int, h_start: int, g_start: int, q_start: int, k_start: int
) -> None:
    """y [b, h, *, q, k] = x [b, h, *, q, k] + slope [h, *] (k_start + k - q_start - q), f32 or f64; y may be x itself.

    Head n = (h_start + h) group + g_start + g, with g the place in *, none or one dimension, has the slope of n of
    `heads` (Press et al., arXiv 2108.12409, and their code where that is no power of two).
    """
    own = [
        (h_start + h) * group + g_start + g
        for h in range(x.shape[1])
        for g in range(1 if x.ndim == 4 else x.shape[2])
    ]
    slopes = np.array([alibi_slope(n, heads) for n in own]).reshape(*x.shape[1:-2], 1, 1)
    distances = np.arange(x.shape[-1]) - np.arange(x.shape[-2])[:, None] + (k_start - q_start)
    for b in range(x.shape[0]):
        np.add(x[b], (slopes * distances).astype(x.dtype), out=y[b])


def alibi_slope(n: int, heads: int) -> float:
    """The slope of head n of `heads`: 2^(-8 (n + 1) / m) for the first m, the largest power of two of them; for others
    every second slope of 2 m heads. Pads behind the last head have some slope, too."""
    power = 1 << (heads.bit_length() - 1)
    return float(2.0 ** (-8 * (n + 1) / power if n < power else -4 * (2 * (n - power) + 1) / power))


def _exponentials(p: Array, s: Array, highest: Array) -> None:
    """p [*, q, k] = exp(s [*, q, k] - highest [*, q]); rows that see nothing, whose maximum is -inf, give 0."""
    highest[np.isneginf(highest)] = 0
    np.subtract(s, highest[..., None], out=p)
    np.exp(p, out=p)


def _divide(p: Array, total: Array) -> None:
    """p [*, q, k] divided by total [*, q], but for rows of which that is 0; `total` is overwritten."""
    total[total == 0] = 1
    np.reciprocal(total, out=total)
    p *= total[..., None]


def softmax_bwd(ds: Array, p: Array, dp: Array, delta: Array, scale: float) -> None:
    """ds [*, q, k] = p [*, q, k] (dp [*, q, k] - delta [*, q]) scale, f32 or f64; delta = rowdot(p, dp) of all keys."""
    for ds_block, p_block, dp_block, delta_block in blocks(2, ds, p, dp, delta):
        t = np.subtract(dp_block, delta_block[..., None], out=scratch_like("softmax.t", ds_block))
        t *= p_block
        np.multiply(t, scale, out=ds_block)


def rowmean(d: Array, p: Array, x: Array, d0: Array) -> None:
    """d [*] = sum over k of p [*, k] x [*, k] where p sums to one, else d0 [*], in f32 or f64.

    One is what is at most `WHOLE` roundings away.
    """
    for p_block, x_block, d_block, d0_block in blocks(1, p, x, d, d0):
        mean, missing = _row_stat("rowmean", p_block), _row_stat("rowmean.missing", p_block)
        row_dot(p_block, x_block, mean)
        row_sum(p_block, missing)
        missing -= 1
        np.copyto(mean, d0_block, where=np.abs(missing) > WHOLE * np.finfo(p.dtype).eps)
        np.copyto(d_block, mean)


def merge(
    o: Array, m: Array, z: Array, o1: Array, m1: Array, z1: Array, o2: Array, m2: Array, z2: Array
) -> None:
    """o [*, e], m, z [*] = attention over two chunks of keys with o1, o2 [*, e], m1, z1, m2, z2 [*], f32 or f64.

    Online softmax (Milakov and Gimelshein 2018): with M the larger maximum, the sums z1 exp(m1 - M) and z2 exp(m2 - M)
    are the weights of the outputs, divided by their own sum. A row that saw no key stays zero.
    """
    highest = np.maximum(m1, m2)
    level = np.where(np.isneginf(highest), 0, highest)
    w1, w2 = z1 * np.exp(m1 - level), z2 * np.exp(m2 - level)
    total = w1 + w2
    np.copyto(m, highest)
    np.copyto(z, total)
    total[total == 0] = 1
    w1 /= total
    w2 /= total
    for o_block, o1_block, o2_block, w1_block, w2_block in blocks(1, o, o1, o2, w1, w2):
        t = np.multiply(o2_block, w2_block[..., None], out=scratch_like("merge", o2_block))
        np.multiply(o1_block, w1_block[..., None], out=o_block)
        o_block += t


def _row_stat(name: str, s: Array) -> Array:
    """Scratch [*, q] for a statistic of each row of s [*, q, k]."""
    return scratch(name, s.shape[:-1], s.dtype)


@lru_cache(maxsize=256)
def _mask(
    causal: bool, q: int, k: int, ahead: int, limit: int | None, window: int, dtype: Any
) -> Array | None:
    """Bounds of scores [q, k]: minus infinity where k > q + ahead under a causal mask, k >= limit, or k <= q + ahead -
    window in a window, else infinity; None if every query sees every key.

    Not a sum: an infinite score plus minus infinity is no number.
    """
    causal = causal and ahead < k - 1
    is_short = 0 < window < q + ahead
    if not causal and not is_short and (limit is None or limit >= k):
        return None
    mask = np.full((q, k), np.inf, dtype)
    if causal:
        mask[np.arange(k) > np.arange(q)[:, None] + ahead] = -np.inf
    if is_short:
        mask[np.arange(k) <= np.arange(q)[:, None] + ahead - window] = -np.inf
    if limit is not None:
        mask[:, max(limit, 0) :] = -np.inf
    return mask
