"""Dimensions of arrays and values that are one and the same size: those that share a factor, or an argument, and the
nodes of a graph on both sides of its edges."""

from __future__ import annotations

from collections.abc import Iterator

from wscc.disjoint_sets import DisjointSets
from wscc.ir.module import Module
from wscc.ir.op import Reshard
from wscc.ir.step import calls

# (procedure, value, dimension); of an array, the procedure is "".
Dim = tuple[str, str, int]


def equal_dims(module: Module) -> DisjointSets[Dim]:
    """The classes of equal dimensions of a module before or after sharding; `classes[dim]` is the root of a class.

    The equivalence is transitive, through any number of ops and calls. All calls and procedures are taken at once, in
    no direction: some values have a dimension only by their uses.
    """
    classes: DisjointSets[Dim] = DisjointSets()
    for dims in _equal(module):
        classes.union(*dims)
    return classes


def _equal(module: Module) -> Iterator[list[Dim]]:
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
            yield from dims_by_factor.values()
            if op.definition.listed is not None:
                of_nodes = [v for v, _ in op.terms() if v != op.operands[op.definition.listed]]
                yield [(p.name, v.name, 1) for v in of_nodes]
    for call, _ in calls(module.step):
        p = module.procedure(call.procedure)
        for v, ref in zip(p.arguments, call.args, strict=True):
            yield from ([("", ref.array, d), (p.name, v.name, d)] for d in range(len(v.type.shape)))
