"""Cross entropy in pieces that a split vocabulary can be summed over. Columns from `limit` on are pads."""

from __future__ import annotations

import numpy as np

from wscc.backends.interpreter.kernels.gemm import row_max, row_sum
from wscc.backends.interpreter.kernels.memory import local_rows
from wscc.backends.interpreter.kernels.scratch import Array, blocks, like

IGNORED = -100


def rowmax(m: Array, x: Array, limit: int, start: int) -> None:
    row_max(_real(x, limit, start), m)


def sumexp(z: Array, x: Array, m: Array, limit: int, start: int) -> None:
    for some_z, some_x, some_m in blocks(1, z, _real(x, limit, start), m):
        t = np.subtract(some_x, some_m[..., None], out=like("sumexp", some_x))
        np.exp(t, out=t)
        row_sum(t, some_z)


def sumexp_bwd(dx: Array, x: Array, m: Array, dz: Array, limit: int, start: int) -> None:
    x = _real(x, limit, start)
    dx[..., x.shape[-1] :] = 0
    for some_dx, some_x, some_m, some_dz in blocks(1, dx[..., : x.shape[-1]], x, m, dz):
        t = np.subtract(some_x, some_m[..., None], out=like("sumexp", some_x))
        np.exp(t, out=t)
        np.multiply(t, some_dz[..., None], out=some_dx)


def _real(x: Array, limit: int, start: int) -> Array:
    """The columns that are no pads."""
    return x if limit == 0 else x[..., : max(0, limit - start)]


def pick(p: Array, x: Array, y: Array, start: int) -> None:
    columns, inside = local_rows(y, start, x.shape[-1])
    columns[~inside] = 0
    picked = np.take_along_axis(x, columns[..., None], axis=-1)[..., 0]
    np.copyto(p, picked)
    p[~inside] = 0


def pick_bwd(dx: Array, y: Array, dp: Array, start: int) -> None:
    columns, inside = local_rows(y, start, dx.shape[-1])
    dx.fill(0)
    at = np.nonzero(inside)
    dx[(*at, columns[at])] = dp[at]


def nll(l: Array, m: Array, z: Array, p: Array, y: Array) -> None:  # noqa: E741
    t = np.log(z, out=like("nll", z))
    t += m
    t -= p
    t[y == IGNORED] = 0
    np.copyto(l, t)


def nll_bwd(dz: Array, dp: Array, z: Array, y: Array, dl: Array) -> None:
    ignored = y == IGNORED
    np.negative(dl, out=dp)
    dp[ignored] = 0
    np.divide(dl, z, out=dz)
    dz[ignored] = 0


def mean(s: Array, x: Array, n: Array) -> None:
    s[...] = float(np.add.reduce(x, axis=None)) / max(float(n), 1.0)


def mean_bwd(dx: Array, ds: Array, n: Array) -> None:
    dx.fill(float(ds) / max(float(n), 1.0))


def count(n: Array, y: Array) -> None:
    n[...] = np.count_nonzero(y != IGNORED)


def sqsum(s: Array, x: Array) -> None:
    """Block by block in the element type, the blocks in f64."""
    total = 0.0
    for (some,) in blocks(0, x):
        total += float(np.vdot(some, some))
    s[...] = total
