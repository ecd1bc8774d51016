"""Gaps between bytes that are taken."""

from __future__ import annotations

from collections.abc import Iterable


def lowest_gap(taken: Iterable[tuple[int, int]], size: int) -> int:
    """The lowest offset from which `size` bytes are free of intervals [start, end), given in order of their starts."""
    free = 0
    for start, end in taken:
        if start - free >= size:
            break
        if end > free:
            free = end
    return free
