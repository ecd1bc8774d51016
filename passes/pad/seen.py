"""The factors along which ops of a module would see pads of positions or sequences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from wscc.ir.array import Kind
from wscc.ir.module import Module, Procedure
from wscc.ir.naming import FORWARD
from wscc.ir.op import Op
from wscc.ir.step import calls
from wscc.passes.pad.unseen import hides_pads

# The dimensions of values of a procedure that hold zeros in all pads.
_Zeros = set[tuple[str, int]]

# Of these, the result is zero where all operands are.
_SUMS: Final = ("add", "sub", "scale", "cast")


@dataclass(frozen=True, slots=True)
class Seen:
    """`factors`: by forward op (`procedure/result`), those along which it would see pads. `ignored`: the inputs whose
    integers may say that a position takes no part, as labels do: those of pads say it."""

    factors: dict[str, frozenset[str]]
    ignored: frozenset[str]

    @staticmethod
    def of(module: Module) -> Seen:
        """What the forward ops of a graph-level module see."""
        ignored = _ignored(module)
        factors: dict[str, frozenset[str]] = {}
        for p in _forward(module):
            zeros: _Zeros = set()
            labels = _bound(module, p, ignored)
            for op in p.ops:
                seen = frozenset(f for f in op.rule.factors if _sees(op, f, labels, zeros))
                factors[_name(p, op)] = seen
                zeros |= _zero_results(op, seen, zeros)
        return Seen(factors, ignored)

    def sees(self, procedure: Procedure, op: Op, factor: str) -> bool:
        """Whether an op would see pads along the factor; one that differentiates or computes again, where its forward
        op would."""
        if op.kind == "partial_sum":  # of gradients, whose pads are zeros; its origin is a value
            return False
        return factor in self.factors.get(op.origin or _name(procedure, op), ())


def _name(p: Procedure, op: Op) -> str:
    return f"{p.name}/{op.results[0].name}" if op.results else ""


def _forward(module: Module) -> Iterator[Procedure]:
    """Forward procedures, and those that count labels."""
    for p in module.procedures:
        if p.name.endswith(FORWARD) or any(op.definition.ignores for op in p.ops):
            yield p


def _bound(module: Module, p: Procedure, arrays: frozenset[str]) -> set[str]:
    """The arguments of a procedure that are always bound to some of the arrays."""
    refs = [c.args for c, _ in calls(module.step) if c.procedure == p.name]
    return {v.name for i, v in enumerate(p.inputs) if all(args[i].array in arrays for args in refs)}


def _ignored(module: Module) -> frozenset[str]:
    """The inputs of integers that only ops read which ignore some of them."""
    found = {a.name for a in module.arrays if a.kind is Kind.INPUT and not a.type.dtype.is_float}
    for p in _forward(module):
        heedless = {v.name for op in p.ops if not op.definition.ignores for v in op.operands}
        for call, _ in calls(module.step):
            if call.procedure == p.name:
                found -= {
                    ref.array for v, ref in zip(p.inputs, call.args, strict=False) if v.name in heedless
                }
    return frozenset(found)


def _sees(op: Op, factor: str, labels: set[str], zeros: _Zeros) -> bool:
    """Whether a forward op would see pads along a factor."""
    if op.kind in ("mean", "count"):  # a sum over all
        return not all(
            (op.kind == "count" and v.name in labels) or (v.name, term.index(factor)) in zeros
            for v, term in op.terms()
            if factor in term
        )
    if op.definition.ignores:
        place = op.definition.integers[0]
        if factor in op.rule.ins[place] and op.operands[place].name not in labels:
            return True
    return not hides_pads(op, factor)


def _zero_results(op: Op, seen: frozenset[str], zeros: _Zeros) -> _Zeros:
    """The dimensions of a forward op's results in whose pads there are zeros."""
    if op.definition.ignores:
        factors = {*op.rule.ins[op.definition.integers[0]]} - seen
    else:
        of_operands = [
            {f for d, f in enumerate(term) if (v.name, d) in zeros}
            for v, term in zip(op.operands, op.rule.ins, strict=False)
        ]
        if op.kind == "mul":
            factors = set().union(*of_operands)
        elif op.kind in _SUMS:
            factors = set.intersection(*of_operands)
        else:
            factors = set()
    pairs = zip(op.results, op.rule.outs, strict=True)
    return {(v.name, d) for v, term in pairs for d, f in enumerate(term) if f in factors}
