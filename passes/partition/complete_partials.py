"""Complete what a step leaves partial: once, after its last writer, instead of at each contribution."""

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


def complete_arrays(module: Module, owned: dict[str, Layout]) -> Module:
    """Split each partial array in two: writers add to its incomplete sum, readers see the completed `name`, and a
    completion procedure runs after the last writer. The two are names of the same bytes, unless `owned` has a
    layout of less for `name`.

    This is why gradients cross dp once a step, whatever the number of micro-batches.
    """
    final = {a.name: _final(a, owned) for a in module.arrays}
    partial = {a.name: a for a in module.arrays if a.type.layout != final[a.name]}
    if not partial:
        return module
    names = Names(a.name for a in module.arrays)
    sums = {name: names.of(name, f"{name}.partial") for name in partial}
    arrays = []
    for a in module.arrays:
        if a.name not in partial:
            arrays.append(a)
            continue
        complete = replace(a, type=a.type.with_layout(final[a.name]))
        assert a.type.layout is not None
        in_place = final[a.name] == a.type.layout.completed()
        relation = Relation(Role.PARTIAL, a.name)
        arrays.append(complete)
        arrays.append(replace(a, name=sums[a.name], storage=a.name if in_place else "", relation=relation))
    procedures = {p.name: p for p in module.procedures}
    outputs_from = {n: len(p.inputs) for n, p in procedures.items()}
    last: dict[str, int] = {}
    for position, stmt in enumerate(module.step):
        last.update((name, position) for name in _written((stmt,), outputs_from) if name in partial)
    step: list[Call | Loop] = []
    for position, stmt in enumerate(module.step):
        assert not isinstance(stmt, Stage), "stages are cut later"
        step.append(_redirected(stmt, outputs_from, sums))
        due = [partial[n] for n in partial if last.get(n) == position]
        for extents in dict.fromkeys(a.extents for a in due):
            made = _completion(f"complete.{len(procedures)}", [a for a in due if a.extents == extents], final)
            procedures[made.name] = made
            step.append(_call(made, [a for a in due if a.extents == extents], sums, extents))
    return module.with_(arrays=tuple(arrays), procedures=tuple(procedures.values()), step=tuple(step))


def _written(step: Step, outputs_from: dict[str, int]) -> set[str]:
    found: set[str] = set()
    for stmt in step:
        if isinstance(stmt, Loop | Stage):
            found |= _written(stmt.body, outputs_from)
        else:
            found |= {ref.array for ref in stmt.args[outputs_from[stmt.procedure] :]}
    return found


def _redirected(stmt: Call | Loop, outputs_from: dict[str, int], sums: dict[str, str]) -> Call | Loop:
    """The statement with writes to partial arrays under their other name."""
    if isinstance(stmt, Loop):
        return replace(stmt, body=tuple(_redirected(s, outputs_from, sums) for s in stmt.body))
    first = outputs_from[stmt.procedure]
    args = tuple(
        replace(ref, array=sums[ref.array]) if i >= first and ref.array in sums else ref
        for i, ref in enumerate(stmt.args)
    )
    return replace(stmt, args=args)


def _final(array: Array, owned: dict[str, Layout]) -> Layout:
    assert array.type.layout is not None
    return owned.get(array.name, array.type.layout.completed())


def _completion(name: str, arrays: list[Array], final: dict[str, Layout]) -> Procedure:
    b = Builder()
    inputs, outputs, body = [], [], []
    for a in arrays:
        value = b.input(a.name, a.type)
        inputs.append(value)
        assert a.type.layout is not None
        for step in plan(a.type.layout, final[a.name]):
            made = Value(b.fresh(f"{a.name}.{step.axis}"), a.type.with_layout(step.after))
            body.append(reshard(step, value, made))
            value = made
        outputs.append(Output(value))
    return Procedure(name, tuple(inputs), tuple(outputs), tuple(body))


def _call(
    procedure: Procedure, arrays: list[Array], sums: dict[str, str], extents: tuple[int, ...]
) -> Call | Loop:
    index = (Affine(0, (("l", 1),)),) if extents else ()
    refs = [Ref(sums[a.name], index) for a in arrays] + [Ref(a.name, index) for a in arrays]
    call = Call(procedure.name, tuple(refs))
    return Loop("l", extents[0], (call,)) if extents else call
