"""Dimensions of a program's values that are positions of a sequence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
            if op.definition.makes_positions:
                yield p.name, op.results[0].name, SEQUENCE


def token_dims(module: Module) -> dict[str, int | None]:
    """By axis that splits tokens, the dimension of inputs that it splits: of those of its policy, the first that its
    degree and those before it divide in each input that has it; None if there is none. Inputs without it are whole."""
    shapes = [a.type.shape for a in module.arrays if a.kind is Kind.INPUT]
    taken: dict[int, int] = {}
    found: dict[str, int | None] = {}
    for axis, degree in module.axes:
        if not policy(axis).seed or not shapes:
            continue
        found[axis] = next(
            (d for d in policy(axis).seed if _divides(shapes, d, taken.get(d, 1) * degree)), None
        )
        if (dim := found[axis]) is not None:
            taken[dim] = taken.get(dim, 1) * degree
    return found


def _divides(shapes: list[tuple[int, ...]], dim: int, degree: int) -> bool:
    sizes = [shape[dim] for shape in shapes if dim < len(shape)]
    return bool(sizes) and all(n % degree == 0 for n in sizes)


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
