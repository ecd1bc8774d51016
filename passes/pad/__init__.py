"""Pads of zeros where a degree does not divide what its axis should split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Final

from wscc.analysis.equal_dims import Dim, equal_dims
from wscc.analysis.sequence_dims import token_dims
from wscc.ir.array import Array
from wscc.ir.module import Module, Procedure
from wscc.ir.op import Attr, Op, Value
from wscc.passes.base import Fact, Pass
from wscc.passes.pad.classes import paddable, paddable_positions
from wscc.strategy import SEQUENCE, Degrees, policy, store

# The most that a dimension grows so that axes divide it which share out its storage alone: its pads are work added,
# and what is won is an operand that travels in chunks of rows instead of columns.
_STORAGE_LIMIT: Final = Fraction(1, 64)


@dataclass(frozen=True, slots=True)
class Pad(Pass):
    """Round up dimensions of weights that the degrees of the axes do not divide.

    A class of equal dimensions, from array to array through all ops (`equal_dims`), grows as a whole, if zeros in its
    pads stay zeros in every forward op that has it (`zeros`), so that they do in every gradient and update. That holds
    for the vocabulary, the width between two products, and heads with their keys and values; not for what a norm
    counts. `limit` is the most that it may grow, in percent of its size; beyond it, the dimension stays as it is.

    Positions that the model makes (a class token and its patches) grow likewise for the axes that split them, if their
    pads are seen nowhere (`unseen`); keys in pads are hidden by `limit`.

    The host fills and reads the model's part of an array, `Array.unpadded`.

    Before: array %wte : f32[50257,768] kind=param
    After:  array %wte : f32[50258,768] kind=param unpadded=(50257, 768)
    """

    name: ClassVar[str] = "pad"
    requires: ClassVar[frozenset[Fact]] = frozenset({Fact.DIFFERENTIATED})
    provides: ClassVar[frozenset[Fact]] = frozenset({Fact.PADDED})

    limit: int = 25

    def run(self, module: Module) -> Module:
        limit = Fraction(self.limit, 100)
        of_weights = [*_degrees(module.axes, module.train.zero, limit)]
        of_positions = [*_position_degrees(module, limit)]
        if not of_weights and not of_positions:
            return module
        classes = equal_dims(module)
        found = [(of_weights, paddable(module, classes)), (of_positions, paddable_positions(module, classes))]
        grown = {
            root: (size, padded)
            for degrees, sizes in found
            for root, size in sizes.items()
            if (padded := _rounded_up(size, degrees)) > size
        }
        if not grown:
            return module
        sizes = {dim: grown[classes[dim]] for dim in [*classes] if classes[dim] in grown}
        return _Rewriter(sizes).module(module)


def _degrees(axes: Degrees, zero: int, limit: Fraction) -> Iterator[tuple[int, Fraction]]:
    """The degree of each axis that a dimension of a weight should divide by, and the most that it may grow for that:
    first the axes that split the work, then those that shard what is stored."""
    yield from ((n, limit) for a, n in axes if policy(a).splits == "weights")
    yield from ((n, min(limit, _STORAGE_LIMIT)) for a, n in axes if store(a, zero) == "shard")


def _position_degrees(module: Module, limit: Fraction) -> Iterator[tuple[int, Fraction]]:
    """The same for positions: first the axes that split those of inputs, then those that split the positions of norms
    beside weights."""
    dims = token_dims(module)
    yield from ((module.sizes[a], limit) for a, dim in dims.items() if dim == SEQUENCE)
    yield from ((n, min(limit, _STORAGE_LIMIT)) for a, n in module.axes if policy(a).splits == "weights")


def _rounded_up(size: int, degrees: list[tuple[int, Fraction]]) -> int:
    """The least size of at least `size` that all degrees together divide, but those for which it would grow too far."""
    padded, multiple = size, 1
    for degree, limit in degrees:
        larger = -(-size // (multiple * degree)) * multiple * degree
        if larger - size <= limit * size:
            padded, multiple = larger, multiple * degree
    return padded


class _Rewriter:
    """Writer of a module in which some dimensions have grown: `grown` has the size of each before and after."""

    def __init__(self, grown: dict[Dim, tuple[int, int]]) -> None:
        self.grown = grown

    def module(self, module: Module) -> Module:
        return module.with_(
            arrays=tuple(map(self._array, module.arrays)),
            procedures=tuple(map(self._procedure, module.procedures)),
        )

    def _shape(self, procedure: str, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.grown.get((procedure, name, d), (n, n))[1] for d, n in enumerate(shape))

    def _array(self, a: Array) -> Array:
        shape = self._shape("", a.name, a.type.shape)
        if shape == a.type.shape:
            return a
        return replace(a, type=replace(a.type, shape=shape), unpadded=a.type.shape)

    def _procedure(self, p: Procedure) -> Procedure:
        def padded(v: Value) -> Value:
            return replace(v, type=replace(v.type, shape=self._shape(p.name, v.name, v.type.shape)))

        return replace(
            p,
            inputs=tuple(map(padded, p.inputs)),
            outputs=tuple(replace(o, value=padded(o.value)) for o in p.outputs),
            body=tuple(
                replace(
                    op.with_operands(padded),
                    results=tuple(map(padded, op.results)),
                    attrs=self._attrs(p.name, op),
                )
                for op in p.ops
            ),
        )

    def _attrs(self, procedure: str, op: Op) -> tuple[tuple[str, Attr], ...]:
        """The attributes of an op; of one that knows pads, with the number of columns or keys that are none."""
        if op.definition.limits is None:
            return op.attrs
        place, dim = op.definition.limits
        value = (*op.operands, *op.results)[place]
        size, _ = self.grown.get((procedure, value.name, dim % len(value.type.shape)), (0, 0))
        if not size:
            return op.attrs
        options = {name: kind() for name, kind in op.definition.options.items()}
        names = [*op.definition.attrs, *options]
        given = {**options, **dict(op.attrs), "limit": size}
        return tuple((name, given[name]) for name in names)
