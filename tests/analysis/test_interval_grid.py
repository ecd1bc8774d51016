"""The search among intervals and rows of bytes, against a look at every integer and byte."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from wscc.analysis.intervals.grid import IntervalGrid, Rows, RowsIndex
from wscc.analysis.memory import occupied as occupied_module
from wscc.analysis.memory.occupied import Occupied
from wscc.analysis.view_overlap import byte_dims, span

some = settings(deadline=None, max_examples=40)
intervals = st.tuples(st.integers(0, 600), st.sampled_from((0, 1, 7, 15, 16, 17, 255, 300))).map(
    lambda x: (x[0], x[0] + x[1])
)


@some
@given(st.lists(intervals, max_size=30), intervals, st.data())
def test_the_grid_finds_what_meets_an_interval(
    items: list[tuple[int, int]], searched: tuple[int, int], data: st.DataObject
) -> None:
    grid: IntervalGrid[int] = IntervalGrid()
    for n, (first, last) in enumerate(items):
        grid.add(first, last, n)
    removed = {n for n in range(len(items)) if data.draw(st.booleans())}
    for n in removed:
        grid.remove(*items[n], n)
    first, last = searched
    meeting = [n for n, (a, b) in enumerate(items) if n not in removed and a <= last and b >= first]
    assert sorted(grid.near(first, last)) == meeting


matrices = st.tuples(
    st.integers(0, 60),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.lists(st.sampled_from((1, 3, 5, 6, 12, 24)), min_size=3, max_size=3),
)
Matrix = tuple[int, list[int], list[int]]


def bytes_of(matrix: Matrix) -> set[int]:
    low, shape, strides = matrix
    found = {low}
    for n, stride in zip(shape, strides, strict=False):
        found = {b + i * stride for b in found for i in range(n)}
    return found


def rows(matrix: Matrix) -> Rows:
    low, shape, strides = matrix
    dims = byte_dims(tuple(shape), tuple(strides[: len(shape)]), 1)
    return Rows.of(low, low + span(dims), dims)


@some
@given(st.lists(matrices, max_size=12), matrices)
def test_the_index_finds_all_rows_that_share_a_byte(items: list[Matrix], searched: Matrix) -> None:
    index = RowsIndex()
    for n, matrix in enumerate(items):
        index.add(n, rows(matrix))
    sharing = {n for n, matrix in enumerate(items) if bytes_of(matrix) & bytes_of(searched)}
    assert sharing <= index.near(rows(searched))


def test_of_many_tiles_of_a_matrix_few_are_looked_at() -> None:
    """So that time is linear in tiles, of columns, of rows, or of both."""
    for tiles in (
        [(8 * i, ((64, 8192), (8, 1))) for i in range(1024)],
        [(8192 * i, ((8192, 1),)) for i in range(1024)],
        [(8192 * 2 * r + 256 * c, ((2, 8192), (256, 1))) for r in range(32) for c in range(32)],
    ):
        index = RowsIndex()
        found = 0
        for n, (low, dims) in enumerate(tiles):
            own = Rows.of(low, low + span(dims), dims)
            found += len(index.near(own))
            index.add(n, own)
        assert found <= 16 * len(tiles)


blocks = st.tuples(st.integers(0, 9), st.integers(1, 4), st.integers(0, 12), st.integers(0, 9))


@some
@given(st.lists(blocks, max_size=12), st.lists(blocks, max_size=3, unique=True), blocks, st.booleans())
def test_the_lowest_gap_is_free_and_none_is_lower(
    items: list[tuple[int, int, int, int]],
    freed: list[tuple[int, int, int, int]],
    searched: tuple[int, int, int, int],
    many: bool,
) -> None:
    occupied, taken = Occupied(), set[tuple[int, int]]()
    for start, size, first, length in (*items, *freed):
        occupied.take((start, start + size, first, first + length))
    for start, size, first, length in items:
        taken |= {(t, b) for t in range(first, first + length + 1) for b in range(start, start + size)}
    for start, size, first, length in freed:
        occupied.free((start, start + size, first, first + length))
    _, size, first, length = searched

    def is_free(offset: int) -> bool:
        statements, bytes_ = range(first, first + length + 1), range(offset, offset + size)
        return not any((t, b) in taken for t in statements for b in bytes_)

    with patch.object(occupied_module, "_MANY", 0 if many else 99):
        found = occupied.lowest_gap(first, first + length, size)
    assert found == next(x for x in range(99) if is_free(x))
