"""The bytes of strided views, as runs: disjoint ranges [start, end) in ascending order, with gaps between them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wscc.ir.streams.program import Operand

Ints = NDArray[np.int64]
Runs = tuple[Ints, Ints]
# Shape, strides in elements and element size of a view: all but its address.
Form = tuple[tuple[int, ...], tuple[int, ...], int]

NOTHING: Final[Runs] = np.zeros(0, np.int64), np.zeros(0, np.int64)


def form_of(o: Operand) -> Form:
    return o.shape, o.strides, o.dtype.size


@lru_cache(maxsize=4096)
def view_runs(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> Runs:
    """Starts and ends of the runs of a view at address 0, of elements of `size` bytes; strides in elements."""
    starts, length = np.zeros(1, np.int64), size
    dims = sorted((abs(s), n, s) for n, s in zip(shape, strides, strict=True) if n > 1 and s)
    if 0 in shape:
        return NOTHING
    for distance, n, s in dims:
        if distance * size == length and len(starts) == 1:
            length *= n
            starts = starts + min(0, (n - 1) * s * size)
        else:
            starts = (np.arange(n, dtype=np.int64)[:, None] * (s * size) + starts).reshape(-1)
    return joined(starts, starts + length)


@lru_cache(maxsize=1 << 14)
def regular(form: Form) -> tuple[int, int, int, int, int]:
    """First byte, last, count, stride and width of the runs of a view at address 0; a count of 0 where they are not all
    alike and equally far from one another."""
    starts, ends = view_runs(*form)
    if not len(starts):
        return 0, 0, 1, 1, 0
    low, high, width = int(starts[0]), int(ends[-1]), int(ends[0] - starts[0])
    steps = np.diff(starts)
    if (ends - starts != width).any() or (steps != steps[:1]).any():
        return low, high, 0, 1, width
    return low, high, len(starts), int(steps[0]) if len(steps) else 1, width


def joined(starts: Ints, ends: Ints) -> Runs:
    """Runs that cover the same bytes, in order, with a gap between any two."""
    if not len(starts):
        return NOTHING
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    new = np.concatenate([[True], starts[1:] > ends[:-1]])
    last = np.concatenate([new[1:], [True]])
    return starts[new], ends[last]


def union(parts: Iterable[Runs]) -> Runs:
    """The bytes that are in one of the parts."""
    starts, ends = zip(NOTHING, *parts, strict=True)
    return joined(np.concatenate(starts), np.concatenate(ends))


def minus(a: Runs, b: Runs) -> Runs:
    """The bytes of `a` that are not in `b`: what lies in `a` and between two runs of `b`."""
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    return common(a, (np.concatenate([[low], b[1]]), np.concatenate([b[0], [high]])))


def common(a: Runs, b: Runs) -> Runs:
    """The bytes in both."""
    # Each run of `a` meets consecutive runs of `b`.
    first, last = b[1].searchsorted(a[0], "right"), b[0].searchsorted(a[1], "left")
    counts = np.maximum(last - first, 0)
    if not counts.any():
        return NOTHING
    mine = np.repeat(np.arange(len(counts)), counts)
    skipped = np.repeat(np.cumsum(counts) - counts - first, counts)
    theirs = np.arange(len(mine)) - skipped
    return np.maximum(a[0][mine], b[0][theirs]), np.minimum(a[1][mine], b[1][theirs])


def meets(a: Runs, b: Runs) -> bool:
    """True if a byte is in both."""
    n = b[1].searchsorted(a[0], "right")
    inside = n < len(b[0])
    return bool((b[0][n[inside]] < a[1][inside]).any())


def within(a: Runs, b: Runs) -> bool:
    """True if all bytes of `a` are in `b`."""
    n = b[1].searchsorted(a[0], "right")
    if (n >= len(b[0])).any():
        return False
    return bool(((b[0][n] <= a[0]) & (a[1] <= b[1][n])).all())


@lru_cache(maxsize=1 << 16)
def relation(a: Form, b: Form, distance: int) -> tuple[bool, bool, bool]:
    """Whether two views share a byte, the first is within the second, and the second within the first; `distance` is
    from the address of the first to that of the second, in bytes."""
    runs, (starts, ends) = view_runs(*a), view_runs(*b)
    other = starts + distance, ends + distance
    return meets(runs, other), within(runs, other), within(other, runs)


def repeats(o: Operand) -> bool:
    """True if two elements of the view share a byte."""
    return _repeats(o.shape, o.strides, o.dtype.size)


@lru_cache(maxsize=4096)
def _repeats(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> bool:
    starts, ends = view_runs(shape, strides, size)
    return int((ends - starts).sum()) != prod(shape) * size
