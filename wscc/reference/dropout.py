"""Semantics of dropout: a mask by Philox, as a pure function of a sequence's key and an element's place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from wscc.ir.op import Op
from wscc.reference.semantics import Array, Semantics

_LOW: Final = np.uint64(0xFFFFFFFF)


def _philox(places: Array, key: tuple[int, int]) -> Array:
    """Word `place % 4` of Philox4x32-10 of the counter (place / 4, 0, 0) for each place (Salmon et al. 2011): rounds of
    two products whose halves are permuted."""
    blocks = places // 4
    state = [blocks & _LOW, blocks >> np.uint64(32), np.zeros_like(blocks), np.zeros_like(blocks)]
    for n in range(10):
        first, second = (
            np.uint64((k + n * w) & 0xFFFFFFFF) for k, w in zip(key, (0x9E3779B9, 0xBB67AE85), strict=True)
        )
        a, b = state[0] * np.uint64(0xD2511F53), state[2] * np.uint64(0xCD9E8D57)
        state = [
            (b >> np.uint64(32)) ^ state[1] ^ first, b & _LOW, (a >> np.uint64(32)) ^ state[3] ^ second, a & _LOW
        ]  # fmt: skip
    return np.choose((places % 4).astype(np.int64), state)


def _kept(op: Op, shape: tuple[int, ...], keys: Array) -> Array:
    """What each element of x [b, *] is multiplied by: 0, or one over the share that stays."""
    rate, salt = float(op.attr("rate")), int(op.attr("salt"))
    places = np.arange(np.prod(shape[1:]), dtype=np.uint64).reshape(shape[1:])
    out = np.ones(shape)
    for b, key in enumerate(keys):
        if key >= 0:  # otherwise nothing is dropped: the sequence is looked at, not trained on
            out[b] = (_philox(places, (int(key), salt)) >= rate * 2.0**32) / (1 - rate)
    return out


def _forward(op: Op, xs: Sequence[Array]) -> list[Array]:
    return [(xs[0] * _kept(op, xs[0].shape, xs[1])).astype(xs[0].dtype)]


def _vjp(op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]) -> list[Array | None]:
    return [(dys[0] * _kept(op, xs[0].shape, xs[1])).astype(dys[0].dtype), None]


SEMANTICS: Final[dict[str, Semantics]] = {"dropout": Semantics(_forward, _vjp)}
