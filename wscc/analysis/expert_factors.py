"""Factors of products that are experts: each index of one has a matrix of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wscc.ir.array import Kind
from wscc.ir.module import Module
from wscc.ir.op import Op
from wscc.ir.step import calls


def expert_factors(op: Op, operands: Sequence[str], weights: set[str]) -> list[str]:
    """Factors of a weight of a product that its activation and its result have too; `operands` are the names of its
    operands where `weights` has those of weights."""
    if not op.definition.heavy:
        return []
    terms = list(zip(operands, op.rule.ins, strict=False))
    of_weights = [term for name, term in terms if name in weights]
    others = [term for name, term in terms if name not in weights]
    if not of_weights or not others:
        return []
    return [f for f in of_weights[0] if all(f in term for term in (*others, *op.rule.outs))]


def expert_counts(graph: Module) -> set[int]:
    """The numbers of experts of the products of a forward module."""
    return {op.sizes[f] for op, f in _experts(graph)}


def _experts(graph: Module) -> Iterator[tuple[Op, str]]:
    for call, _ in calls(graph.step):
        procedure = graph.procedure(call.procedure)
        bound = zip(procedure.inputs, call.args, strict=False)
        weights = {v.name for v, ref in bound if graph.array(ref.array).kind is Kind.PARAM}
        for op in procedure.ops:
            if op.kind == "cast" and op.operands[0].name in weights:
                weights.add(op.results[0].name)
            for factor in expert_factors(op, [v.name for v in op.operands], weights):
                yield op, factor
