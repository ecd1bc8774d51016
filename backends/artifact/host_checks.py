"""Checks of the manifest by itself: dies on the wafer, axes and stages, and the arrays of the host inside the arena."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import lcm, prod
from operator import gt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from wscc.backends.artifact.mistake import Mistake
from wscc.ir.array import Kind, Role
from wscc.ir.ops import IGNORED
from wscc.ir.streams.artifact import HostPart, HostTensor, Manifest
from wscc.ir.streams.program import Streams
from wscc.ir.types import Layout
from wscc.machine.wafer import MAX_DIES
from wscc.strategy import POLICIES, stage_axes

FILE: Final = "manifest.json"
LOSS: Final = "loss"
_INITS: Final = ("zeros", "ones", "normal")


def check_edges(manifest: Manifest, edges: Mapping[str, NDArray[Any]]) -> Iterator[str]:
    """The mistakes of the file of edges: an array of another name, type or shape than the manifest has. What blocks say
    of rows and columns is clipped where it is read."""
    due = {t.name: t for t in manifest.tensors if t.kind is Kind.EDGES}
    if due.keys() != edges.keys():
        yield f"it has {len(edges)} arrays, not the {len(due)} arrays of edges of manifest.json"
        return
    for name, t in due.items():
        found, dtype = edges[name], np.float64 if t.type.dtype.is_float else np.int32
        if found.dtype != dtype or found.shape != t.type.shape or t.extents:
            yield f"array `{name[:40]}` is {found.dtype}{list(found.shape)}, not {t.type}"


def check_host(streams: Streams, manifest: Manifest) -> None:
    """Raise `Mistake` where dies, axes, stages or arrays of a manifest do not fit one another or the arena."""
    for words in _mistakes(streams, manifest):
        raise Mistake(FILE, words)


def _mistakes(streams: Streams, m: Manifest) -> Iterator[str]:
    """The first mistake of each part; later parts rely on those before."""
    yield from _wafer(m)
    yield from _strategy(m)
    yield from _dies(streams, m)
    yield from _names(m)
    for n, t in enumerate(m.tensors):
        for words in _tensor(t, m, streams.arena_bytes):
            yield f"`program.host.tensors[{n}]` (`{t.name}`): {words}"


def _wafer(m: Manifest) -> Iterator[str]:
    count = m.rows * m.columns
    if count > MAX_DIES:
        yield f"`program.host.rows` and `columns` make {count:,} dies: {MAX_DIES:,} at most"
    if m.hub is not None and (m.planes or (m.rows > 1 and m.network is None)):
        yield "`program.host` is of a node, and has more than one row of dies"
    leaves = m.network.leaves if m.network else None
    if leaves is not None and (leaves.nodes >= m.rows or (not leaves.nodes and m.columns < 2)):
        yield "`program.host.network.leaves` are one, and no network of leaves has fewer than two"
    if m.planes and m.rows % m.planes:
        yield f"`program.host.planes` is {m.planes}, which does not divide {m.rows} rows"
    if any(d >= count for d in m.dead_dies) or any(d >= count for link in m.dead_links for d in link):
        yield f"a dead die or link is not on the mesh of {m.rows} x {m.columns} dies"


def _strategy(m: Manifest) -> Iterator[str]:
    sizes = dict(m.axes)
    if unknown := [a for a, _ in m.axes if a not in POLICIES]:
        yield f"`program.host.axes` has `{unknown[0][:40]}`, not {', '.join(POLICIES)}"
    if len(sizes) < len(m.axes):
        yield "`program.host.axes` has an axis twice"
    if m.stages != prod(sizes[a] for a in stage_axes(sizes)):
        yield f"`program.host.stages` is {m.stages}, not the degree of the axis that cuts stages"


def _dies(streams: Streams, m: Manifest) -> Iterator[str]:
    count = prod(n for _, n in m.axes)
    if not len(streams.dies) == len(streams.roles) == count:
        held = f"`program.dies` has {len(streams.dies):,} and `program.roles` {len(streams.roles):,}"
        yield f"the axes make {count:,} dies, {held}"
    used = set(streams.dies)
    if len(used) < len(streams.dies) or max(used) >= m.rows * m.columns or used & set(m.dead_dies):
        yield "`program.dies` has a die that is dead, off the mesh, or used twice"


def _names(m: Manifest) -> Iterator[str]:
    names = {t.name for t in m.tensors}
    if len(names) < len(m.tensors):
        yield "two of `program.host.tensors` have one name"
    if LOSS not in names or not any(t.kind is Kind.INPUT for t in m.tensors):
        yield "`program.host.tensors` has no loss or no input"
    yield from _relations(m)


def _relations(m: Manifest) -> Iterator[str]:
    """Every parameter has one gradient, of its shape; and what is related to an array is of its shape."""
    by_name = {t.name: t for t in m.tensors}
    for t in m.tensors:
        other = by_name.get(t.relation.array) if t.relation else None
        if t.relation and (other is None or _elements(other) != _elements(t)):
            yield f"`{t.name}` is the {t.relation.role} of `{t.relation.array[:40]}`, which has not its shape"
    gradients = [t for t in m.tensors if t.kind is Kind.GRAD and not t.is_a(Role.PARTIAL)]
    owners = [t.relation.array for t in gradients if t.relation and t.is_a(Role.GRADIENT)]
    params = [t.name for t in m.tensors if t.kind is Kind.PARAM]
    if sorted(owners) != sorted(params) or len(owners) != len(gradients):
        yield "`program.host.tensors` does not have one gradient for each parameter"


def _elements(t: HostTensor) -> tuple[tuple[int, ...], ...]:
    return t.extents, t.type.shape, t.shape


def _tensor(t: HostTensor, m: Manifest, arena_bytes: int) -> Iterator[str]:
    sizes, shape = dict(m.axes), t.type.shape
    layout = t.type.layout or Layout.whole(len(shape))
    if t.init.kind not in _INITS:
        yield f"`init.kind` is `{t.init.kind[:40]}`, not {', '.join(_INITS)}"
    axes = [*layout.axes, *(a for a, _ in layout.partial)]
    if len(layout.dims) != len(shape) or len(set(axes)) < len(axes) or not set(axes) <= set(sizes):
        yield "`type.layout` has another rank than the shape, or an axis that is unknown or twice there"
        return
    if unsplit := [d for d in t.zigzag if d >= len(shape) or not layout.dims[d]]:
        yield f"`zigzag` has dimension {unsplit[0]}, which no axis splits"
        return
    for d, (n, split) in enumerate(zip(shape, layout.dims, strict=True)):
        pieces = prod(sizes[a] for a in split)
        if d in t.zigzag:
            pieces = lcm(pieces, 2 * sizes[split[0]])
        if n % pieces:
            yield f"`type.shape` has {n:,}, which {pieces:,} pieces do not divide"
    if len(t.shape) != len(shape) or any(map(gt, t.shape, shape)):
        yield f"`unpadded` is {list(t.shape)}, which is no part of the shape"
    if t.filler and (t.filler != IGNORED or t.kind is not Kind.INPUT or t.type.dtype.is_float):
        yield f"`filler` is {t.filler}, and pads hold 0, or {IGNORED} in an input of integers"
    size = prod(t.type.local_shape(sizes)) * t.type.dtype.size
    yield from _parts(t, m, size, arena_bytes)


def _parts(t: HostTensor, m: Manifest, size: int, arena_bytes: int) -> Iterator[str]:
    """Mistakes of the parts of an array, whose elements have `size` bytes on a die."""
    count = prod(t.extents)
    for n, p in enumerate(t.parts):
        end = p.address + (p.count - 1) * p.stride + size
        if p.stage >= m.stages or p.first + p.count > count:
            yield f"`parts[{n}]` is of stage {p.stage} of {m.stages}, or of elements beyond the {count:,} of the array"
        elif (
            p.address % t.type.dtype.size or p.stride % t.type.dtype.size or (p.count > 1 and p.stride < size)
        ):
            yield f"`parts[{n}]`: elements of {size:,} bytes do not lie at {p.address:,} in steps of {p.stride:,}"
        elif end > arena_bytes:
            yield f"`parts[{n}]` ends at {end:,}, and the arena has {arena_bytes:,} bytes"
    if not _cover(t.parts, count):
        yield f"`parts` do not hold all of {count:,} elements"


def _cover(parts: tuple[HostPart, ...], count: int) -> bool:
    end = 0
    for p in sorted(parts, key=lambda p: p.first):
        if p.first > end:
            return False
        end = max(end, p.first + p.count)
    return end == count
