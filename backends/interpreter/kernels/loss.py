"""Kernels of cross entropy, in pieces whose results a split vocabulary can reduce over its shards.

Logits are x [*, v], labels y [*] i32 (-100: ignored). `start` is the global number of the first column of x; columns
from the global number `limit` on (0: none) are pads, and are not read. Floats are f32 or f64.
"""

from __future__ import annotations

import numpy as np

from wscc.backends.interpreter.kernels.gemm import row_max, row_sum
from wscc.backends.interpreter.kernels.memory import local_rows
from wscc.backends.interpreter.kernels.scratch import Array, blocks, scratch, scratch_like
from wscc.ir.ops import IGNORED


def rowmax(m: Array, x: Array, limit: int, start: int) -> None:
    """m [*] = maximum of x [*, v] over the columns that are no pads, -inf where there are none."""
    row_max(_without_pads(x, limit, start), m)


def sumexp(z: Array, x: Array, m: Array, limit: int, start: int) -> None:
    """z [*] = sum over v of exp(x [*, v] - m [*]), pads left out."""
    for z_block, x_block, m_block in blocks(1, z, _without_pads(x, limit, start), m):
        t = np.subtract(x_block, m_block[..., None], out=scratch_like("sumexp", x_block))
        np.exp(t, out=t)
        row_sum(t, z_block)


def sumexp_bwd(dx: Array, x: Array, m: Array, dz: Array, limit: int, start: int) -> None:
    """dx [*, v] = exp(x [*, v] - m [*]) dz [*]; 0 at pads."""
    x = _without_pads(x, limit, start)
    dx[..., x.shape[-1] :] = 0
    for dx_block, x_block, m_block, dz_block in blocks(1, dx[..., : x.shape[-1]], x, m, dz):
        t = np.subtract(x_block, m_block[..., None], out=scratch_like("sumexp", x_block))
        np.exp(t, out=t)
        np.multiply(t, dz_block[..., None], out=dx_block)


def rowsum(s: Array, x: Array, limit: int, start: int) -> None:
    """s [*] = sum over v of x [*, v], pads left out."""
    row_sum(_without_pads(x, limit, start), s)


def rowsum_bwd(dx: Array, ds: Array, limit: int, start: int) -> None:
    """dx [*, v] = ds [*]; 0 at pads."""
    real = _without_pads(dx, limit, start)
    dx[..., real.shape[-1] :] = 0
    np.copyto(real, ds[..., None])


def _without_pads(x: Array, limit: int, start: int) -> Array:
    """View of the columns of x [*, v] that are no pads."""
    return x if limit == 0 else x[..., : max(0, limit - start)]


def pick(p: Array, x: Array, y: Array, start: int) -> None:
    """p [*] = x [*, v] at column y [*] - start, or 0 where that is in another shard."""
    columns, inside = local_rows(y, start, x.shape[-1])
    columns[~inside] = 0
    picked = np.take_along_axis(x, columns[..., None], axis=-1)[..., 0]
    np.copyto(p, picked)
    p[~inside] = 0


def pick_bwd(dx: Array, y: Array, dp: Array, start: int) -> None:
    """dx [*, v] = dp [*] at column y [*] - start, 0 elsewhere."""
    columns, inside = local_rows(y, start, dx.shape[-1])
    dx.fill(0)
    rows = np.nonzero(inside)
    dx[(*rows, columns[rows])] = dp[rows]


def nll(l: Array, m: Array, z: Array, p: Array, y: Array) -> None:  # noqa: E741
    """l [*] = log z [*] + (m [*] - p [*]), the negative log-likelihood; 0 where label y [*] is -100.

    The difference of two logits is taken first: beside a maximum of 20,000 most digits of log z would be lost.
    """
    t = np.log(z, out=scratch_like("nll", z))
    t += np.subtract(m, p, out=scratch_like("nll.gap", z))
    t[y == IGNORED] = 0
    np.copyto(l, t)


def nll_bwd(dz: Array, dp: Array, z: Array, y: Array, dl: Array) -> None:
    """dz [*] = dl [*] / z [*] and dp [*] = -dl; both 0 where label y [*] is -100."""
    ignored = y == IGNORED
    np.negative(dl, out=dp)
    dp[ignored] = 0
    np.divide(dl, z, out=dz)
    dz[ignored] = 0


def zloss(l: Array, m: Array, z: Array, y: Array, factor: float) -> None:  # noqa: E741
    """l [*] = factor (log z [*] + m [*])^2; 0 where label y [*] is -100."""
    t = _log_total(m, z)
    t *= t
    t *= factor
    t[y == IGNORED] = 0
    np.copyto(l, t)


def zloss_bwd(dz: Array, m: Array, z: Array, y: Array, dl: Array, factor: float) -> None:
    """dz [*] = 2 factor (log z [*] + m [*]) dl [*] / z [*]; 0 where label y [*] is -100."""
    t = _log_total(m, z)
    t *= 2 * factor
    t *= dl
    t /= z
    t[y == IGNORED] = 0
    np.copyto(dz, t)


def _log_total(m: Array, z: Array) -> Array:
    """log z [*] + m [*], in scratch."""
    t = np.log(z, out=scratch_like("zloss", z))
    t += m
    return t


def mean(s: Array, x: Array, n: Array) -> None:
    """s [] = sum of x [*] / max(n [], 1); the sum in the element type of x."""
    s[...] = float(np.add.reduce(x, axis=None)) / max(float(n), 1.0)


def mean_bwd(dx: Array, ds: Array, n: Array) -> None:
    """dx [*] = ds [] / max(n [], 1) everywhere."""
    dx.fill(float(ds) / max(float(n), 1.0))


def count(n: Array, y: Array) -> None:
    """n [] = the number of labels y [*] that are not -100."""
    n[...] = np.count_nonzero(y != IGNORED)


def sqsum(s: Array, x: Array) -> None:
    """s [] = sum of squares of x [*] in f64, where squares of f32 neither overflow nor vanish."""
    total = 0.0
    for (x_block,) in blocks(0, x):
        wide = scratch("sqsum", x_block.shape, np.float64)
        np.copyto(wide, x_block)
        total += float(np.vdot(wide, wide))
    s[...] = total
