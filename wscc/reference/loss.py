"""Semantics of the pieces of cross entropy. Columns from `limit` on (0: none) are pads; labels of -100 are ignored.

Derivatives are exact for each piece alone: the row maximum has one too, although in a whole cross entropy its two
contributions cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from wscc.ir.op import Op
from wscc.reference.semantics import Array, Semantics, no_gradient

IGNORED: Final = -100


def _real_columns(op: Op, x: Array) -> int:
    """The number of columns that are no pads."""
    return int(op.attr("limit")) or x.shape[-1]


def _rowmax(op: Op, xs: Sequence[Array]) -> list[Array]:
    return [xs[0][..., : _real_columns(op, xs[0])].max(-1)]


def _rowmax_vjp(op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]) -> list[Array]:
    """The gradient of a row's maximum goes to the first of its largest elements."""
    grad = np.zeros_like(xs[0])
    first = xs[0][..., : _real_columns(op, xs[0])].argmax(-1)
    np.put_along_axis(grad, first[..., None], dys[0][..., None].astype(grad.dtype), -1)
    return [grad]


def _exponentials(op: Op, x: Array, m: Array) -> Array:
    return np.asarray(np.exp(x[..., : _real_columns(op, x)] - m[..., None]))


def _sumexp_vjp(op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]) -> list[Array]:
    parts = _exponentials(op, *xs) * dys[0][..., None]
    pads = xs[0].shape[-1] - parts.shape[-1]
    return [np.pad(parts, [(0, 0)] * (parts.ndim - 1) + [(0, pads)]), -parts.sum(-1)]


def _at_labels(x: Array, labels: Array) -> tuple[Array, tuple[Array, ...]]:
    """A mask of the labels that are columns of `x`, and the index of the entries of `x` that they select."""
    valid = (labels >= 0) & (labels < x.shape[-1])
    return valid, (*np.nonzero(valid), labels[valid])


def _pick(op: Op, xs: Sequence[Array]) -> list[Array]:
    valid, entries = _at_labels(*xs)
    out = np.zeros(xs[1].shape, xs[0].dtype)
    out[valid] = xs[0][entries]
    return [out]


def _pick_vjp(op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]) -> list[Array | None]:
    valid, entries = _at_labels(*xs)
    grad = np.zeros(xs[0].shape, dys[0].dtype)
    grad[entries] = dys[0][valid]
    return [grad, None]


def _nll(op: Op, xs: Sequence[Array]) -> list[Array]:
    m, z, p, labels = xs
    return [np.where(labels == IGNORED, 0, np.log(z) + (m - p))]


def _nll_vjp(op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]) -> list[Array | None]:
    dl = np.where(xs[3] == IGNORED, 0, dys[0])
    return [dl, dl / xs[1], -dl, None]


def _rowsum_vjp(op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]) -> list[Array]:
    real = np.arange(xs[0].shape[-1]) < _real_columns(op, xs[0])
    return [np.where(real, dys[0][..., None], 0)]


def _zloss(op: Op, xs: Sequence[Array]) -> list[Array]:
    m, z, labels = xs
    return [np.where(labels == IGNORED, 0, float(op.attr("factor")) * np.square(np.log(z) + m))]


def _zloss_vjp(op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]) -> list[Array | None]:
    m, z, labels = xs
    slope = np.where(labels == IGNORED, 0, 2 * float(op.attr("factor")) * (np.log(z) + m)) * dys[0]
    return [slope, slope / z, None]


def _divisor(count: Array) -> float:
    return max(float(count), 1.0)


def _mean_vjp(op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]) -> list[Array | None]:
    return [np.full(xs[0].shape, dys[0] / _divisor(xs[1]), dys[0].dtype), None]


SEMANTICS: Final[dict[str, Semantics]] = {
    "rowmax": Semantics(_rowmax, _rowmax_vjp, selects=True),
    "sumexp": Semantics(lambda op, xs: [_exponentials(op, *xs).sum(-1)], _sumexp_vjp),
    "rowsum": Semantics(lambda op, xs: [xs[0][..., : _real_columns(op, xs[0])].sum(-1)], _rowsum_vjp),
    "zloss": Semantics(_zloss, _zloss_vjp),
    "pick": Semantics(_pick, _pick_vjp, selects=True),
    "nll": Semantics(_nll, _nll_vjp),
    "mean": Semantics(lambda op, xs: [xs[0].sum(dtype=np.float64) / _divisor(xs[1])], _mean_vjp),
    "count": Semantics(lambda op, xs: [np.asarray((xs[0] != IGNORED).sum())], no_gradient),
}
