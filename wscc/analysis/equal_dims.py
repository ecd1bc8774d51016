"""Dimensions of arrays and values that are one and the same size: those that share a factor, or an argument, and the
nodes of a graph on both sides of its edges."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from wscc.disjoint_sets import DisjointSets
from wscc.ir.module import Module, Procedure
from wscc.ir.op import Op, Reshard
from wscc.ir.step import calls

# (procedure, value, dimension); of an array, the procedure is "".
Dim = tuple[str, str, int]


def _never(procedure: Procedure, op: Op, factor: str) -> bool:
    return False


def equal_dims(module: Module, apart: Callable[[Procedure, Op, str], bool] = _never) -> DisjointSets[Dim]:
    """The classes of equal dimensions of a module before or after sharding; `classes[dim]` is the root of a class.

    The equivalence is transitive, through any number of ops and calls. All calls and procedures are taken at once, in
    no direction: some values have a dimension only by their uses. `apart` says of which factors an op links nothing.
    """
    classes: DisjointSets[Dim] = DisjointSets()
    for dims in _equal(module, apart):
        classes.union(*dims)
    return classes


def _equal(module: Module, apart: Callable[[Procedure, Op, str], bool]) -> Iterator[list[Dim]]:
    """Sets of equal dimensions: of one factor of an op, of operand and result of a reshard, of an array and the
    argument that it is bound to."""
    for p in module.procedures:
        for op in p.statements:
            if isinstance(op, Reshard):
                names = [op.operand.name, op.result.name]
                yield from ([(p.name, n, d) for n in names] for d in range(len(op.result.type.shape)))
                continue
            dims_by_factor: dict[str, list[Dim]] = {}
            for v, term in op.terms():
                for d, f in enumerate(term):
                    dims_by_factor.setdefault(f, []).append((p.name, v.name, d))
            yield from (dims for f, dims in dims_by_factor.items() if not apart(p, op, f))
            if op.definition.listed is not None:
                of_nodes = [
                    v for v, term in op.terms() if not set(term) & set(op.rule.ins[op.definition.listed])
                ]
                yield [(p.name, v.name, 1) for v in of_nodes]
    for call, _ in calls(module.step):
        p = module.procedure(call.procedure)
        for v, ref in zip(p.arguments, call.args, strict=True):
            yield from ([("", ref.array, d), (p.name, v.name, d)] for d in range(len(v.type.shape)))
