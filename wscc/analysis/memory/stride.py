"""Bytes from one element of an array to the next."""

from __future__ import annotations

from math import prod

from wscc.ir.array import Array
from wscc.ir.memory import aligned
from wscc.ir.module import Module


def element_stride(module: Module, array: Array) -> int:
    """Bytes from one element of an array to the next on a die: its local size, aligned."""
    return aligned(array.type.dtype.size * prod(array.type.local_shape(module.sizes)))
