"""The share of slots of experts that tokens can take: work on the others is none of the model's."""

from __future__ import annotations

from fractions import Fraction
from math import prod

from wscc.ir.module import Procedure
from wscc.ir.op import Op


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
    if not new or not op.definition.integers:
        return None
    numbers = op.rule.ins[op.definition.integers[0]]
    rows = [f for f in op.rule.outs[0] if f in new or f in numbers]
    return min(Fraction(1), Fraction(prod(op.sizes[f] for f in numbers), prod(op.sizes[f] for f in rows)))
