"""Dimensions of a program's values that are positions of a sequence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from networkx.utils import UnionFind

from wscc.ir.array import Kind
from wscc.ir.module import Module, Procedure
from wscc.ir.op import Op, Reshard, Value
from wscc.ir.step import calls
from wscc.strategy import SEQUENCE

# The dimensions that are positions, by value of a procedure or by array.
Positions = dict[str, frozenset[int]]
# (procedure, value, dimension); of an array, the procedure is "".
_Dim = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class SequenceDims:
    """The sequence dimensions of all values by procedure, and of all arrays, among them parameters that are learned
    positions.

    The equivalence is transitive: a dimension that shares a factor with the positions of an input, through any number
    of ops and calls, is a sequence dimension as well.
    """

    values: dict[str, Positions]
    arrays: Positions

    @staticmethod
    def of(module: Module) -> SequenceDims:
        """The sequence dimensions of a module before or after sharding.

        All calls and procedures are taken at once, in no direction: some values have positions only by their uses.
        """
        classes = UnionFind()
        for dims in _equal(module):
            classes.union(*dims)
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


def _equal(module: Module) -> Iterator[list[_Dim]]:
    """Sets of equal dimensions: of one factor of an op, of operand and result of a reshard, of an array and the
    argument that it is bound to."""
    for p in module.procedures:
        for op in p.statements:
            if isinstance(op, Reshard):
                names = [op.operand.name, op.result.name]
                yield from ([(p.name, n, d) for n in names] for d in range(len(op.result.type.shape)))
                continue
            dims_by_factor: dict[str, list[_Dim]] = {}
            for v, term in op.terms():
                for d, f in enumerate(term):
                    dims_by_factor.setdefault(f, []).append((p.name, v.name, d))
            yield from dims_by_factor.values()
    for call, _ in calls(module.step):
        p = module.procedure(call.procedure)
        for v, ref in zip(p.arguments, call.args, strict=True):
            yield from ([("", ref.array, d), (p.name, v.name, d)] for d in range(len(v.type.shape)))


def sequence_factors(op: Op, positions: Positions) -> set[str]:
    """The factors of an op that are positions of a sequence."""
    return {t[d] for v, t in op.terms() for d in positions[v.name]}


def cuts_sequence(reshard: Reshard, positions: Positions) -> bool:
    """Whether a reshard splits or joins a sequence dimension."""
    dims = positions[reshard.operand.name]
    return reshard.dim in dims or reshard.to in dims
