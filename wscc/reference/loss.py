"""Cross entropy in its pieces. Columns from `limit` on (0: none) are pads; labels of -100 are ignored.

Derivatives are exact for each piece alone: the row maximum has one too, although in a whole cross entropy the
two ways through it cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from wscc.ir.op import Op
from wscc.reference.meaning import Array, Meaning, no_gradient

IGNORED: Final = -100


def _real(op: Op, x: Array) -> int:
    """How many columns are not pads."""
    return int(op.attr("limit")) or x.shape[-1]


def _rowmax_vjp(op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]) -> list[Array]:
    """All of it to the first of the largest."""
    grad = np.zeros_like(xs[0])
    first = xs[0][..., : _real(op, xs[0])].argmax(-1)
    np.put_along_axis(grad, first[..., None], dys[0][..., None].astype(grad.dtype), -1)
    return [grad]


def _exponentials(op: Op, x: Array, m: Array) -> Array:
    return np.asarray(np.exp(x[..., : _real(op, x)] - m[..., None]))


def _sumexp_vjp(op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]) -> list[Array]:
    parts = _exponentials(op, *xs) * dys[0][..., None]
    pads = xs[0].shape[-1] - parts.shape[-1]
    return [np.pad(parts, [(0, 0)] * (parts.ndim - 1) + [(0, pads)]), -parts.sum(-1)]


def _at_labels(x: Array, labels: Array) -> tuple[Array, tuple[Array, ...]]:
    """Which rows have their label among the columns of `x`, and the index of those entries."""
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
    return [np.where(labels == IGNORED, 0, np.log(z) + m - p)]


def _nll_vjp(op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]) -> list[Array | None]:
    dl = np.where(xs[3] == IGNORED, 0, dys[0])
    return [dl, dl / xs[1], -dl, None]


def _divisor(count: Array) -> float:
    return max(float(count), 1.0)


def _mean_vjp(op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]) -> list[Array | None]:
    return [np.full(xs[0].shape, dys[0] / _divisor(xs[1]), dys[0].dtype), None]


MEANINGS: Final[dict[str, Meaning]] = {
    "rowmax": Meaning(lambda op, xs: [xs[0][..., : _real(op, xs[0])].max(-1)], _rowmax_vjp),
    "sumexp": Meaning(lambda op, xs: [_exponentials(op, *xs).sum(-1)], _sumexp_vjp),
    "pick": Meaning(_pick, _pick_vjp),
    "nll": Meaning(_nll, _nll_vjp),
    "mean": Meaning(lambda op, xs: [xs[0].sum(dtype=np.float64) / _divisor(xs[1])], _mean_vjp),
    "count": Meaning(lambda op, xs: [np.asarray((xs[0] != IGNORED).sum())], no_gradient),
}
