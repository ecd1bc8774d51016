"""Which dimensions of a program's values are positions of a sequence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from networkx.utils import UnionFind

from wscc.ir.array import Kind
from wscc.ir.module import Module, Procedure
from wscc.ir.op import Op, Reshard, Value
from wscc.ir.step import calls
from wscc.strategy import SEQUENCE

# By value of a procedure, its dimensions that are positions.
Positions = dict[str, frozenset[int]]
# A dimension of a value of a procedure, or of an array ("").
_Dim = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Sequences:
    """What shares a factor with the positions of an input, however far apart, is a position too; `weights` are the
    parameters that have such dimensions (learned positions, for one)."""

    values: dict[str, Positions]
    weights: frozenset[str]

    @staticmethod
    def of(module: Module) -> Sequences:
        """Of all calls and procedures at once, in no direction: a value may turn out to be one of positions only where
        it is used."""
        same = UnionFind()
        for dims in _equal(module):
            same.union(*dims)
        roots = {same["", a.name, SEQUENCE] for a in module.arrays if a.kind is Kind.INPUT}

        def positions(procedure: str, value: str, rank: int) -> frozenset[int]:
            return frozenset(d for d in range(rank) if same[procedure, value, d] in roots)

        return Sequences(
            {
                p.name: {v.name: positions(p.name, v.name, len(v.type.shape)) for v in _values(p)}
                for p in module.procedures
            },
            frozenset(
                a.name
                for a in module.arrays
                if a.kind is Kind.PARAM and positions("", a.name, len(a.type.shape))
            ),
        )


def _values(procedure: Procedure) -> Iterator[Value]:
    yield from procedure.inputs
    for stmt in procedure.statements:
        yield from stmt.results


def _equal(module: Module) -> Iterator[list[_Dim]]:
    """Dimensions of one factor of an op, those that a reshard keeps, those of an array and the argument bound to it."""
    for p in module.procedures:
        for op in p.statements:
            if isinstance(op, Reshard):
                names = [op.operand.name, op.result.name]
                yield from ([(p.name, n, d) for n in names] for d in range(len(op.result.type.shape)))
                continue
            factors: dict[str, list[_Dim]] = {}
            for v, term in op.terms():
                for d, f in enumerate(term):
                    factors.setdefault(f, []).append((p.name, v.name, d))
            yield from factors.values()
    for call, _ in calls(module.step):
        p = module.procedure(call.procedure)
        for v, ref in zip(p.arguments, call.args, strict=True):
            yield from ([("", ref.array, d), (p.name, v.name, d)] for d in range(len(v.type.shape)))


def factors(op: Op, positions: Positions) -> set[str]:
    """The factors of an op that are positions."""
    return {t[d] for v, t in op.terms() for d in positions[v.name]}


def across(reshard: Reshard, positions: Positions) -> bool:
    """Whether a reshard cuts or joins positions."""
    dims = positions[reshard.operand.name]
    return reshard.dim in dims or reshard.to in dims
