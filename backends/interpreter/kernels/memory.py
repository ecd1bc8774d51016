"""Moving data within a die: copies, casts, table rows."""

from __future__ import annotations

import numpy as np

from wscc.backends.interpreter.kernels.scratch import Array, blocks, scratch


def copy(y: Array, x: Array) -> None:
    y[...] = x


def cast(y: Array, x: Array) -> None:
    np.copyto(y, x, casting="unsafe")


def fill(y: Array, value: float) -> None:
    y.fill(value)


def gather(y: Array, ids: Array, table: Array, start: int) -> None:
    rows, inside = local_rows(ids, start, table.shape[0])
    np.take(table, rows, axis=0, out=y, mode="clip")
    if not inside.all():
        y[~inside] = 0


def scatter_add(table: Array, ids: Array, dy: Array, start: int, accumulate: bool) -> None:
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
    for some_rows, some in blocks(1, rows, dy) if rows.size else ():
        index = scratch("scatter.index", some.shape, np.int64)
        np.add(some_rows[:, None] * table.shape[1], columns, out=index)
        np.add.at(flat, index.reshape(-1), some.reshape(-1))


def local_rows(ids: Array, start: int, rows: int) -> tuple[Array, Array]:
    """The ids as row numbers of a shard that begins at `start`, and which of them are in it."""
    local = ids.astype(np.int64)
    local -= start
    return local, (local >= 0) & (local < rows)
