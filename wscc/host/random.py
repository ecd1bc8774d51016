"""Random numbers as a pure function of a key and a counter, the same on every platform.

Only integer arithmetic and the five exactly rounded operations of IEEE 754 are used on arrays: `np.log` or
`np.cos` may differ in the last bit from one processor to the next.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Floats = NDArray[np.float64]

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)


def key(*parts: object) -> np.uint64:
    """A 64-bit key; different parts (by `repr`) give unrelated keys."""
    return np.uint64(int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "little"))


def words(stream: np.uint64, counters: Words) -> Words:
    """64 random bits for each counter, in the shape of `counters`: entry `counter` of the SplitMix64 sequence that
    starts at `stream` (Steele, Lea and Flood 2014)."""
    z = counters * _GOLDEN
    z += stream
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z ^= z >> np.uint64(shift)
        z *= np.uint64(factor)
    z ^= z >> np.uint64(31)
    return z


def integers(stream: np.uint64, counters: Words, below: int) -> NDArray[np.int64]:
    """Integers uniform in [0, below) but for a bias of below / 2^32: the high half of a 32 by 32 bit product."""
    return (((words(stream, counters) >> np.uint64(32)) * np.uint64(below)) >> np.uint64(32)).astype(np.int64)


def normals(stream: np.uint64, counters: Words) -> Floats:
    """Standard normal numbers in the shape of `counters`, by inversion of the distribution function."""
    # Centred uniforms, exact in f64 and never 0 nor +-1/2: (k + 1/2) / 2^52 - 1/2.
    q = (words(stream, counters) >> np.uint64(12)).astype(np.float64)
    q -= 2.0**51 - 0.5
    q *= 2.0**-52
    return _inverse_normal(q)


# Wichura (1988), algorithm AS 241, PPND7: relative error about 1e-7, far below what an initial weight shows.
_SPLIT: Final = 0.425
_CENTRE: Final = (
    (59.109374720, 159.29113202, 50.434271938, 3.3871327179),
    (67.187563600, 78.757757664, 17.895169469, 1.0),
)
_NEAR: Final = (
    (0.17023821103, 1.3067284816, 2.7568153900, 1.4234372777),
    (0.12021132975, 0.73700164250, 1.0),
)
_FAR: Final = (
    (0.017337203997, 0.42868294337, 3.0812263860, 6.6579051150),
    (0.012258202635, 0.24197894225, 1.0),
)


def _inverse_normal(q: Floats) -> Floats:
    """The x at which the normal distribution function is q + 1/2."""
    out = q * _ratio(_SPLIT * _SPLIT - q * q, _CENTRE)
    tails = np.flatnonzero(np.abs(q) > _SPLIT)
    edge = q[tails]
    r = np.sqrt(-_log(0.5 - np.abs(edge)))
    size = np.where(r <= 5.0, _ratio(r - 1.6, _NEAR), _ratio(r - 5.0, _FAR))
    out[tails] = np.copysign(size, edge)
    return out


def _ratio(x: Floats, coefficients: tuple[tuple[float, ...], tuple[float, ...]]) -> Floats:
    numerator, denominator = (_polynomial(x, c) for c in coefficients)
    numerator /= denominator
    return numerator


def _polynomial(x: Floats, coefficients: tuple[float, ...]) -> Floats:
    """The polynomial of `coefficients`, highest power first, at x (Horner's scheme)."""
    y = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        y *= x
        y += c
    return y


_LN2: Final = 0.6931471805599453
_ATANH: Final = tuple(2.0 / n for n in (15, 13, 11, 9, 7, 5, 3, 1))


def _log(x: Floats) -> Floats:
    """Natural logarithm, to about 1e-14: ln m = 2 atanh((m - 1) / (m + 1)) on m in [1/2, 1)."""
    m, exponent = np.frexp(x)
    low = m < 0.7071067811865476
    m = np.where(low, m * 2.0, m)
    s = (m - 1.0) / (m + 1.0)
    return s * _polynomial(s * s, _ATANH) + (exponent - low) * _LN2
