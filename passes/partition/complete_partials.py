"""Completion of arrays that a step leaves as partial sums: once, after the last writer, not at each contribution."""

from __future__ import annotations

from dataclasses import replace

from wscc.analysis.reshard_steps import plan, reshard
from wscc.ir.array import Array, Relation, Role
from wscc.ir.builder import Builder
from wscc.ir.module import Module, Output, Procedure
from wscc.ir.naming import Names
from wscc.ir.op import Value
from wscc.ir.step import Affine, Call, Loop, Ref, Stage, Step
from wscc.ir.types import Layout


def complete_arrays(module: Module, complete_layouts: dict[str, Layout]) -> Module:
    """The module with each array of partial sums split in two, and a completion after its last writer.

    Writers add to the array `name.partial`, readers read `name`, and a completion procedure reduces the first into the
    second. Both are names of the same bytes, unless `complete_layouts` has another layout for `name`. So gradients
    cross a data-parallel axis once a step, whatever the number of micro-batches.
    """
    final = {a.name: _final(a, complete_layouts) for a in module.arrays}
    partial = {a.name: a for a in module.arrays if a.type.layout != final[a.name]}
    if not partial:
        return module
    names = Names(a.name for a in module.arrays)
    sums = {name: names.of(name, f"{name}.partial") for name in partial}
    arrays = [part for a in module.arrays for part in _parts(a, final[a.name], sums)]
    procedures = {p.name: p for p in module.procedures}
    outputs_from = {n: len(p.inputs) for n, p in procedures.items()}
    last: dict[str, int] = {}
    for position, stmt in enumerate(module.step):
        last.update((name, position) for name in _written_arrays((stmt,), outputs_from) if name in partial)
    step: list[Call | Loop] = []
    for position, stmt in enumerate(module.step):
        assert not isinstance(stmt, Stage), "stages are cut later"
        step.append(_redirected(stmt, outputs_from, sums))
        due = [partial[n] for n in partial if last.get(n) == position]
        for extents in dict.fromkeys(a.extents for a in due):
            group = [a for a in due if a.extents == extents]
            completion = _completion(f"complete.{len(procedures)}", group, final)
            procedures[completion.name] = completion
            step.append(_call(completion, group, sums, extents))
    return module.with_(arrays=tuple(arrays), procedures=tuple(procedures.values()), step=tuple(step))


def _parts(array: Array, final: Layout, sums: dict[str, str]) -> list[Array]:
    """The array itself, or its complete and its partial half if it is among `sums`."""
    if array.name not in sums:
        return [array]
    assert array.type.layout is not None
    in_place = final == array.type.layout.completed()
    relation = Relation(Role.PARTIAL, array.name)
    return [
        replace(array, type=array.type.with_layout(final)),
        replace(array, name=sums[array.name], storage=array.name if in_place else "", relation=relation),
    ]


def _written_arrays(step: Step, outputs_from: dict[str, int]) -> set[str]:
    arrays: set[str] = set()
    for stmt in step:
        if isinstance(stmt, Loop | Stage):
            arrays |= _written_arrays(stmt.body, outputs_from)
        else:
            arrays |= {ref.array for ref in stmt.args[outputs_from[stmt.procedure] :]}
    return arrays


def _redirected(stmt: Call | Loop, outputs_from: dict[str, int], sums: dict[str, str]) -> Call | Loop:
    """The statement with its writes to arrays of `sums` redirected to their partial halves."""
    if isinstance(stmt, Loop):
        return replace(stmt, body=tuple(_redirected(s, outputs_from, sums) for s in stmt.body))
    first = outputs_from[stmt.procedure]
    args = tuple(
        replace(ref, array=sums[ref.array]) if i >= first and ref.array in sums else ref
        for i, ref in enumerate(stmt.args)
    )
    return replace(stmt, args=args)


def _final(array: Array, complete_layouts: dict[str, Layout]) -> Layout:
    assert array.type.layout is not None
    return complete_layouts.get(array.name, array.type.layout.completed())


def _completion(name: str, arrays: list[Array], final: dict[str, Layout]) -> Procedure:
    b = Builder()
    inputs, outputs, body = [], [], []
    for a in arrays:
        value = b.input(a.name, a.type)
        inputs.append(value)
        assert a.type.layout is not None
        for step in plan(a.type.layout, final[a.name]):
            result = Value(b.fresh(f"{a.name}.{step.axis}"), a.type.with_layout(step.after))
            body.append(reshard(step, value, result))
            value = result
        outputs.append(Output(value))
    return Procedure(name, tuple(inputs), tuple(outputs), tuple(body))


def _call(
    procedure: Procedure, arrays: list[Array], sums: dict[str, str], extents: tuple[int, ...]
) -> Call | Loop:
    index = (Affine(0, (("l", 1),)),) if extents else ()
    refs = [Ref(sums[a.name], index) for a in arrays] + [Ref(a.name, index) for a in arrays]
    call = Call(procedure.name, tuple(refs))
    return Loop("l", extents[0], (call,)) if extents else call
