"""Gaps between bytes that are taken."""

from __future__ import annotations

from collections.abc import Iterable


def lowest_gap(taken: Iterable[tuple[int, ...]], size: int) -> int:
    """The lowest offset from which `size` bytes are free of intervals [start, end), given in order of their starts;
    what else they hold is left alone."""
    free = 0
    for x in taken:
        if x[0] - free >= size:
            break
        if x[1] > free:
            free = x[1]
    return free
