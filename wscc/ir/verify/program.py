"""The check that a valid module is a whole program: what passes rely on, and a text that a person changed may lack."""

from __future__ import annotations

from wscc.ir.array import Array, Kind
from wscc.ir.module import Level, Module
from wscc.ir.step import calls
from wscc.ir.verify.finding import Findings, Place, in_procedure

# The host fills these before a step, or they keep what the step before has left.
_FILLED = (Kind.PARAM, Kind.INPUT, Kind.EDGES, Kind.STATE, Kind.SCALAR, Kind.STATISTIC)


def check_program(module: Module) -> Findings:
    """The mistakes of a module that `verify` has none in: a procedure that no call runs or, before stages are cut, that
    two run; an array that a call reads and none before it writes (of one stage: several exchange values)."""
    called: set[str] = set()
    for call, _ in calls(module.step):
        if call.procedure in called and module.stages == 1 and module.level is not Level.FABRIC:
            yield Place(f"call of `@{call.procedure}`", call.span).wrong("another call runs it already")
        called.add(call.procedure)
    for p in module.procedures:
        if p.name not in called:
            yield in_procedure(p).wrong("no call runs it")
    if module.stages == 1:
        yield from _reads(module)


def _reads(module: Module) -> Findings:
    owner = {a.name: a.storage or a.name for a in module.arrays}
    arrays = {a.name: a for a in module.arrays}
    procedures = {p.name: p for p in module.procedures}
    written: set[str] = set()
    for call, _ in calls(module.step):
        inputs = len(procedures[call.procedure].inputs)
        for ref in call.args[:inputs]:
            if owner[ref.array] not in written and _must_be_written(arrays[ref.array]):
                place = Place(f"call of `@{call.procedure}`", call.span)
                yield place.wrong(f"it reads `%{ref.array}`, and no call before it writes that")
                written.add(owner[ref.array])
        written.update(owner[ref.array] for ref in call.args[inputs:])


def _must_be_written(array: Array) -> bool:
    return array.kind not in _FILLED
