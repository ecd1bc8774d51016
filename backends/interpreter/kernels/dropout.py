"""Kernel of dropout: masks by Philox4x32-10 (Salmon et al. 2011), a counter-based generator.

An element's number depends on the key of its sequence, the op and its place in the sequence alone, so that every die,
the backward pass and a call that computes again draw the same.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from wscc.backends.interpreter.kernels.scratch import Array

_MULTIPLIERS: Final = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)
_MASK: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)
_ROUNDS: Final = 10


def dropout(y: Array, x: Array, key: Array, rate: float, salt: int, start: int, strides: str) -> None:
    """y [b, *] = x [b, *] / (1 - rate) where the number of the element, uniform in [0, 1), is at least `rate`, else 0.

    The element at [b, i, j, ..] has the place start + i strides[0] + j strides[1] + .. in its sequence, whose key is
    key [b] of i32; negative: y = x.
    """
    places = _places(x.shape[1:], start, strides)
    least = np.uint64(int(rate * 2.0**32))
    for y_row, x_row, number in zip(y, x, key.tolist(), strict=True):
        if number < 0:
            np.copyto(y_row, x_row)
            continue
        np.multiply(x_row, 1 / (1 - rate), out=y_row)
        np.multiply(y_row, philox(places, number, salt) >= least, out=y_row)


def _places(shape: tuple[int, ...], start: int, strides: str) -> Array:
    """The places [*] of elements in their sequence."""
    places: Array = np.full(shape, start % 2**64, np.uint64)
    for dim, (size, stride) in enumerate(zip(shape, strides.split(",") if strides else (), strict=True)):
        along = np.arange(size, dtype=np.uint64) * np.uint64(int(stride))
        places += along.reshape(-1, *[1] * (len(shape) - dim - 1))
    return places


def philox(places: Array, first: int, second: int) -> Any:
    """32 random bits, as u64, for each place of u64: word place mod 4 of the block of counter place / 4 and a key of
    two words."""
    c0, c1 = (places >> np.uint64(2)) & _MASK, places >> np.uint64(34)
    c2, c3 = np.zeros_like(c0), np.zeros_like(c0)
    for n in range(_ROUNDS):
        k0, k1 = (np.uint64((k + n * w) & 0xFFFFFFFF) for k, w in zip((first, second), _WEYL, strict=True))
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (p1 >> _HALF) ^ c1 ^ k0, p1 & _MASK, (p0 >> _HALF) ^ c3 ^ k1, p0 & _MASK
    word = places & np.uint64(3)
    return np.where(word < 2, np.where(word == 0, c0, c1), np.where(word == 2, c2, c3))
