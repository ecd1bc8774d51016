"""Expected results of the instructions of graph networks: with dense matrices, in f64."""

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


def _attention(s: Array, t: Array, v: Array, edges: Array, slope: float) -> Array:
    """Row by row and head by head; `edges` [n, m] says which pairs are edges."""
    y = np.zeros((*s.shape, v.shape[-1]), v.dtype)
    for b, n, h in np.ndindex(*s.shape):
        z = s[b, n, h] + t[b, :, h]
        p = edges[n] * np.exp(np.where(z.real > 0, z, slope * z))
        if p.any():
            y[b, n, h] = p / p.sum() @ v[b, :, h]
    return y


def attention_case(backward: bool) -> Callable[[Rng], tuple[Any, ...]]:
    def case(rng: Rng) -> tuple[Any, ...]:
        edges = rng.random((5, 7)) < 0.5
        edges[2] = False
        entries = entries_of(edges, 40)[0]
        s, t, v = (rng.integers(-9, 10, n) / 8 for n in ((2, 5, 3), (2, 7, 3), (2, 7, 3, 2)))
        s += 1 / 16  # no score is 0
        if not backward:
            return (entries, s, t, v), (0.2,), (_attention(s, t, v, edges, 0.2),)
        # The derivative along an element is the imaginary part of a step in that direction: no difference is taken.
        dy, grads = rng.integers(-8, 9, (2, 5, 3, 2)) / 8, []
        for i in range(3):
            grads.append(np.zeros((s, t, v)[i].shape))
            for index in np.ndindex(grads[i].shape):
                moved = [x.astype(complex) for x in (s, t, v)]
                moved[i][index] += 1e-30j
                grads[i][index] = (dy * _attention(*moved, edges, 0.2)).sum().imag / 1e-30
        return (entries, s, t, v, dy), (0.2,), tuple(grads)

    return case


CASES = {
    "spmm": (spmm_case(False, 0.5), spmm_case(True, 0.5), spmm_case(False, 0.0)),
    "edge_attention": (attention_case(False),),
    "edge_attention_bwd": (attention_case(True),),
}
