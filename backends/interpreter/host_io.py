"""Reads and writes of whole arrays by the host, cut into the shards that the dies hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wscc.backends.interpreter.machine import Machine
from wscc.diagnostics import Code, fail
from wscc.host.init import initial, initial_slice
from wscc.ir.array import Kind
from wscc.ir.streams.artifact import HostTensor, Manifest
from wscc.ir.types import Layout, Reduction
from wscc.ir.zigzag import order

Tensor = NDArray[np.generic]
Slices = tuple[slice, ...]

# Kinds of array that the host fills before the first step; the rest is written by the program itself.
FILLED: Final = (Kind.PARAM, Kind.STATE, Kind.SCALAR, Kind.STATISTIC)


def tensor(manifest: Manifest, name: str) -> HostTensor:
    """The host's view of an array. `CompileError` W501 if the program has none of that name."""
    for t in manifest.tensors:
        if t.name == name:
            return t
    raise fail(Code.ARTIFACT, f"the program has no array `{name}`")


def initialise(machine: Machine, seed: int) -> None:
    """Fill weights from the seed, optimizer state and scalars by their `Init`, shard by shard."""
    manifest = machine.manifest
    for t in manifest.tensors:
        if t.kind not in FILLED:
            continue
        for index in np.ndindex(*t.extents):
            parts: dict[tuple[int, ...], Tensor] = {}
            orders = _orders(t, manifest)
            for die, address, slices, has_value in _places(t, index, manifest):
                key = _key(slices)
                if key not in parts:
                    parts[key] = _initial(t, index, seed, slices, orders)
                machine.store(die, address, parts[key] if has_value else _neutral(t, parts[key]))


def write_inputs(machine: Machine, batch: Mapping[str, Tensor]) -> None:
    """Write the inputs of a step, each [*extents, *shape]. Errors as for `write`."""
    for name, whole in batch.items():
        for index in np.ndindex(*tensor(machine.manifest, name).extents):
            write(machine, name, index, whole[index])


def write(machine: Machine, name: str, index: tuple[int, ...], value: Tensor) -> None:
    """Write `value`, of the array's shape without pads, to its element `index`: each die gets its shard, rounded to
    the array's element type.

    Of a partial array the dies at coordinate 0 get the value, the others the neutral element. `CompileError` W501
    if there is no such array or element, or the shape is another.
    """
    t = tensor(machine.manifest, name)
    if value.shape != t.shape:
        raise fail(Code.ARTIFACT, f"`{name}` is {list(t.shape)}, not {list(value.shape)}")
    value = _permuted(_padded(value, t.type.shape, t.filler), _orders(t, machine.manifest))
    for die, address, slices, has_value in _places(t, index, machine.manifest):
        part = value[slices].astype(t.type.dtype.numpy)
        data = t.kind is Kind.INPUT
        machine.store(die, address, part if has_value else _neutral(t, part), data=data)


def write_edges(machine: Machine, edges: Mapping[str, Tensor]) -> None:
    """Give each die its blocks of edges, by the name of their array."""
    for name, whole in edges.items():
        write(machine, name, (), whole)


def read(machine: Machine, name: str, index: tuple[int, ...] = ()) -> Tensor:
    """The whole value of an element, of the array's shape without pads: shards joined, partial ones summed (or their
    maximum).

    `CompileError` W504 if two dies hold different replicas, or a pad is not zero, which never happens in a right
    program.
    """
    t = tensor(machine.manifest, name)
    layout = _layout(t)
    whole = np.zeros(t.type.shape, t.type.dtype.numpy)
    sizes = dict(machine.manifest.axes)
    local = t.type.local_shape(sizes)
    shards: dict[tuple[object, ...], Tensor] = {}
    for die, address, slices, _ in _places(t, index, machine.manifest):
        part = machine.load(die, address, local, t.type.dtype.numpy)
        coordinates = _coordinates(die, machine.manifest)
        key = (_key(slices), *(coordinates[a] for a, _ in layout.partial))
        if key not in shards:
            first = not any(k[0] == key[0] for k in shards)
            whole[slices] = part if first else _reduced(layout, whole[slices], part)
        elif shards[key].tobytes() != part.tobytes():
            die_name = machine.die_name(die)
            raise fail(Code.CHECK, f"die {die_name} holds another replica of `{name}` than others")
        shards.setdefault(key, part)
    whole = _permuted(whole, {d: np.argsort(o) for d, o in _orders(t, machine.manifest).items()})
    value = whole[tuple(slice(0, n) for n in t.shape)]
    # Where training has diverged, zeros times infinity are none, and others say so.
    if np.count_nonzero(whole) > np.count_nonzero(value) and np.isfinite(value).all():
        raise fail(Code.CHECK, f"a pad of `{name}` is not zero")
    return value


def _padded(value: Tensor, shape: tuple[int, ...], filler: int = 0) -> Tensor:
    """`value` with zeros, or another `filler`, behind it in each dimension, up to `shape`."""
    if value.shape == shape:
        return value
    whole = np.full(shape, filler, value.dtype)
    whole[tuple(slice(0, n) for n in value.shape)] = value
    return whole


