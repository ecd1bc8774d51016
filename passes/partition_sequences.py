"""Which dimensions of a program's values are positions of a sequence."""

from __future__ import annotations

from dataclasses import dataclass

from wscc.ir.module import Kind, Module, Op, Procedure, Value, calls
from wscc.strategy import SEQUENCE

# By value of a procedure, its dimensions that are positions.
Positions = dict[str, frozenset[int]]
_NONE: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Sequences:
    """What shares a factor with the positions of an input is a position too; `weights` are the parameters that have
    such dimensions (learned positions, for one)."""

    values: dict[str, Positions]
    weights: frozenset[str]

    @staticmethod
    def of(module: Module) -> Sequences:
        """Follows the calls of the step in order, each procedure once."""
        arrays = {a.name: frozenset([SEQUENCE]) for a in module.arrays if a.kind is Kind.INPUT}
        values: dict[str, Positions] = {}
        for call, _ in calls(module.step):
            if call.procedure in values:
                continue
            p = module.procedure(call.procedure)
            known = {v.name: arrays.get(r.array, _NONE) for v, r in zip(p.inputs, call.args, strict=False)}
            values[p.name] = _followed(p, known)
            arrays.update((r.array, known[v.name]) for v, r in zip(p.formals, call.args, strict=True))
        params = (a.name for a in module.arrays if a.kind is Kind.PARAM)
        return Sequences(values, frozenset(n for n in params if arrays.get(n)))


def _followed(procedure: Procedure, known: Positions) -> Positions:
    for op in procedure.ops:
        if op.is_reshard:
            known[op.results[0].name] = known.get(op.operands[0].name, _NONE)
            continue
        factors = {t[d] for v, t in op.terms() for d in known.get(v.name, _NONE)}
        for v, t in op.terms():
            known[v.name] = known.get(v.name, _NONE) | {d for d, f in enumerate(t) if f in factors}
    return known


def factors(op: Op, positions: Positions) -> set[str]:
    """The factors of an op that are positions."""
    return {t[d] for v, t in op.terms() for d in positions[v.name]}


def across(op: Op, positions: Positions) -> bool:
    """Whether a reshard cuts or joins positions."""
    value: Value = op.operands[0]
    return any(op.attr(name) in positions[value.name] for name, _ in op.attrs if name in ("dim", "to"))
