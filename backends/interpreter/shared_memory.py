"""The memories of dies: one mapping that processes forked from this one share, gone with the last of them."""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import NDArray

from wscc.diagnostics import Code, fail

_ALIGNED = 64


def arenas(count: int, size: int) -> list[NDArray[np.uint8]]:
    """`count` arrays of `size` bytes, zero and 64-byte aligned; `CompileError` W401 if there is no such memory."""
    room = -(-size // _ALIGNED) * _ALIGNED
    try:
        memory = mmap.mmap(-1, max(1, count * room))
    except (OSError, OverflowError, ValueError) as error:
        raise fail(
            Code.OUT_OF_MEMORY, f"this computer gives no {count * room} bytes for {count} dies"
        ) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)  # fewer page faults and misses of the address cache
    whole = np.frombuffer(memory, np.uint8)
    return [whole[i * room : i * room + size] for i in range(count)]
