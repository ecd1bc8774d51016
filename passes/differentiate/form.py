"""The form of a forward module, which the front end gives it: what differentiation relies on."""

from __future__ import annotations

from wscc.ir.array import Kind
from wscc.ir.module import Level, Mode, Module, Procedure
from wscc.ir.step import Call, Loop, Stage
from wscc.ir.verify.finding import Findings, Place, at_op, in_procedure
from wscc.passes.differentiate.rules import DERIVATIVES


def check_form(module: Module, scalars: tuple[str, ...]) -> Findings:
    """The mistakes of a valid module at the graph level that is to be differentiated: its step ends with the loop over
    micro-batches, which calls the forward procedures, each by itself or over layers; the loss is added up, and all else
    that it computes is written; every op of it has a derivative; nothing else has a name of `scalars`."""
    title, step = Place(f"module `{module.name}`", module.spans.title), Place("the step", module.spans.step)
    if module.level is not Level.GRAPH:
        yield title.wrong(f"only the graph level is differentiated, and this is the {module.level} level")
        return
    for a in module.arrays:
        if a.name in scalars:
            yield Place(f"array `%{a.name}`", a.span).wrong("the training step has an array of this name")
    chain = module.step[-1] if module.step else None
    if not isinstance(chain, Loop):
        yield step.wrong("a forward module ends with the loop over its micro-batches")
        return
    if chain.count != module.train.microbatches:
        words = f"it runs {chain.count} times, and a step has {module.train.microbatches} micro-batches"
        yield Place(f"loop `{chain.variable}`", chain.span).wrong(words)
    yield from _chain(module, chain)


def _chain(module: Module, chain: Loop) -> Findings:
    losses = 0
    for stmt in chain.body:
        call = stmt.body[0] if isinstance(stmt, Loop) and len(stmt.body) == 1 else stmt
        if not isinstance(call, Call):
            yield Place("a loop over layers", stmt.span).wrong("it holds one call, and nothing else")
            continue
        place = Place(f"call of `@{call.procedure}`", call.span)
        procedure = module.procedure(call.procedure)
        yield from _ops(procedure)
        yield from _outputs(module, place, procedure, call)
        refs = call.args[len(procedure.inputs) :]
        losses += sum(module.array(ref.array).kind is Kind.SCALAR for ref in refs)
    if not losses:
        yield Place(f"loop `{chain.variable}`", chain.span).wrong("nothing in it adds to a loss")
    if any(isinstance(stmt, Stage) for stmt in module.step):
        yield Place("the step", module.spans.step).wrong("stages are cut after differentiation")


def _ops(procedure: Procedure) -> Findings:
    for op in procedure.ops:
        if op.kind not in DERIVATIVES and not op.definition.nullary:  # what has no operands needs none
            yield at_op(procedure, op).wrong("it has no derivative, and cannot stand in a forward procedure")


def _outputs(module: Module, place: Place, procedure: Procedure, call: Call) -> Findings:
    inputs = len(procedure.inputs)
    for out, ref in zip(procedure.outputs, call.args[inputs:], strict=True):
        array = module.array(ref.array)
        if (out.mode is Mode.ADD) != (array.kind in (Kind.SCALAR, Kind.STATISTIC)):
            yield place.wrong(f"`%{ref.array}` must be {'a loss' if out.mode is Mode.ADD else 'written'}")
        elif out.mode is Mode.WRITE and array.kind is not Kind.CARRIED:
            yield place.wrong(
                f"`%{ref.array}` is {array.kind}, and a forward procedure writes carried values"
            )
        elif array.kind is Kind.SCALAR and out.value.type.shape:
            yield in_procedure(procedure).wrong(f"`%{out.value.name}` is a loss, and more than one number")
    for ref in call.args:
        is_input = module.array(ref.array).kind is Kind.INPUT
        if any(i.modulus for i in ref.index) or (len(ref.index) > 1 and not is_input):
            yield place.wrong(f"`%{ref.array}` has an index that layers do not go through in order")
