"""The pass that folds additions (of a bias, or of a skip connection) into the contraction before them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from wscc.analysis.uses import users
from wscc.ir.module import Module, Procedure
from wscc.ir.op import GraphStmt, Op
from wscc.ir.rule import Rule
from wscc.passes.base import Fact, Pass


@dataclass(frozen=True, slots=True)
class Fuse(Pass):
    """Replace a `matmul` and the `add` that alone reads its result by one `matmul_add`, which adds in place.

    The contracted factors become whole (`!`). A product that is split or streamed along a contracted factor stays as it
    is, since a bias must not be added to each of its partial sums.

    Before: %u = matmul(%x, %w) {b s k, k n -> b s n}; %y = add(%u, %c) {b s n, n -> b s n}
    After:  %y = matmul_add(%x, %w, %c) {b s k!, k! n, n -> b s n}
    """

    name: ClassVar[str] = "fuse"
    requires: ClassVar[frozenset[Fact]] = frozenset({Fact.PARTITIONED})

    def run(self, module: Module) -> Module:
        return module.with_(procedures=tuple(_fused(p) for p in module.procedures))


def _fused(procedure: Procedure) -> Procedure:
    products = _foldable_products(procedure)
    fused: set[str] = set()
    body: list[GraphStmt] = []
    for stmt in procedure.statements:
        i = next((i for i, v in enumerate(stmt.operands) if v.name in products), None)
        if isinstance(stmt, Op) and i is not None and _folds(products[stmt.operands[i].name], stmt):
            product = products[stmt.operands[i].name]
            fused.add(product.results[0].name)
            stmt = _matmul_add(product, stmt, i)
        body.append(stmt)
    if not fused:
        return procedure
    return replace(procedure, body=tuple(stmt for stmt in body if stmt.results[0].name not in fused))


def _foldable_products(procedure: Procedure) -> dict[str, Op]:
    """By result, the foldable products whose result one statement alone reads."""
    readers, returned = users(procedure.statements), {o.value.name for o in procedure.outputs}
    return {
        name: op
        for op in procedure.ops
        if (name := op.results[0].name) not in returned
        and len(readers.get(name, ())) == 1
        and _is_foldable(op)
    }


def _folds(product: Op, add: Op) -> bool:
    """Whether `add` is an addition whose result has the rank and type of the product."""
    term, total = product.results[0].type, add.results[0].type
    return add.kind == "add" and len(term.shape) == len(total.shape) and term.dtype is total.dtype


def _is_foldable(op: Op) -> bool:
    """Whether the op is a complete product with no contracted factor that is split or streamed."""
    if op.kind != "matmul":
        return False
    layout = op.results[0].type.layout
    if layout is not None and layout.partial:
        return False
    return op.stream is None or (not op.stream.moving_out and op.stream.factor in op.rule.outs[0])


def _matmul_add(product: Op, add: Op, i: int) -> Op:
    """The op that replaces `product` and `add`, of which operand `i` is the product."""
    out = product.rule.outs[0]
    renaming = dict(zip(add.rule.outs[0], out, strict=True))
    term = tuple(renaming[f] for f in add.rule.ins[1 - i])
    rule = Rule(
        (*product.rule.ins, term),
        (out,),
        product.rule.whole | frozenset(product.rule.contracted),
        product.rule.streamed,
        product.rule.indexed,
    )
    operands = (*product.operands, add.operands[1 - i])
    return replace(product, kind="matmul_add", operands=operands, results=add.results, rule=rule)
