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


def max_case(rng: Rng) -> tuple[Any, ...]:
    edges, x = _some_edges(rng), rng.integers(-3, 4, (2, 7, 3)) / 2  # many are equal
    y = np.zeros((2, 5, 3))
    for b, n, d in np.ndindex(*y.shape):
        y[b, n, d] = max((x[b, m, d] for m in np.flatnonzero(edges[n])), default=0)
    return (entries_of(edges, 40)[0], x), (), (y,)


def max_bwd_case(rng: Rng) -> tuple[Any, ...]:
    edges, x = _some_edges(rng), rng.integers(-3, 4, (2, 7, 3)) / 2
    dy, dx = rng.standard_normal((2, 5, 3)), np.zeros((2, 7, 3))
    for b, n, d in np.ndindex(*dy.shape):
        near = np.flatnonzero(edges[n])
        largest = [m for m in near if x[b, m, d] == x[b, near, d].max()]
        for m in largest:
            dx[b, m, d] += dy[b, n, d] / len(largest)
    return (entries_of(edges, 40)[0], x, dy), (), (dx,)


def sum_case(backward: bool) -> Callable[[Rng], tuple[Any, ...]]:
    """Numbers of edges are any: here entry j of the block has the number 39 - j."""

    def case(rng: Rng) -> tuple[Any, ...]:
        edges, w = _some_edges(rng), rng.integers(-4, 5, 45) / 4
        entries, numbers = entries_of(edges, 40)[0], np.arange(39, -1, -1, np.int32)
        x, dy = rng.integers(-8, 9, (2, 7, 3)) / 8, rng.integers(-8, 9, (2, 5, 3)) / 8
        matrix, places = np.zeros((5, 7)), [(n, m) for n, m in np.argwhere(edges)]
        for j, place in enumerate(places):
            matrix[place] = w[39 - j]
        if not backward:
            return (entries, numbers, x, w), (), (np.einsum("nm,bmd->bnd", matrix, x),)
        dw, each = np.zeros(45), np.einsum("bmd,bnd->nm", x, dy)
        for j, place in enumerate(places):
            dw[39 - j] = each[place]
        return (entries, numbers, x, w, dy), (), (np.einsum("nm,bnd->bmd", matrix, dy), dw)

    return case


def _some_edges(rng: Rng) -> Array:
    edges = rng.random((5, 7)) < 0.5
    edges[2] = False
    return edges


CASES = {
    "spmm": (spmm_case(False, 0.5), spmm_case(True, 0.5), spmm_case(False, 0.0)),
    "edge_attention": (attention_case(False),),
    "edge_attention_bwd": (attention_case(True),),
    "edge_max": (max_case,),
    "edge_max_bwd": (max_bwd_case,),
    "edge_sum": (sum_case(False),),
    "edge_sum_bwd": (sum_case(True),),
}
