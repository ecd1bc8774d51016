"""The edges of a graph by block: those between one shard of rows and one shard of columns, in compressed rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class EdgeBlocks:
    """Edges in order of block, row and column, of which `order` has the numbers. `nodes`: more than any row or column;
    `shape`: rows and columns of a block; `across`: blocks beside one another. `rows`, `columns`: of each edge, in this
    order, within its block; `starts`: of each block, its first edge."""

    nodes: int
    shape: tuple[int, int]
    across: int
    order: NDArray[np.int64]
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    starts: NDArray[np.int64]

    @staticmethod
    def of(
        rows: NDArray[Any], columns: NDArray[Any], nodes: tuple[int, int], shape: tuple[int, int]
    ) -> EdgeBlocks:
        """The blocks of `shape` of a matrix of `nodes` rows and columns, which the shape divides."""
        down, across = (n // size for n, size in zip(nodes, shape, strict=True))
        numbers = rows.astype(np.int64) // shape[0] * across + columns // shape[1]
        order = np.lexsort((columns, rows, numbers))
        starts = np.searchsorted(numbers[order], np.arange(down * across + 1))
        inside = rows[order] % shape[0], columns[order] % shape[1]
        return EdgeBlocks(max(nodes), shape, across, order, *inside, starts)

    def counts(self, places: Sequence[tuple[int, int]]) -> list[int]:
        """The number of edges of the blocks at these (row, column)."""
        numbers = np.array([r * self.across + c for r, c in places])
        return [int(n) for n in self.starts[numbers + 1] - self.starts[numbers]]

    def entries(self, place: tuple[int, int], room: int) -> NDArray[np.int32]:
        """Entries [rows + 1 + room] of a block: where each row starts and the last one ends, then the column of each
        edge; zeros behind the last."""
        part, rows = self._edges(place), self.shape[0] + 1
        out = np.zeros(rows + room, np.int32)
        out[:rows] = np.searchsorted(self.rows[part], np.arange(rows))
        out[rows : rows + part.stop - part.start] = self.columns[part]
        return out

    def weights(self, of_edge: NDArray[Any], place: tuple[int, int], room: int) -> NDArray[np.float64]:
        """Weights [room] of the edges of a block, from those of all edges in their own order; zeros behind the last."""
        part = self._edges(place)
        out = np.zeros(room)
        out[: part.stop - part.start] = of_edge[self.order[part]]
        return out

    def _edges(self, place: tuple[int, int]) -> slice:
        number = place[0] * self.across + place[1]
        return slice(int(self.starts[number]), int(self.starts[number + 1]))
