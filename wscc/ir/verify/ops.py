"""The check of ops against their declaration: kinds, SSA, attributes, rules, factor sizes, element types."""

from __future__ import annotations

from wscc.ir.forms import check_form
from wscc.ir.module import Level, Module, Procedure
from wscc.ir.op import GraphStmt, Op, Reshard, Value
from wscc.ir.ops import OPS
from wscc.ir.text.words import spell_type
from wscc.ir.verify.attrs import disagreements, wrong_number
from wscc.ir.verify.finding import Findings, Place, at_op, in_procedure, listed


def check_ops(module: Module, procedure: Procedure) -> Findings:
    """The mistakes in the body and the outputs of a procedure at the graph or sharded level."""
    defined = {v.name: v for v in procedure.inputs}
    for op in procedure.statements:
        place = at_op(procedure, op)
        for v in op.operands:
            yield from _use(place, v, defined.get(v.name))
        for v in op.results:
            if v.name in defined:
                yield place.wrong(f"`%{v.name}` is defined twice")
            defined[v.name] = v
        yield from _statement(module.level, place, op)
    for out in procedure.outputs:
        yield from _use(in_procedure(procedure), out.value, defined.get(out.value.name))


def _use(place: Place, value: Value, definition: Value | None) -> Findings:
    if definition is None:
        yield place.wrong(f"`%{value.name}` is not defined before this")
    elif definition.type != value.type:
        yield place.wrong(f"`%{value.name}` is {spell_type(definition.type)}, not {spell_type(value.type)}")


def _statement(level: Level, place: Place, op: GraphStmt) -> Findings:
    if isinstance(op, Reshard):
        if level is Level.GRAPH:
            yield place.wrong("a reshard cannot stand at the graph level")
    elif not op.results:
        yield place.wrong("it has no result")
    elif op.kind not in OPS:
        yield place.wrong(f"there is no op `{op.kind}`")
    elif level is Level.GRAPH and op.stream is not None:
        yield place.wrong("a stream cannot stand at the graph level")
    else:
        yield from _attrs(place, op)
        if wrong := check_form(op):
            yield place.wrong(wrong)
        else:
            yield from _sizes(place, op)
            yield from _dtypes(place, op)


def _attrs(place: Place, op: Op) -> Findings:
    definition, names = op.definition, [k for k, _ in op.attrs]
    declared = {**definition.attrs, **(definition.options if definition.options.keys() & names else {})}
    if names != list(declared):
        yield place.wrong(f"its attributes are {listed(names)}, and must be {listed(declared)}")
        return
    for name, value in op.attrs:
        if type(value) is not declared[name]:
            yield place.wrong(f"`{name}` is {value!r}, not of type {declared[name].__name__}")
            return
        if wrong := wrong_number(op.kind, name, value):
            yield place.wrong(wrong)
    if wrong := disagreements(op.kind, dict(op.attrs)):
        yield place.wrong(wrong)


def _sizes(place: Place, op: Op) -> Findings:
    sizes: dict[str, tuple[int, str]] = {}
    for value, term in op.terms():
        if len(term) != len(value.type.shape):
            rank = len(value.type.shape)
            yield place.wrong(f"`%{value.name}` has {rank} dimensions, and {len(term)} in the rule")
            continue
        for factor, n in zip(term, value.type.shape, strict=True):
            size, owner = sizes.setdefault(factor, (n, value.name))
            if size != n:
                yield place.wrong(f"factor `{factor}` is {size} in `%{owner}` and {n} in `%{value.name}`")


def _dtypes(place: Place, op: Op) -> Findings:
    row = op.definition
    if row.any_dtype:
        return
    for values, integers in ((op.operands, row.integers), (op.results, row.integer_results)):
        for i, value in enumerate(values):
            if value.type.dtype.is_float is (i in integers):
                declared = "integers" if i in integers else "floats"
                yield place.wrong(f"`%{value.name}` holds {value.type.dtype}, not {declared}")
