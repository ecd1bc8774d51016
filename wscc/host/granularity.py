"""Signs, in the bits of numbers of a wide type, that they were rounded to a narrower one: their size cannot tell.

A gradient that bf16 activations make is off by many roundings to bf16 anyway. If it is to be summed in f32, one more
hides in its norm. But then the significands of its elements are short: each is a number of bf16, or a sum of few of
them. Some are short in a right program, too (the row of a table that one token reads, sums of few terms), so the long
ones are counted, and compared with those of one device in the same types. A rounding leaves none, or few where several
rounded numbers are added. Fewer than a quarter of 40 or more is beyond chance: 1e-8 if they were independent. Where
one device has less than a quarter of long ones, nothing is compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from wscc.ir.types import DType

_SHARE: Final = 0.25
_LEAST_COUNT: Final = 40
_LIMITS: Final = ((DType.F32, 24), (DType.BF16, 8), (DType.BF16, 16))
_BEYOND: Final = 8  # bits: by chance, one number in 2^8 needs none of them
_LEAST: Final = 2.0**-90  # below it f32 itself has fewer bits


def bits(x: NDArray[Any], most: int = 53) -> NDArray[np.int64]:
    """Bits of the significand that the finite elements of `x` need, rounded to `most`; those near 0 are left out."""
    flat = np.asarray(x, np.float64).reshape(-1)
    significands, _ = np.frexp(flat[np.isfinite(flat) & (np.abs(flat) > _LEAST)])
    whole = np.abs(np.rint(np.ldexp(significands, most))).astype(np.int64)
    trailing = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    return np.asarray(np.maximum(most - trailing, 1), np.int64)


@dataclass(slots=True)
class LongNumbers:
    """How many numbers of a type need more bits than a limit, in a program and on one device, by tensor.

    Limits are the bits of each narrower type, and for bf16 those that sums of some of its numbers need: half way to
    f32, in which contributions are computed. Bits far beyond a limit do not count: they may come from a contribution
    that is 0 but for rounding, and all 0 in a program that adds in another order.
    """

    dtype: DType
    counts: dict[tuple[DType, int], list[_Count]] = field(default_factory=dict)

    def add(self, name: str, got: NDArray[Any], own: NDArray[Any]) -> None:
        """Count the numbers of a tensor."""
        for narrow, limit in _LIMITS:
            if narrow.precision < self.dtype.precision:
                mine, ours = (bits(x, limit + _BEYOND) > limit for x in (got, own))
                count = _Count(name, int(np.count_nonzero(mine)), int(np.count_nonzero(ours)), len(ours))
                self.counts.setdefault((narrow, limit), []).append(count)

    def verdicts(self) -> Iterator[tuple[str, DType, float]]:
        """(tensor, narrower type, how many times too few long numbers there are, at most 1 in a right program)."""
        for (narrow, _), counts in self.counts.items():
            compared = [c for c in counts if c.own >= _SHARE * c.all]
            whole = _Count("all weights", sum(c.got for c in compared), sum(c.own for c in compared), 0)
            for c in (*compared, whole):
                if c.own >= _LEAST_COUNT:
                    yield c.name, narrow, _SHARE * c.own / max(c.got, 0.5)


@dataclass(frozen=True, slots=True)
class _Count:
    """Long numbers of a tensor in a program and on one device, and all on one device."""

    name: str
    got: int
    own: int
    all: int
