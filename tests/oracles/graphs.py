"""Expected results of the instruction of graph networks: a dense matrix times each batch element, in f64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Rng = np.random.Generator


def entries_of(matrix: Array, room: int) -> tuple[Array, Array]:
    """The compressed rows of a matrix, with `room` for entries, and their weights."""
    starts, columns, weights = [0], [], []
    for row in matrix:
        for j, w in enumerate(row):
            if w:
                columns.append(j)
                weights.append(w)
        starts.append(len(columns))
    more = room - len(columns)
    return np.array([*starts, *columns, *[0] * more], np.int32), np.array([*weights, *[0.0] * more])


def spmm_case(accumulate: bool, density: float) -> Callable[[Rng], tuple[Any, ...]]:
    def case(rng: Rng) -> tuple[Any, ...]:
        matrix = np.where(rng.random((5, 7)) < density, rng.integers(1, 7, (5, 7)) / 4, 0)
        matrix[2] = 0
        x, y = rng.standard_normal((2, 7, 3)), rng.standard_normal((2, 5, 3))
        product = np.einsum("nm,bmd->bnd", matrix, x)
        return (*entries_of(matrix, 40), x), (accumulate,), (product + accumulate * y,), (y,)

    return case


CASES = {"spmm": (spmm_case(False, 0.5), spmm_case(True, 0.5), spmm_case(False, 0.0))}
