"""Dimensions of a program's values that are positions of a sequence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wscc.analysis.equal_dims import equal_dims
from wscc.ir.array import Kind
from wscc.ir.module import Module, Procedure
from wscc.ir.op import Op, Reshard, Value
from wscc.strategy import SEQUENCE

# The dimensions that are positions, by value of a procedure or by array.
Positions = dict[str, frozenset[int]]


@dataclass(frozen=True, slots=True)
class SequenceDims:
    """The sequence dimensions of all values by procedure, and of all arrays, among them parameters that are learned
    positions.

    A dimension that is equal to the positions of an input is a sequence dimension as well.
    """

    values: dict[str, Positions]
    arrays: Positions

    @staticmethod
    def of(module: Module) -> SequenceDims:
        """The sequence dimensions of a module before or after sharding."""
        classes = equal_dims(module)
        roots = {classes["", a.name, SEQUENCE] for a in module.arrays if a.kind is Kind.INPUT}

        def positions(procedure: str, value: str, rank: int) -> frozenset[int]:
            return frozenset(d for d in range(rank) if classes[procedure, value, d] in roots)

        return SequenceDims(
            {
                p.name: {v.name: positions(p.name, v.name, len(v.type.shape)) for v in _values(p)}
                for p in module.procedures
            },
            {a.name: positions("", a.name, len(a.type.shape)) for a in module.arrays},
        )


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
