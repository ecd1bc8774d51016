"""Meshes of three dimensions, folded into two: planes lie one below the other, every other one upside down.

So the last row of a plane lies beside the row of the next plane that a link joins it to, and a mesh of planes x rows x
columns has all links of a mesh of (planes x rows) x columns, and more. What is known of meshes of two dimensions
(rings, tilings, snakes) holds on it. A *cell* is (row, column) of the folded mesh, a *place* (plane, row, column).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

Cell = tuple[int, int]
Place = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fold:
    """`planes` planes of `rows` x `cols` dies; `closed` says whether links join both ends of each dimension, in the
    order of places."""

    planes: int
    rows: int
    cols: int
    closed: tuple[bool, bool, bool]

    def place(self, cell: Cell) -> Place:
        """(plane, row, column) of a cell."""
        plane, row = divmod(cell[0], self.rows)
        return plane, self._turned(plane, row), cell[1]

    def cell(self, place: Place) -> Cell:
        """The cell of (plane, row, column)."""
        plane, row, col = place
        return plane * self.rows + self._turned(plane, row), col

    def joins(self, a: Cell, b: Cell) -> bool:
        """Whether a link joins two cells: their places differ in one dimension, by one or around its ends."""
        far = [
            (abs(x - y), extent, closed)
            for x, y, extent, closed in zip(
                self.place(a), self.place(b), self.extents, self.closed, strict=True
            )
            if x != y
        ]
        return len(far) == 1 and (far[0][0] == 1 or (far[0][2] and far[0][0] == far[0][1] - 1))

    def around(self, cell: Cell) -> Iterator[Cell]:
        """The cells where links of a die end: left, right, up, down, in the plane before and in the one behind."""
        place = self.place(cell)
        for dimension in (2, 1, 0):
            extent = self.extents[dimension]
            for step in (-1, 1):
                to = place[dimension] + step
                if 0 <= to < extent or (self.closed[dimension] and extent > 2):
                    yield self.cell((*place[:dimension], to % extent, *place[dimension + 1 :]))

    @property
    def extents(self) -> tuple[int, int, int]:
        """Planes, rows and columns."""
        return self.planes, self.rows, self.cols

    @property
    def links(self) -> int:
        """The links, each counted once."""
        dies = self.planes * self.rows * self.cols
        return sum(
            dies // n * (n - 1 + (closed and n > 2))
            for n, closed in zip(self.extents, self.closed, strict=True)
        )

    @property
    def closes_folded(self) -> bool:
        """Whether links join the first row of the folded mesh and the last one, which are one row of two planes."""
        return self.planes % 2 == 0 and (self.closed[0] or self.planes == 2)

    def _turned(self, plane: int, row: int) -> int:
        return self.rows - 1 - row if plane % 2 else row
