"""Experts of a forward module: the factors of products that are experts, each index of which has a matrix of its own,
and the share of their slots that tokens can take: work on the others is none of the model's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import prod

from wscc.ir.array import Kind
from wscc.ir.module import Module, Procedure
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


def occupied_shares(procedure: Procedure) -> dict[str, Fraction]:
    """By value of a forward procedure that has rows for slots, the share of rows that tokens can take, where that is
    less than one. Such rows begin where a result has indexed factors that no operand has, and end where these are
    summed."""
    shares: dict[str, Fraction] = {}
    for op in procedure.ops:
        found = [shares[v.name] for v in op.operands if v.name in shares]
        if made := _made(op):
            share = made
        elif not found or set(op.rule.indexed) & set(op.rule.contracted):
            continue
        else:
            share = max(found)
        shares.update((v.name, share) for v in op.results)
    return {name: share for name, share in shares.items() if share < 1}


def _made(op: Op) -> Fraction | None:
    """The share of rows of a new dimension of slots that the integers of the op can number; None for other ops."""
    new = {f for f in op.rule.indexed if all(f not in term for term in op.rule.ins)}
    if not new or not op.definition.integers or op.definition.listed is not None:
        return None
    numbers = op.rule.ins[op.definition.integers[0]]
    rows = [f for f in op.rule.outs[0] if f in new or f in numbers]
    return min(Fraction(1), Fraction(prod(op.sizes[f] for f in numbers), prod(op.sizes[f] for f in rows)))
