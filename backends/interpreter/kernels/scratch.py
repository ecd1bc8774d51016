"""Scratch arrays that a thread reuses, and the division of operands into blocks that stay in its cache."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# Elements of the largest operand in a block: a chain of passes over three or four blocks stays in a 2 MB L2.
BLOCK = 1 << 16


class _Pool(threading.local):
    def __init__(self) -> None:
        self.bytes: dict[str, NDArray[np.uint8]] = {}
        self.views: dict[tuple[str, tuple[int, ...], Any], Array] = {}


_pool = _Pool()


def scratch(name: str, shape: tuple[int, ...], dtype: Any) -> Array:
    """An uninitialised contiguous array, valid until this thread asks for the same name again.

    Fresh memory would be paid for in page faults, one for every 4 KiB.
    """
    key = (name, shape, dtype)
    view = _pool.views.get(key)
    if view is None:
        view = _pool.views[key] = _carve(name, shape, np.dtype(dtype))
    return view


def _carve(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    size = int(np.prod(shape)) * dtype.itemsize
    buffer = _pool.bytes.get(name)
    if buffer is None or buffer.nbytes < size:
        buffer = _pool.bytes[name] = np.empty(size, np.uint8)
        _pool.views = {k: v for k, v in _pool.views.items() if k[0] != name}
    return buffer[:size].view(dtype).reshape(shape)


def scratch_like(name: str, x: Array) -> Array:
    """An array of `scratch` with the shape and element type of `x`."""
    return scratch(name, x.shape, x.dtype)


def blocks(trailing: int, *views: Array) -> Iterator[tuple[Array, ...]]:
    """Blocks of views that share their leading dimensions (all but the last `trailing` of the first view).

    Every block has at most `BLOCK` elements if cutting the leading dimensions can achieve it.
    """
    n = views[0].shape[0]
    if n == 0:
        return
    row_size = max(v.size for v in views) // n
    if n * row_size <= BLOCK or (n == 1 and views[0].ndim - trailing <= 1):
        yield views
    elif row_size > BLOCK and views[0].ndim - trailing > 1:
        for i in range(n):
            yield from blocks(trailing, *[v[i] for v in views])
    else:
        rows = max(1, BLOCK // row_size)
        for i in range(0, n, rows):
            yield tuple([v[i : i + rows] for v in views])
