"""Fold additions into the contraction they follow: a bias, or a residual of the same shape."""

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
    """Make `matmul` and the `add` that alone reads its result one `matmul_add`, which adds in place.

    The contracted factors become whole: a partial product plus a bias is not part of any sum, so a product
    that is split or streamed along a contracted factor stays as it is.

    Before: %u = matmul(%x, %w) {b s k, k n -> b s n}; %y = add(%u, %c) {b s n, n -> b s n}
    After:  %y = matmul_add(%x, %w, %c) {b s k!, k! n, n -> b s n}
    """

    name: ClassVar[str] = "fuse"
    requires: ClassVar[frozenset[Fact]] = frozenset({Fact.PARTITIONED})

    def run(self, module: Module) -> Module:
        return module.with_(procedures=tuple(_fused(p) for p in module.procedures))


def _fused(procedure: Procedure) -> Procedure:
    reading, returned = users(procedure.statements), {o.value.name for o in procedure.outputs}
    made = {
        name: op
        for op in procedure.ops
        if (name := op.results[0].name) not in returned
        and len(reading.get(name, ())) == 1
        and _is_foldable(op)
    }
    gone: set[str] = set()
    body: list[GraphStmt] = []
    for op in procedure.statements:
        i = next((i for i, v in enumerate(op.operands) if v.name in made), None)
        if not isinstance(op, Op) or op.kind != "add" or i is None:
            body.append(op)
            continue
        product = made[op.operands[i].name]
        given, result = product.results[0].type, op.results[0].type
        if len(given.shape) != len(result.shape) or given.dtype is not result.dtype:
            body.append(op)
            continue
        gone.add(product.results[0].name)
        body.append(_joined(product, op, i))
    if not gone:
        return procedure
    return replace(procedure, body=tuple(op for op in body if op.results[0].name not in gone))


def _is_foldable(op: Op) -> bool:
    """A complete product whose contracted factors nothing splits or streams."""
    if op.kind != "matmul":
        return False
    layout = op.results[0].type.layout
    if layout is not None and layout.partial:
        return False
    return op.stream is None or (not op.stream.moving_out and op.stream.factor in op.rule.outs[0])


def _joined(product: Op, add: Op, i: int) -> Op:
    out = product.rule.outs[0]
    renamed = dict(zip(add.rule.outs[0], out, strict=True))
    term = tuple(renamed[f] for f in add.rule.ins[1 - i])
    rule = Rule(
        (*product.rule.ins, term),
        (out,),
        product.rule.whole | frozenset(product.rule.contracted),
        product.rule.streamed,
        product.rule.indexed,
    )
    operands = (*product.operands, add.operands[1 - i])
    return replace(product, kind="matmul_add", operands=operands, results=add.results, rule=rule)
