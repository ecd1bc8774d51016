"""The edges of a graph by block: those between one shard of rows and one shard of columns, in compressed rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class EdgeBlocks:
    """Edges in order of block, row and column. `shape`: rows and columns of a block; `across`: blocks beside one
    another. `rows`, `columns`, `weights`: of each edge, indices within its block; `starts`: its first edge, of each
    block."""

    shape: tuple[int, int]
    across: int
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    weights: NDArray[np.float64]
    starts: NDArray[np.int64]

    @staticmethod
    def of(
        rows: NDArray[Any], columns: NDArray[Any], weights: NDArray[Any], nodes: tuple[int, int],
        shape: tuple[int, int],
    ) -> EdgeBlocks:  # fmt: skip
        """The blocks of `shape` of a matrix of `nodes` rows and columns, which the shape divides."""
        down, across = (n // size for n, size in zip(nodes, shape, strict=True))
        numbers = rows.astype(np.int64) // shape[0] * across + columns // shape[1]
        order = np.lexsort((columns, rows, numbers))
        starts = np.searchsorted(numbers[order], np.arange(down * across + 1))
        return EdgeBlocks(
            shape, across, rows[order] % shape[0], columns[order] % shape[1], weights[order], starts
        )

    def counts(self, places: Sequence[tuple[int, int]]) -> list[int]:
        """The number of edges of the blocks at these (row, column)."""
        numbers = np.array([r * self.across + c for r, c in places])
        return [int(n) for n in self.starts[numbers + 1] - self.starts[numbers]]

    def packed(self, place: tuple[int, int], room: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Entries [rows + 1 + room] and weights [room] of a block: where each row starts and the last one ends, then
        the column of each edge; zeros behind the last."""
        number = place[0] * self.across + place[1]
        part = slice(self.starts[number], self.starts[number + 1])
        entries, weights = np.zeros(self.shape[0] + 1 + room, np.int32), np.zeros(room)
        entries[: self.shape[0] + 1] = np.searchsorted(self.rows[part], np.arange(self.shape[0] + 1))
        columns = self.columns[part]
        entries[self.shape[0] + 1 :][: len(columns)] = columns
        weights[: len(columns)] = self.weights[part]
        return entries, weights
