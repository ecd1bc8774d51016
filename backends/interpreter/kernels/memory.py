"""Kernels that move data within a die: copies, casts, and rows of tables."""

from __future__ import annotations

import numpy as np

from wscc.backends.interpreter.kernels.scratch import Array, blocks, scratch


def copy(y: Array, x: Array) -> None:
    """y [*] = x [*], of the same element type."""
    y[...] = x


def cast(y: Array, x: Array) -> None:
    """y [*] = x [*] rounded to the element type of y."""
    np.copyto(y, x, casting="unsafe")


def fill(y: Array, value: float) -> None:
    """y [*] = value in every element."""
    y.fill(value)


def gather(y: Array, ids: Array, table: Array, start: int) -> None:
    """y [*, d] = rows ids [*] (i32) - start of table [v, d]; 0 for rows of another shard."""
    rows, inside = local_rows(ids, start, table.shape[0])
    np.take(table, rows, axis=0, out=y, mode="clip")
    if not inside.all():
        y[~inside] = 0


def scatter_add(table: Array, ids: Array, dy: Array, start: int, accumulate: bool) -> None:
    """table [v, d] += dy [*, d] at rows ids [*] (i32) - start; rows of another shard are dropped.

    The table is set to zero first unless `accumulate`. Sums are in its element type, f32 or f64, in the order of ids.
    """
    if not accumulate:
        table.fill(0)
    rows, inside = local_rows(ids, start, table.shape[0])
    if not inside.all():
        rows, dy = rows[inside], dy[inside]
    rows, dy = rows.reshape(-1), dy.reshape(-1, table.shape[1])
    if not table.flags.c_contiguous:
        np.add.at(table, rows, dy)
        return
    # `add.at` has a fast path for one dimension only; the order of the additions is that of the ids.
    flat, columns = table.reshape(-1), np.arange(table.shape[1])
    for rows_block, dy_block in blocks(1, rows, dy) if rows.size else ():
        index = scratch("scatter.index", dy_block.shape, np.int64)
        np.add(rows_block[:, None] * table.shape[1], columns, out=index)
        np.add.at(flat, index.reshape(-1), dy_block.reshape(-1))


def local_rows(ids: Array, start: int, rows: int) -> tuple[Array, Array]:
    """Row numbers [*] in a shard of `rows` rows from `start` for ids [*], and a mask [*] of those inside it."""
    local = ids.astype(np.int64)
    local -= start
    return local, (local >= 0) & (local < rows)
