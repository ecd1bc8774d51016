"""The check of the step: calls of procedures of the module with arrays of the right types, indices inside extents.

Loops are not unrolled: an affine index is checked by the interval of its values over all iterations.
"""

from __future__ import annotations

from dataclasses import dataclass

from wscc.ir.array import Array
from wscc.ir.module import Mode, Module, Procedure
from wscc.ir.op import Value
from wscc.ir.step import Affine, Call, Ref, Stage, Step
from wscc.ir.text.words import spell_type
from wscc.ir.verify.finding import Findings, Place

_MAX_LOOPS = 64


def check_step(module: Module) -> Findings:
    """The mistakes of the step of a module whose procedures and arrays are right."""
    arrays = {a.name: a for a in module.arrays}
    procedures = {p.name: p for p in module.procedures}
    yield from _stages(module)
    yield from _Checker(arrays, procedures).statements(module.step, {})


def _stages(module: Module) -> Findings:
    """The step has either no stages or nothing else, numbered in order; each is an equal block of dies."""
    numbers = [s.index if isinstance(s, Stage) else None for s in module.step]
    cut = any(n is not None for n in numbers)
    place = Place("the step", module.spans.step)
    if cut and numbers != list(range(len(numbers))):
        yield place.wrong("stages are numbered from 0, in order, with nothing beside them")
    elif module.dies_used % module.stages:
        yield place.wrong(f"{module.stages} stages do not divide {module.dies_used} dies")
    for a in module.arrays:
        if not -1 <= a.stage < (module.stages if cut else 0):
            yield Place(f"array `%{a.name}`", a.span).wrong(f"there is no stage {a.stage}")


@dataclass(frozen=True, slots=True)
class _Checker:
    arrays: dict[str, Array]
    procedures: dict[str, Procedure]

    def statements(self, step: Step, counts: dict[str, int]) -> Findings:
        """The mistakes of statements; `counts` has the counts of the loops around them, by variable."""
        for stmt in step:
            if isinstance(stmt, Call):
                yield from self._call(stmt, counts)
                continue
            if isinstance(stmt, Stage):
                yield from self.statements(stmt.body, counts)
                continue
            place = Place(f"loop `{stmt.variable}`", stmt.span)
            if stmt.count < 1:
                yield place.wrong(f"it runs {stmt.count} times")
            elif stmt.variable in counts:
                yield place.wrong(f"a loop around it has the variable `{stmt.variable}` already")
            elif len(counts) >= _MAX_LOOPS:
                yield place.wrong(f"loops more than {_MAX_LOOPS} deep")
            else:
                yield from self.statements(stmt.body, {**counts, stmt.variable: stmt.count})

    def _call(self, call: Call, counts: dict[str, int]) -> Findings:
        place = Place(f"call of `@{call.procedure}`", call.span)
        procedure = self.procedures.get(call.procedure)
        if procedure is None:
            yield place.wrong("there is no such procedure")
            return
        if len(call.args) != len(procedure.arguments):
            yield place.wrong(f"it binds {len(call.args)} elements to {len(procedure.arguments)} arguments")
            return
        for ref, argument in zip(call.args, procedure.arguments, strict=True):
            yield from self._argument(place, ref, argument, counts)
        yield from self._written_once(place, call, procedure)

    def _argument(self, place: Place, ref: Ref, argument: Value, counts: dict[str, int]) -> Findings:
        array = self.arrays.get(ref.array)
        if array is None:
            yield place.wrong(f"there is no array `%{ref.array}`")
            return
        if array.type != argument.type:
            kinds = [spell_type(t) for t in (array.type, argument.type)]
            yield place.wrong(f"`%{array.name}` is {kinds[0]}, and argument `%{argument.name}` is {kinds[1]}")
        if len(ref.index) != len(array.extents):
            yield place.wrong(
                f"`%{array.name}` has {len(array.extents)} extents and {len(ref.index)} indices here"
            )
            return
        for index, extent in zip(ref.index, array.extents, strict=True):
            if unknown := [v for v, _ in index.terms if v not in counts]:
                yield place.wrong(
                    f"an index of `%{array.name}` uses `{unknown[0]}`, and no loop around has it"
                )
                continue
            if index.modulus < 0:
                yield place.wrong(f"an index of `%{array.name}` has modulus {index.modulus}")
                continue
            low, high = interval(index, counts)
            if low < 0 or high >= extent:
                yield place.wrong(
                    f"an index of `%{array.name}` runs from {low} to {high}, and must stay below {extent}"
                )

    def _written_once(self, place: Place, call: Call, procedure: Procedure) -> Findings:
        written: dict[tuple[str, tuple[Affine, ...]], Mode] = {}
        for output, ref in zip(procedure.outputs, call.args[len(procedure.inputs) :], strict=True):
            array = self.arrays.get(ref.array)
            key = ((array.storage or array.name) if array else ref.array, ref.index)
            if key in written and Mode.WRITE in (written[key], output.mode):
                yield place.wrong(f"two results go to the same element of `%{ref.array}`")
            written[key] = output.mode


def interval(index: Affine, counts: dict[str, int]) -> tuple[int, int]:
    """Bounds of the index over all iterations, exact without a modulus; `counts` has all its variables."""
    coefficients: dict[str, int] = {}
    for variable, c in index.terms:
        coefficients[variable] = coefficients.get(variable, 0) + c
    ends = [(0, c * (counts[v] - 1)) for v, c in coefficients.items()]
    low = index.base + sum(min(e) for e in ends)
    high = index.base + sum(max(e) for e in ends)
    if index.modulus < 1:
        return low, high
    if low // index.modulus == high // index.modulus:
        return low % index.modulus, high % index.modulus
    return 0, index.modulus - 1
