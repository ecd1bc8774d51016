"""Which parts of an argument are copied: boxes that the views on it stay within."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import combinations

from wscc.analysis.view_overlap import dims_of, meets
from wscc.ir.types import DType
from wscc.ir.views import View, contiguous_strides, whole_view


@dataclass(frozen=True, slots=True)
class Argument:
    """Memory of `elements` that a call binds, which may hold something at entry (`held`)."""

    name: str
    elements: int
    dtype: DType
    held: bool

    @property
    def whole(self) -> View:
        return whole_view(self.name, (self.elements,), self.dtype)


@dataclass(frozen=True, slots=True)
class Box:
    """A part of an argument, or all of it."""

    view: View
    whole: bool = False

    def inside(self, view: View) -> View | None:
        """A view on the argument as one on a compact copy of the box, whose name it keeps; None if it is not inside the
        box, or crosses its dimensions."""
        return view if self.whole else _moved(view, self.view)


def boxes(argument: Argument, views: Iterable[View]) -> list[Box]:
    """Disjoint boxes such that every view is inside one; the whole argument if there are none smaller, or if it must be
    written to the last byte because it holds nothing."""
    found: list[Box] = []
    for view in sorted(dict.fromkeys(views), key=lambda v: -v.elements):
        if any(box.inside(view) for box in found):
            continue
        if not argument.held or not isinstance(view.offset, int) or not _is_plain(view):
            return [Box(argument.whole, whole=True)]
        found.append(Box(view))
    if any(_meet(a.view, b.view) for a, b in combinations(found, 2)):
        return [Box(argument.whole, whole=True)]
    return found


def _moved(view: View, box: View) -> View | None:
    if not isinstance(view.offset, int) or not isinstance(box.offset, int) or view.dtype != box.dtype:
        return None
    rest, offset = view.offset - box.offset, 0
    compact = contiguous_strides(box.shape)
    room: dict[int, tuple[int, int]] = {}
    for n, stride, new in sorted(zip(box.shape, box.strides, compact, strict=True), key=lambda d: -d[1]):
        if n == 1:
            continue
        at, rest = divmod(rest, stride)
        if not 0 <= at < n:
            return None
        offset += at * new
        room[stride] = n - at, new
    strides = []
    for n, stride in zip(view.shape, view.strides, strict=True):
        left, new = room.get(stride, (0, 1))
        if n > 1 and stride and n > left:
            return None
        strides.append(new if stride else 0)
    moves = [s for n, s in zip(view.shape, view.strides, strict=True) if n > 1 and s]
    if rest or len(set(moves)) < len(moves):
        return None
    return replace(view, offset=offset, strides=tuple(strides))


def _is_plain(view: View) -> bool:
    """Whether no two of its indices are the same element, nor its dimensions woven into one another."""
    reach = 1
    for stride, n in sorted((s, n) for n, s in zip(view.shape, view.strides, strict=True) if n > 1):
        if stride < reach:
            return False
        reach += (n - 1) * stride
    return True


def _meet(a: View, b: View) -> bool:
    assert isinstance(a.offset, int)
    assert isinstance(b.offset, int)
    return meets(dims_of(a), dims_of(b), (b.offset - a.offset) * a.dtype.size)
