"""Whether two strided views of one buffer share a byte: exact, but for a bound on the work.

Invariant: `meets` is never False for views that share a byte.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from wscc.ir.views import View

# (count, stride in bytes), largest stride first, the last one of stride 1.
Dims = tuple[tuple[int, int], ...]

# Steps after which views count as overlapping; real programs need a handful.
_BUDGET = 2000


@lru_cache(maxsize=65536)
def byte_dims(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> Dims:
    """The bytes that a view touches, counted from its first; runs that join are merged, repeats dropped."""
    outer = sorted(
        ((n, s * size) for n, s in zip(shape, strides, strict=True) if n > 1 and s), key=lambda d: d[1]
    )
    dims = [(size, 1)]
    for n, stride in outer:
        inner, step = dims[-1]
        if stride == inner * step:
            dims[-1] = (n * inner, step)
        else:
            dims.append((n, stride))
    return tuple(reversed(dims))


def dims_of(view: View) -> Dims:
    return byte_dims(view.shape, view.strides, view.dtype.size) if prod(view.shape) else ()


def span(dims: Dims) -> int:
    """Bytes from the first to behind the last that is touched."""
    return 1 + sum((n - 1) * stride for n, stride in dims) if dims else 0


@lru_cache(maxsize=65536)
def meets(a: Dims, b: Dims, shift: int) -> bool:
    """Whether `a` and `b` moved `shift` bytes up share a byte: is there an i in a and a j in b with
    sum(i x stride) - sum(j x stride) = shift?"""
    if not a or not b:
        return False
    bounds: dict[int, tuple[int, int]] = {}
    for dims, sign in ((a, 1), (b, -1)):
        for n, stride in dims:
            low, high = bounds.get(stride, (0, 0))
            bounds[stride] = (low + min(0, sign * (n - 1)), high + max(0, sign * (n - 1)))
    terms = [(stride, *bounds[stride]) for stride in sorted(bounds, reverse=True)]
    return _Search(terms).solve(0, shift)


class _Search:
    """Bounded sum of multiples; only multiples that the smaller strides can still correct are tried."""

    def __init__(self, terms: list[tuple[int, int, int]]) -> None:
        self.terms = terms
        self.budget = _BUDGET
        self.rest = [(0, 0)] * len(terms)
        low = high = 0
        for i in range(len(terms) - 1, -1, -1):
            self.rest[i] = (low, high)
            stride, lo, hi = terms[i]
            low, high = low + stride * lo, high + stride * hi

    def solve(self, i: int, target: int) -> bool:
        self.budget -= 1
        if self.budget < 0:
            return True
        stride, low, high = self.terms[i]
        rest_low, rest_high = self.rest[i]
        first = max(low, -(-(target - rest_high) // stride))
        last = min(high, (target - rest_low) // stride)
        if i == len(self.terms) - 1:
            return first <= last
        return any(self.solve(i + 1, target - c * stride) for c in range(first, last + 1))
