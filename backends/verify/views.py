"""The bytes of strided views, as runs: disjoint ranges [start, end) in ascending order, with gaps between them."""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from wscc.ir.streams.program import Operand

Ints = NDArray[np.int64]
Runs = tuple[Ints, Ints]


@lru_cache(maxsize=4096)
def view_runs(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> Runs:
    """Starts and ends of the runs of a view at address 0, of elements of `size` bytes; strides in elements."""
    starts, length = np.zeros(1, np.int64), size
    dims = sorted((abs(s), n, s) for n, s in zip(shape, strides, strict=True) if n > 1 and s)
    if 0 in shape:
        return starts[:0], starts[:0]
    for distance, n, s in dims:
        if distance * size == length and len(starts) == 1:
            length *= n
            starts = starts + min(0, (n - 1) * s * size)
        else:
            starts = (np.arange(n, dtype=np.int64)[:, None] * (s * size) + starts).reshape(-1)
    return joined(starts, starts + length)


def joined(starts: Ints, ends: Ints) -> Runs:
    """Runs that cover the same bytes, in order, with a gap between any two."""
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    new = np.concatenate([[True], starts[1:] > ends[:-1]])
    last = np.concatenate([new[1:], [True]])
    return starts[new], ends[last]


def repeats(o: Operand) -> bool:
    """True if two elements of the view share a byte."""
    return _repeats(o.shape, o.strides, o.dtype.size)


@lru_cache(maxsize=4096)
def _repeats(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> bool:
    starts, ends = view_runs(shape, strides, size)
    return int((ends - starts).sum()) != prod(shape) * size
