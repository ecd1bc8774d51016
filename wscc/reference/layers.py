"""Semantics of norms, rotary positions and embedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from wscc.ir.op import Op
from wscc.reference.semantics import Array, Semantics


def _normalised(x: Array, eps: float, *, centred: bool) -> tuple[Array, Array]:
    """Rows scaled to unit mean square (and, if `centred`, zero mean), and the deviations they were divided by."""
    if centred:
        x = x - x.mean(-1, keepdims=True)
        x = x - x.mean(-1, keepdims=True)  # of the first mean's rounding, which is that of a large number
    deviation = np.sqrt(np.square(x).mean(-1, keepdims=True) + eps)
    return x / deviation, deviation


def _norm(*, centred: bool) -> Semantics:
    def forward(op: Op, xs: Sequence[Array]) -> list[Array]:
        unit, _ = _normalised(xs[0], float(op.attr("eps")), centred=centred)
        return [unit * xs[1] + xs[2] if centred else unit * xs[1]]

    def vjp(op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]) -> list[Array]:
        """Gradients of x, gain and bias. The unit row does not change along itself (nor, if centred, along ones):
        both directions are projected out."""
        unit, deviation = _normalised(xs[0], float(op.attr("eps")), centred=centred)
        slope = dys[0] * xs[1]
        inner = slope - unit * (slope * unit).mean(-1, keepdims=True)
        if centred:
            inner = inner - slope.mean(-1, keepdims=True)
        grads = [inner / deviation, _over_rows(dys[0] * unit)]
        return [*grads, _over_rows(dys[0])] if centred else grads

    return Semantics(forward, vjp)


def _over_rows(x: Array) -> Array:
    """The sum of x [*, d] over all rows, in f64."""
    rows = x.reshape(-1, x.shape[-1])
    return np.asarray(rows.sum(0, dtype=np.float64)).astype(x.dtype)


def _turn(op: Op, x: Array, direction: float) -> Array:
    """Each pair (i, i + e/2), or (2i, 2i + 1) if `interleaved`, as a complex number, turned by direction x sign x
    position x theta^(-2i/e); of the first `width` elements alone, if the op has that."""
    is_part = "width" in dict(op.attrs)
    width = int(op.attr("width")) if is_part else x.shape[-1]
    half = width // 2
    theta, sign = float(op.attr("theta")), float(op.attr("sign"))
    speeds = theta ** (-np.arange(half) / half)
    if is_part:
        speeds = _slowed(op, speeds)
    angles = direction * sign * np.arange(x.shape[1])[:, None] * speeds
    unit = np.exp(1j * angles).reshape(x.shape[1], *[1] * (x.ndim - 3), half)
    if is_part and op.attr("interleaved"):
        turned = (x[..., 0:width:2] + 1j * x[..., 1:width:2]) * unit
        pairs = np.stack([turned.real, turned.imag], -1).reshape(*x.shape[:-1], width)
        return np.concatenate([pairs, x[..., width:]], -1).astype(x.dtype)
    turned = (x[..., :half] + 1j * x[..., half:width]) * unit
    return np.concatenate([turned.real, turned.imag, x[..., width:]], -1).astype(x.dtype)


def _slowed(op: Op, speeds: Array) -> Array:
    """Speeds scaled as for Llama 3.1, case by case of the wavelength in positions: long waves are `factor` times as
    long, short ones stay, and what is between is weighed by the number of waves in `original` positions."""
    factor, low, high, original = (float(op.attr(n)) for n in ("factor", "low", "high", "original"))
    out = []
    for speed in speeds:
        wave = 2 * np.pi / speed
        if wave * low >= original:
            out.append(speed / factor)
        elif wave * high <= original:
            out.append(speed)
        else:
            weight = (original / wave - low) / (high - low)
            out.append((1 - weight) * speed / factor + weight * speed)
    return np.array(out)


def _rows_of(ids: Array, count: int) -> tuple[Array, Array]:
    """A mask of the ids that are rows of a table of `count` rows, and those ids."""
    valid = (ids >= 0) & (ids < count)
    return valid, ids[valid]


def _embedding(op: Op, xs: Sequence[Array]) -> list[Array]:
    ids, table = xs
    valid, rows = _rows_of(ids, len(table))
    out = np.zeros((*ids.shape, table.shape[1]), table.dtype)
    out[valid] = table[rows]
    return [out]


def _embedding_vjp(
    op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]
) -> list[Array | None]:
    ids, table = xs
    valid, rows = _rows_of(ids, len(table))
    grad = np.zeros_like(table)
    np.add.at(grad, rows, dys[0][valid])
    return [None, grad]


SEMANTICS: Final[dict[str, Semantics]] = {
    "layernorm": _norm(centred=True),
    "rmsnorm": _norm(centred=False),
    "rope": Semantics(
        lambda op, xs: [_turn(op, xs[0], 1.0)],
        lambda op, xs, ys, dys: [_turn(op, dys[0], -1.0)],
    ),
    "embedding": Semantics(_embedding, _embedding_vjp),
}
