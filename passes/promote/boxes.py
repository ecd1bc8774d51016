"""Boxes of an argument that are promoted as a whole: disjoint parts that contain all views on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import combinations

from wscc.analysis.view_overlap import dims_of, overlap
from wscc.ir.types import DType
from wscc.ir.views import View, contiguous_strides, whole_view


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of `elements` local elements; `live_in`: its contents at entry may be read."""

    name: str
    elements: int
    dtype: DType
    live_in: bool

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


def boxes(argument: Argument, views: Iterable[View]) -> list[Box]:
    """Disjoint boxes such that every view is inside one; the whole argument if there are no smaller ones, or if it must
    be written to the last byte because it is not live at entry."""
    disjoint: list[Box] = []
    for view in sorted(dict.fromkeys(views), key=lambda v: -v.elements):
        if any(box.inside(view) for box in disjoint):
            continue
        if not argument.live_in or not isinstance(view.offset, int) or not _is_plain(view):
            return [Box(argument.whole, whole=True)]
        disjoint.append(Box(view))
    if any(_overlap(a.view, b.view) for a, b in combinations(disjoint, 2)):
        return [Box(argument.whole, whole=True)]
    return disjoint


def _relative_to(view: View, box: View) -> View | None:
    """The view on a compact copy of the box; None if it is not inside, or crosses dimensions of the box."""
    if not isinstance(view.offset, int) or not isinstance(box.offset, int) or view.dtype != box.dtype:
        return None
    rest, offset = view.offset - box.offset, 0
    compact = contiguous_strides(box.shape)
    extents: dict[
        int, tuple[int, int]
    ] = {}  # by stride, indices from the view's first on, and the compact stride
    for n, stride, new in sorted(zip(box.shape, box.strides, compact, strict=True), key=lambda d: -d[1]):
        if n == 1:
            continue
        index, rest = divmod(rest, stride)
        if not 0 <= index < n:
            return None
        offset += index * new
        extents[stride] = n - index, new
    strides = []
    for n, stride in zip(view.shape, view.strides, strict=True):
        extent, new = extents.get(stride, (0, 1))
        if n > 1 and stride and n > extent:
            return None
        strides.append(new if stride else 0)
    used = [s for n, s in zip(view.shape, view.strides, strict=True) if n > 1 and s]
    if rest or len(set(used)) < len(used):
        return None
    return replace(view, offset=offset, strides=tuple(strides))


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
