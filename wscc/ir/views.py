"""Views of buffers: whole buffers, and slices, permutations and repetitions of other views."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

from wscc.ir.per_die import Ints, plus, times
from wscc.ir.types import DType


# A tuple, since there are many, and all are keys of tables: it is made, hashed and compared in C.
class View(NamedTuple):
    """A strided window on a buffer or argument; offset and strides in elements of `dtype`.

    A stride of 0 repeats elements (a broadcast read).
    """

    buffer: str
    offset: Ints
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType

    def on(self, buffer: str) -> View:
        """The same window on another buffer."""
        return View(buffer, self.offset, self.shape, self.strides, self.dtype)

    @property
    def elements(self) -> int:
        """Number of elements, repeated ones included."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of the elements, repeated ones included."""
        return self.elements * self.dtype.size

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements are side by side in row-major order."""
        return all(
            n == 1 or s == t
            for n, s, t in zip(self.shape, self.strides, contiguous_strides(self.shape), strict=True)
        )


@lru_cache(maxsize=8192)
def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def whole_view(buffer: str, shape: tuple[int, ...], dtype: DType) -> View:
    """A contiguous view of `shape` from the start of the buffer."""
    return View(buffer, 0, shape, contiguous_strides(shape), dtype)


def sliced(view: View, dim: int, start: Ints, size: int) -> View:
    """The view of `size` indices of one dimension from `start` on, which may differ by die."""
    shape = (*view.shape[:dim], size, *view.shape[dim + 1 :])
    offset = plus(view.offset, times(start, view.strides[dim]))
    return View(view.buffer, offset, shape, view.strides, view.dtype)


def indexed(view: View, dim: int, index: int) -> View:
    """The view of one index of a dimension, without that dimension."""
    others = [d for d in range(len(view.shape)) if d != dim]
    return arranged(sliced(view, dim, index, 1), others)


def arranged(view: View, dims: Sequence[int | None]) -> View:
    """The view with its dimensions in another order; None stands for a new one of stride 0 and size 1."""
    shape = tuple(1 if d is None else view.shape[d] for d in dims)
    strides = tuple(0 if d is None else view.strides[d] for d in dims)
    return View(view.buffer, view.offset, shape, strides, view.dtype)


def repeated(view: View, term: Sequence[str], onto: Sequence[str], shape: Sequence[int]) -> View:
    """A view with factors `term` as one with factors `onto` of sizes `shape`, repeated along those that it lacks."""
    strides = tuple(view.strides[term.index(f)] if f in term else 0 for f in onto)
    return View(view.buffer, view.offset, tuple(shape), strides, view.dtype)


def flat(view: View) -> View:
    """A contiguous view as one dimension."""
    assert view.is_contiguous
    return View(view.buffer, view.offset, (view.elements,), (1,), view.dtype)
