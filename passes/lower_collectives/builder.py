"""What lowering builds with: views on buffers, and the growing body of one fabric procedure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from wscc.diagnostics import NO_SPAN, Span
from wscc.ir.fabric import (
    Buffer,
    FabricStmt,
    Ints,
    Kernel,
    KernelAttr,
    PerDie,
    Transfer,
    View,
    at,
    contiguous_strides,
    per_die,
    plus,
)
from wscc.ir.naming import fresh
from wscc.ir.types import DType
from wscc.analysis.gather_plan import Part
from wscc.ir.logical_mesh import LogicalMesh


def times(ints: Ints, factor: int) -> Ints:
    """Product, die by die."""
    return ints * factor if isinstance(ints, int) else per_die(v * factor for v in ints.values)


def times_each(a: Ints, b: Ints) -> Ints:
    """Product of two, die by die."""
    if isinstance(a, int):
        return times(b, a)
    return per_die(x * at(b, i) for i, x in enumerate(a.values))


def whole_view(buffer: str, shape: tuple[int, ...], dtype: DType) -> View:
    return View(buffer, 0, shape, contiguous_strides(shape), dtype)


def sliced(view: View, dim: int, start: Ints, size: int) -> View:
    """`size` indices of one dimension from `start`, which may differ by die."""
    shape = (*view.shape[:dim], size, *view.shape[dim + 1 :])
    return replace(view, offset=plus(view.offset, times(start, view.strides[dim])), shape=shape)


def indexed(view: View, dim: int, index: int) -> View:
    """One index of a dimension; the dimension goes."""
    cut = sliced(view, dim, index, 1)
    keep = [d for d in range(len(view.shape)) if d != dim]
    return arranged(cut, keep)


def arranged(view: View, dims: Sequence[int | None]) -> View:
    """The dimensions in another order; None makes one that repeats (stride 0, size 1: see `repeated`)."""
    shape = tuple(1 if d is None else view.shape[d] for d in dims)
    strides = tuple(0 if d is None else view.strides[d] for d in dims)
    return replace(view, shape=shape, strides=strides)


def repeated(view: View, term: Sequence[str], onto: Sequence[str], shape: Sequence[int]) -> View:
    """A view with factors `term` read as one with factors `onto` of sizes `shape`, repeating what it lacks."""
    strides = tuple(view.strides[term.index(f)] if f in term else 0 for f in onto)
    return replace(view, shape=tuple(shape), strides=strides)


def halves(view: View, part: Part) -> View | None:
    """The low or high half along the first dimension that has two indices; None if there is nothing left."""
    if part is Part.WHOLE:
        return view
    dim = next((d for d, n in enumerate(view.shape) if n > 1), None)
    if dim is None:
        return view if part is Part.LOW else None
    low = (view.shape[dim] + 1) // 2
    if part is Part.LOW:
        return sliced(view, dim, 0, low)
    return sliced(view, dim, low, view.shape[dim] - low)


def flat(view: View) -> View:
    """A contiguous view as one dimension."""
    assert view.is_contiguous
    return replace(view, shape=(view.elements,), strides=(1,))


@dataclass(slots=True)
class FabricBuilder:
    """The body and buffers of one procedure; `taken` are the names in use, formals included; `source` and `span`
    mark what is emitted next. With `multicast`, dies that gather send to all others at once.
    Temporaries of one op should not take more than `fast_bytes`; `tile` is the side of a matrix unit."""

    mesh: LogicalMesh
    buffers: dict[str, Buffer]
    body: list[FabricStmt]
    taken: set[str]
    multicast: bool = False
    fast_bytes: int = 1 << 62
    tile: int = 1
    channel: int = 0
    source: str = ""
    span: Span = NO_SPAN

    def buffer(self, hint: str, shape: Sequence[int], dtype: DType, *, slot: bool = False) -> View:
        """A new local, named `hint` or `hint.N`."""
        name = fresh(hint, self.taken)
        self.taken.add(name)
        self.buffers[name] = Buffer(name, prod(shape), dtype, slot=slot)
        return whole_view(name, tuple(shape), dtype)

    def kernel(
        self,
        opcode: str,
        writes: Sequence[View],
        reads: Sequence[View],
        attrs: Mapping[str, KernelAttr] | None = None,
        where: Ints = 1,
    ) -> None:
        given = tuple((attrs or {}).items())
        self.body.append(Kernel(opcode, tuple(writes), tuple(reads), given, where, self.source, self.span))

    def transfer(
        self, to: Ints, read: View, write: View, group: str, content: str = "", *, one_hop: bool = False
    ) -> None:
        assert read.elements == write.elements, (read, write)
        self.body.append(
            Transfer(self.channel, to, read, write, group, content, one_hop=one_hop, source=self.source)
        )
        self.channel += 1

    def contiguous(self, view: View, hint: str) -> View:
        """The view itself if it is contiguous, else a copy."""
        if view.is_contiguous:
            return view
        copy = self.buffer(hint, view.shape, view.dtype)
        self.kernel("copy", [copy], [view])
        return copy


def mask(mesh: LogicalMesh, axis: str, positions: Sequence[bool]) -> Ints:
    """1 on dies whose position along the axis is chosen."""
    return mesh.by_position(axis, [int(p) for p in positions])


def flipped(where: Ints) -> Ints:
    return 1 - where if isinstance(where, int) else PerDie(tuple(1 - v for v in where.values))
