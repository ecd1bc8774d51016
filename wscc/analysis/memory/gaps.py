"""Gaps between intervals of addresses."""

from __future__ import annotations

import numpy as np


def lowest_gap(
    start: np.ndarray[tuple[int], np.dtype[np.int64]],
    end: np.ndarray[tuple[int], np.dtype[np.int64]],
    size: int,
) -> int:
    """The lowest offset from which `size` bytes are free of the intervals [start[k], end[k])."""
    order = np.argsort(start, kind="stable")
    # Before interval k in order (or behind the last), everything from `free_from[k]` on is free.
    free_from = np.concatenate([[0], np.maximum.accumulate(end[order])])
    room = np.concatenate([start[order], [np.iinfo(np.int64).max]]) - free_from
    return int(free_from[int(np.argmax(room >= size))])