class Snapshot:
    """All that a step hands on to the next one, as it is now: weights, optimizer state and scalars, on every die.
    Whatever steps run until `restore`, it leaves no trace of them in what later steps compute."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._shards = [*_kept_shards(machine)]

    def restore(self) -> None:
        """Put every bit of it back."""
        for die, address, shard in self._shards:
            self._machine.store(die, address, shard)


def _kept_shards(machine: Machine) -> Iterator[tuple[int, int, Tensor]]:
    """(logical die, address, a copy) of every shard of the arrays that the program does not make anew in each step."""
    manifest = machine.manifest
    for t in manifest.tensors:
        if t.kind in FILLED:
            local = t.type.local_shape(dict(manifest.axes))
            for index in np.ndindex(*t.extents):
                for die, address, _, _ in _places(t, index, manifest):
                    yield die, address, machine.load(die, address, local, t.type.dtype.numpy)


def _orders(t: HostTensor, manifest: Manifest) -> dict[int, NDArray[np.intp]]:
    """The permutation of the indices of each dimension that is stored in zigzag order."""
    sizes, dims = dict(manifest.axes), _layout(t).dims
    return {d: np.array(order(t.type.shape[d], sizes[dims[d][0]])) for d in t.zigzag}


def _permuted(value: Tensor, orders: dict[int, NDArray[np.intp]]) -> Tensor:
    """The array with the permutations of `orders`, by dimension, applied."""
    for d, permutation in orders.items():
        value = value.take(permutation, axis=d)
    return value


def _initial(
    t: HostTensor, index: tuple[int, ...], seed: int, slices: Slices, orders: dict[int, NDArray[np.intp]]
) -> Tensor:
    """The initial value of one shard of an element."""
    if orders:
        whole = initial(t.name, index, t.shape, t.init, seed, t.type.dtype)
        return _permuted(_padded(whole, t.type.shape), orders)[slices]
    part = initial_slice(t.name, index, t.shape, t.init, seed, t.type.dtype, slices)
    return _padded(part, tuple(s.stop - s.start for s in slices))


def addresses(t: HostTensor, index: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """(stage, address in bytes) of each copy of an element; elements lie in row-major order of the extents.

    `CompileError` W501 if the array has no such element.
    """
    if len(index) != len(t.extents) or any(not 0 <= i < n for i, n in zip(index, t.extents, strict=True)):
        raise fail(Code.ARTIFACT, f"`{t.name}` has extents {list(t.extents)}, no element {list(index)}")
    flat = sum(i * prod(t.extents[d + 1 :]) for d, i in enumerate(index))
    for part in t.parts:
        if part.first <= flat < part.first + part.count:
            yield part.stage, part.address + (flat - part.first) * part.stride


def dies_of(manifest: Manifest, stage: int) -> range:
    """The logical dies of a stage; all if it is -1."""
    dies = prod(n for _, n in manifest.axes)
    each = dies // manifest.stages
    return range(dies) if stage < 0 else range(stage * each, (stage + 1) * each)


def _layout(t: HostTensor) -> Layout:
    return t.type.layout or Layout.whole(len(t.type.shape))


def _places(
    t: HostTensor, index: tuple[int, ...], manifest: Manifest
) -> Iterator[tuple[int, int, Slices, bool]]:
    """(logical die, address, slices of the array, True if it holds the value of a partial array) for each shard."""
    layout, sizes = _layout(t), dict(manifest.axes)
    local = t.type.local_shape(sizes)
    holders = [(die, address) for stage, address in addresses(t, index) for die in dies_of(manifest, stage)]
    for die, address in holders:
        coordinates = _coordinates(die, manifest)
        slices = []
        for n, axes in zip(local, layout.dims, strict=True):
            block = 0
            for axis in axes:
                block = block * sizes[axis] + coordinates[axis]
            slices.append(slice(block * n, (block + 1) * n))
        yield die, address, tuple(slices), all(coordinates[axis] == 0 for axis, _ in layout.partial)


def _coordinates(die: int, manifest: Manifest) -> dict[str, int]:
    """The coordinate of a logical die on each axis; dies are numbered row-major over the axes."""
    coordinates = {}
    for axis, n in reversed(manifest.axes):
        die, coordinates[axis] = divmod(die, n)
    return coordinates


def _key(slices: Slices) -> tuple[int, ...]:
    """The first index of each slice, which identifies a shard."""
    return tuple(s.start for s in slices)


def _neutral(t: HostTensor, part: Tensor) -> Tensor:
    """The neutral element of the array's reduction, of the shape of `part`; an array has one kind of it."""
    kinds = {kind for _, kind in _layout(t).partial}
    return np.full_like(part, -np.inf if kinds == {Reduction.MAX} else 0)


def _reduced(layout: Layout, a: Tensor, b: Tensor) -> Tensor:
    """The sum of two partial shards, or their maximum."""
    if all(kind is Reduction.MAX for _, kind in layout.partial):
        return np.maximum(a, b)
    return np.add(a, b)
