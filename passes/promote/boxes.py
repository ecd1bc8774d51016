"""Boxes of an argument that are promoted as a whole: disjoint parts that contain all views on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wscc.analysis.intervals.grid import Rows, RowsIndex
from wscc.analysis.view_overlap import dims_of, overlap, span
from wscc.ir.types import DType
from wscc.ir.views import View, contiguous_strides, whole_view


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of `elements` local elements, or a local. `live_in`: its contents at entry may be read; `live_out`:
    those at the end."""

    name: str
    elements: int
    dtype: DType
    live_in: bool
    live_out: bool = True

    @property
    def bytes(self) -> int:
        """Its size on a die."""
        return self.elements * self.dtype.size

    @property
    def whole(self) -> View:
        """A view on all of the argument."""
        return whole_view(self.name, (self.elements,), self.dtype)


@dataclass(frozen=True, slots=True)
class Box:
    """A part of an argument, or all of it."""

    view: View
    whole: bool = False

    def inside(self, view: View) -> View | None:
        """A view on the argument as one on a compact copy of the box, with the buffer name unchanged.

        None if the view is not inside the box, or crosses its dimensions.
        """
        return view if self.whole else _relative_to(view, self.view)


@dataclass(frozen=True, slots=True)
class Boxes:
    """The boxes of an argument, and for each view on it the number of the one that it is inside."""

    boxes: list[Box]
    number_of: dict[View, int]


def boxes(argument: Argument, views: Iterable[View]) -> Boxes:
    """Disjoint boxes such that every view is inside one; the whole argument if there are no smaller ones, or if it must
    be written to the last byte because it is live at the end, but not at entry."""
    distinct = sorted(dict.fromkeys(views), key=lambda v: -v.elements)
    whole = Boxes([Box(argument.whole, whole=True)], dict.fromkeys(distinct, 0))
    disjoint: list[Box] = []
    number_of: dict[View, int] = {}
    index = RowsIndex()
    for view in distinct:
        first = _first_byte(view)
        holding = (n for n in index.near(first) if disjoint[n].inside(view)) if first else iter(())
        number = next(holding, None)
        if number is None:
            filled = argument.live_out and not argument.live_in
            if filled or first is None or not _is_plain(view):
                return whole
            rows = _rows(view, first.low)
            if any(_overlap(disjoint[n].view, view) for n in index.near(rows)):
                return whole
            number = len(disjoint)
            disjoint.append(Box(_merged(view)))
            index.add(number, rows)
        number_of[view] = number
    return Boxes(disjoint, number_of)


def _first_byte(view: View) -> Rows | None:
    """The first byte of a view; None where it differs between dies."""
    if not isinstance(view.offset, int):
        return None
    low = view.offset * view.dtype.size
    return Rows(low, low + 1)


def _rows(view: View, low: int) -> Rows:
    """The bytes of a view from `low` on."""
    dims = dims_of(view)
    return Rows.of(low, low + span(dims), dims)


def _relative_to(view: View, box: View) -> View | None:
    """The view on a compact copy of the box; None if it is not inside, or crosses dimensions of the box.

    A dimension of the view may go several steps of one of the box, and several may share it: heads of a matrix are part
    of its columns.
    """
    if not isinstance(view.offset, int) or not isinstance(box.offset, int) or view.dtype != box.dtype:
        return None
    rest, offset = view.offset - box.offset, 0
    dims: list[list[int]] = []  # stride, steps that are left, and stride in the copy
    compact = contiguous_strides(box.shape)
    for n, stride, new in sorted(zip(box.shape, box.strides, compact, strict=True), key=lambda d: -d[1]):
        if n == 1:
            continue
        index, rest = divmod(rest, stride)
        if not 0 <= index < n:
            return None
        offset += index * new
        dims.append([stride, n - 1 - index, new])
    used = [s for n, s in zip(view.shape, view.strides, strict=True) if n > 1 and s]
    if rest or len(set(used)) < len(used):
        return None
    strides = []
    for n, stride in zip(view.shape, view.strides, strict=True):
        if n == 1 or not stride:
            strides.append(1 if stride else 0)
            continue
        dim = next((d for d in dims if d[0] <= stride), None)
        if dim is None or stride % dim[0]:
            return None
        times = stride // dim[0]
        dim[1] -= (n - 1) * times
        if dim[1] < 0:
            return None
        strides.append(dim[2] * times)
    return view._replace(offset=offset, strides=tuple(strides))


def _merged(view: View) -> View:
    """The view with as few dimensions as have its elements, in order of their addresses."""
    dims: list[tuple[int, int]] = []
    for stride, n in sorted(
        ((s, n) for n, s in zip(view.shape, view.strides, strict=True) if n > 1), reverse=True
    ):
        if dims and dims[-1][1] == n * stride:
            dims[-1] = dims[-1][0] * n, stride
        else:
            dims.append((n, stride))
    shape, strides = zip(*dims, strict=True) if dims else ((1,), (1,))
    return view._replace(shape=shape, strides=strides)


def _is_plain(view: View) -> bool:
    """Whether no two indices of a view are the same element, and its dimensions nest."""
    extent = 1
    for stride, n in sorted((s, n) for n, s in zip(view.shape, view.strides, strict=True) if n > 1):
        if stride < extent:
            return False
        extent += (n - 1) * stride
    return True


def _overlap(a: View, b: View) -> bool:
    assert isinstance(a.offset, int)
    assert isinstance(b.offset, int)
    return overlap(dims_of(a), dims_of(b), (b.offset - a.offset) * a.dtype.size)
