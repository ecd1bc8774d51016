"""Overlap of two strided views of one buffer, in bytes: exact, but for a bound on the work.

Invariant: `overlap` is never False for views that share a byte.
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
    """The bytes of a view as dimensions, relative to its first byte; adjacent runs are merged, repeats dropped.

    `size`: bytes of an element; `strides` in elements.
    """
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
    """The byte dimensions of a view; () if it is empty."""
    return byte_dims(view.shape, view.strides, view.dtype.size) if prod(view.shape) else ()


def span(dims: Dims) -> int:
    """The number of bytes from the first one to the end of the last."""
    return 1 + sum((n - 1) * stride for n, stride in dims) if dims else 0


@lru_cache(maxsize=65536)
def overlap(a: Dims, b: Dims, shift: int) -> bool:
    """Whether `a` and `b`, the latter moved `shift` bytes up, share a byte.

    True if there are indices i of a and j of b with sum(i x stride) - sum(j x stride) = shift, and also where the
    search for them exceeds its budget.
    """
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
    """Search for bounded multiples of strides that sum to a target: branch and bound, largest stride first."""

    def __init__(self, terms: list[tuple[int, int, int]]) -> None:
        self.terms = terms
        self.budget = _BUDGET
        self.reach = [(0, 0)] * len(terms)  # least and greatest sum of the terms behind each
        low = high = 0
        for i in range(len(terms) - 1, -1, -1):
            self.reach[i] = (low, high)
            stride, lo, hi = terms[i]
            low, high = low + stride * lo, high + stride * hi

    def solve(self, i: int, target: int) -> bool:
        """Whether multiples of the strides from term i on sum to the target, or the budget is used up."""
        self.budget -= 1
        if self.budget < 0:
            return True
        stride, low, high = self.terms[i]
        rest_low, rest_high = self.reach[i]
        first = max(low, -(-(target - rest_high) // stride))
        last = min(high, (target - rest_low) // stride)
        if i == len(self.terms) - 1:
            return first <= last
        return any(self.solve(i + 1, target - c * stride) for c in range(first, last + 1))
