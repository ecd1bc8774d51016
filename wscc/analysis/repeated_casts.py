"""Which conversions of parameters a step repeats."""

from __future__ import annotations

from wscc.analysis.call_accesses import AccessKind, argument_accesses
from wscc.ir.array import Kind
from wscc.ir.module import Module, Procedure
from wscc.ir.op import Op
from wscc.ir.step import calls
from wscc.ir.types import DType

# By procedure and place among its inputs, the ops that convert that input.
Casts = dict[str, dict[int, tuple[Op, ...]]]


def repeated_casts(module: Module) -> Casts:
    """Conversions to the narrower type of computation, of parameters of which a step converts some element more
    than once, before any is updated."""
    arrays = {a.name: a for a in module.arrays}
    found = {p.name: casts for p in module.procedures if (casts := _conversions(p, module.train.compute))}
    bound: dict[tuple[str, int], dict[str, None]] = {}
    times: dict[str, int] = {}
    for call, n in calls(module.step):
        for place in found.get(call.procedure, {}):
            name = call.args[place].array
            bound.setdefault((call.procedure, place), {})[name] = None
            times[name] = times.get(name, 0) + n
    late = _converted_late(module, found)
    kept: Casts = {}
    for (procedure, place), names in bound.items():
        constant = all(arrays[n].kind is Kind.PARAM and n not in late for n in names)
        if constant and any(times[n] > arrays[n].count for n in names):
            kept.setdefault(procedure, {})[place] = found[procedure][place]
    return kept


def _conversions(procedure: Procedure, dtype: DType) -> dict[int, tuple[Op, ...]]:
    """By place, the ops that narrow an input to `dtype`; a result must be made, so what is handed on is not counted."""
    handed = {o.value.name for o in procedure.outputs}
    found: dict[str, list[Op]] = {}
    for op in procedure.ops:
        if op.kind == "cast" and op.results[0].type.dtype is dtype and op.results[0].name not in handed:
            found.setdefault(op.operands[0].name, []).append(op)
    return {
        i: tuple(found[v.name])
        for i, v in enumerate(procedure.inputs)
        if v.name in found and dtype.size < v.type.dtype.size
    }


def _converted_late(module: Module, casts: Casts) -> set[str]:
    """Arrays that a statement of the step converts after, or while, something is written there."""
    kinds = {p.name: argument_accesses(p) for p in module.procedures}
    late: set[str] = set()
    for step in module.steps():
        written: set[str] = set()
        for stmt in step:
            inside = [call for call, _ in calls((stmt,))]
            written |= {
                ref.array
                for call in inside
                for ref, kind in zip(call.args, kinds[call.procedure], strict=True)
                if kind is not AccessKind.READ
            }
            late |= written & {c.args[i].array for c in inside for i in casts.get(c.procedure, {})}
    return late
