"""Conversions of parameters to the type of computation that a step repeats."""

from __future__ import annotations

from wscc.analysis.call_accesses import AccessKind, argument_accesses
from wscc.ir.array import Kind
from wscc.ir.module import Module, Procedure
from wscc.ir.op import Op
from wscc.ir.step import calls
from wscc.ir.types import DType

# The ops that convert an input, by procedure and number of the input.
Casts = dict[str, dict[int, tuple[Op, ...]]]


def repeated_casts(module: Module) -> Casts:
    """Conversions of parameters to a narrower type of computation that could be done once a step.

    An input counts if every array that calls bind to it is a parameter of which a step converts some element more than
    once, and never after, or in the same statement as, a write of the array.
    """
    arrays = {a.name: a for a in module.arrays}
    conversions = {
        p.name: casts for p in module.procedures if (casts := _conversions(p, module.train.compute))
    }
    bound: dict[tuple[str, int], dict[str, None]] = {}
    times: dict[str, int] = {}
    for call, n in calls(module.step):
        for number in conversions.get(call.procedure, {}):
            name = call.args[number].array
            bound.setdefault((call.procedure, number), {})[name] = None
            times[name] = times.get(name, 0) + n
    late = _converted_late(module, conversions)
    repeated: Casts = {}
    for (procedure, number), names in bound.items():
        constant = all(arrays[n].kind is Kind.PARAM and n not in late for n in names)
        if constant and any(times[n] > arrays[n].count for n in names):
            repeated.setdefault(procedure, {})[number] = conversions[procedure][number]
    return repeated


def _conversions(procedure: Procedure, dtype: DType) -> dict[int, tuple[Op, ...]]:
    """The ops that narrow an input to `dtype`, by number of the input; ops whose result is returned are not counted."""
    returned = {o.value.name for o in procedure.outputs}
    casts: dict[str, list[Op]] = {}
    for op in procedure.ops:
        if op.kind == "cast" and op.results[0].type.dtype is dtype and op.results[0].name not in returned:
            casts.setdefault(op.operands[0].name, []).append(op)
    return {
        i: tuple(casts[v.name])
        for i, v in enumerate(procedure.inputs)
        if v.name in casts and dtype.size < v.type.dtype.size
    }


def _converted_late(module: Module, casts: Casts) -> set[str]:
    """Arrays of which a statement of the step converts an element after, or in the same statement as, a write."""
    kinds = {p.name: argument_accesses(p) for p in module.procedures}
    late: set[str] = set()
    for step in module.steps():
        written: set[str] = set()
        for stmt in step:
            nested = [call for call, _ in calls((stmt,))]
            written |= {
                ref.array
                for call in nested
                for ref, kind in zip(call.args, kinds[call.procedure], strict=True)
                if kind is not AccessKind.READ
            }
            late |= written & {c.args[i].array for c in nested for i in casts.get(c.procedure, {})}
    return late
