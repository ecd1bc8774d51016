"""Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011) with Python's integers, and the mask of dropout by it."""

from __future__ import annotations

import numpy as np

A = np.ndarray


def philox(counter: list[int], key: list[int]) -> list[int]:
    """The block of four words of a counter of four and a key of two."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b % 2**32, (a >> 32) ^ c[3] ^ k[1], a % 2**32]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c


def dropped(x: A, keys: A, rate: float, salt: int, start: int, strides: list[int]) -> A:
    """x [b, *] after dropout, element by element."""
    out = np.array(x, np.float64)
    for b, *index in np.ndindex(x.shape):
        place = start + sum(i * s for i, s in zip(index, strides, strict=True))
        word = philox([place // 4 % 2**32, place // 4 >> 32, 0, 0], [int(keys[b]), salt])[place % 4]
        if keys[b] >= 0:
            out[(b, *index)] *= (word >= rate * 2**32) / (1 - rate)
    return out
