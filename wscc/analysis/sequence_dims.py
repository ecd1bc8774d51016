"""Dimensions of a program's values that are positions of a sequence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from wscc.analysis.equal_dims import Dim, equal_dims
from wscc.ir.array import Kind
from wscc.ir.module import Module, Procedure
from wscc.ir.op import Op, Reshard, Value
from wscc.strategy import SEQUENCE, policy

# The dimensions that are positions, by value of a procedure or by array.
Positions = dict[str, frozenset[int]]


@dataclass(frozen=True, slots=True)
class SequenceDims:
    """The sequence dimensions of all values by procedure, and of all arrays, among them parameters that are learned
    positions.

    A dimension that is equal to the positions of an input, or of an op that makes positions of its own, is a sequence
    dimension as well.
    """

    values: dict[str, Positions]
    arrays: Positions

    @staticmethod
    def of(module: Module) -> SequenceDims:
        """The sequence dimensions of a module before or after sharding."""
        classes = equal_dims(module)
        roots = {classes["", a.name, SEQUENCE] for a in module.arrays if a.kind is Kind.INPUT}
        roots |= {classes[dim] for dim in made_positions(module)}

        def positions(procedure: str, value: str, rank: int) -> frozenset[int]:
            return frozenset(d for d in range(rank) if classes[procedure, value, d] in roots)

        return SequenceDims(
            {
                p.name: {v.name: positions(p.name, v.name, len(v.type.shape)) for v in _values(p)}
                for p in module.procedures
            },
            {a.name: positions("", a.name, len(a.type.shape)) for a in module.arrays},
        )


def made_positions(module: Module) -> Iterator[Dim]:
    """The dimension of each result whose positions the op itself makes."""
    for p in module.procedures:
        for op in p.ops:
            if makes_positions(op):
                yield p.name, op.results[0].name, SEQUENCE


def makes_positions(op: Op) -> bool:
    """Whether the positions of its result are the op's own: one that joins along another dimension makes none."""
    return op.definition.makes_positions and op.attr("dim") == SEQUENCE


def token_dims(module: Module) -> dict[str, int | None]:
    """By axis that splits tokens, the dimension of inputs that it splits: of those of its policy, the first that its
    degree and those before it divide in each input that has it; None if there is none. Inputs without it are whole."""
    return TokenDims.of(module).axes


# The size of each dimension of each input, by its name, as it is and as it grows.
_Sizes = dict[tuple[str, int], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class TokenDims:
    """The dimension of inputs that each axis of tokens splits, as `token_dims` says, where dimensions may grow by pads:
    `sizes` has each dimension of each input as it is and as it grows, by name of the input."""

    axes: dict[str, int | None]
    sizes: _Sizes

    @staticmethod
    def of(module: Module, limit: Fraction = Fraction(0)) -> TokenDims:
        """An axis that divides no dimension takes the first one of its policy that divides if no input grows by more
        than `limit` of its size; one that has pads grows no further."""
        inputs = [a for a in module.arrays if a.kind is Kind.INPUT]
        sizes = {(a.name, d): (n, n) for a in inputs for d, n in enumerate(a.type.shape)}
        most = {a.name: Fraction(0) if a.unpadded else limit for a in inputs}
        axes: dict[str, int | None] = {}
        taken: dict[int, int] = {}
        for axis, degree in module.axes if inputs else ():
            if policy(axis).seed:
                axes[axis] = None
                multiples = {d: taken.get(d, 1) * degree for d in policy(axis).seed}
                for limits, d in product(({}, most), multiples):
                    if axes[axis] is None and (grown := _grown(sizes, d, multiples[d], limits)):
                        axes[axis], taken[d] = d, multiples[d]
                        sizes |= grown
        return TokenDims(axes, sizes)


def _grown(sizes: _Sizes, dim: int, multiple: int, most: dict[str, Fraction]) -> _Sizes:
    """The sizes of a dimension where each grows to a multiple; none if no input has it, or one may not grow so."""
    grown = {(a, d): (n, -(-now // multiple) * multiple) for (a, d), (n, now) in sizes.items() if d == dim}
    fits = (
        padded == sizes[key][1] or padded - n <= most.get(key[0], 0) * n for key, (n, padded) in grown.items()
    )
    return grown if all(fits) else {}


def _values(procedure: Procedure) -> Iterator[Value]:
    yield from procedure.inputs
    for stmt in procedure.statements:
        yield from stmt.results


def sequence_factors(op: Op, positions: Positions) -> set[str]:
    """The factors of an op that are positions of a sequence."""
    return {t[d] for v, t in op.terms() for d in positions[v.name]}


def cuts_sequence(reshard: Reshard, positions: Positions) -> bool:
    """Whether a reshard splits or joins a sequence dimension."""
    dims = positions[reshard.operand.name]
    return reshard.dim in dims or reshard.to in dims
