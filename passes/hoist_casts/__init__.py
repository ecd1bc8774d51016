"""The pass that converts weights to the type of computation once a step, instead of at every use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar

from wscc.analysis.memory.array_layout import peak_array_bytes
from wscc.analysis.repeated_casts import Casts, repeated_casts
from wscc.ir.array import Array, Kind, Relation, Role
from wscc.ir.module import Module, Output, Procedure
from wscc.ir.naming import BACKWARD, FORWARD, Names, fresh
from wscc.ir.op import Op, Value
from wscc.ir.step import Affine, Call, Loop, Ref, Stage, Step, calls
from wscc.passes.base import Fact, Pass

Body = list[Call | Loop]


@dataclass(frozen=True, slots=True)
class HoistCasts(Pass):
    """Give each parameter that a step converts more than once to a narrower type a *compute copy* in that type.

    The copy has the layout and the extents of its parameter. It is converted before the first call that reads it, layer
    by layer. Calls read it in place of the parameter: half the bytes in each micro-batch, forward and backward, and no
    conversion. Parameters keep their type, and with them updates and checkpoints.

    Before: loop mb { .. @block.fwd(w[l], x[l], x[l + 1]) .. }
    After:  loop l { @block.cast(w[l], w.bf16[l]) }  loop mb { .. @block.fwd(w.bf16[l], x[l], x[l + 1]) .. }

    Copies take memory to save time: a module whose arrays alone would then not fit on a die stays as it is. Whether
    locals fit beside them is known after `plan_memory` (`wscc.driver.pipeline.Pipeline`).
    """

    name: ClassVar[str] = "hoist_casts"
    requires: ClassVar[frozenset[Fact]] = frozenset({Fact.STAGED})

    def run(self, module: Module) -> Module:
        casts = repeated_casts(module)
        if not casts:
            return module
        hoisted = _Hoisting(module, casts).run()
        die = module.die
        return hoisted if peak_array_bytes(hoisted) <= die.sram + die.hbm else module


@dataclass(slots=True)
class _Reader:
    """A procedure that reads compute copies.

    For each of its inputs, `inputs` has the position of the former input, and whether a copy replaces it.
    """

    procedure: Procedure
    inputs: list[tuple[int, bool]]


@dataclass(slots=True)
class _Hoisting:
    """Builder of the module with compute copies, from the repeated casts of each procedure."""

    module: Module
    casts: Casts
    readers: dict[str, _Reader] = field(default_factory=dict)
    # Compute copies, by the name of their parameter.
    copies: dict[str, Array] = field(default_factory=dict)
    conversions: dict[str, Procedure] = field(default_factory=dict)
    names: Names = field(init=False)
    array_names: Names = field(init=False)
    arrays: dict[str, Array] = field(init=False)

    def run(self) -> Module:
        self.names = Names(p.name for p in self.module.procedures)
        self.arrays = {a.name: a for a in self.module.arrays}
        self.array_names = Names(self.arrays)
        self.readers = {name: _reader(self.module.procedure(name), c) for name, c in self.casts.items()}
        step: Step = tuple(
            replace(s, body=tuple(self._stage_step(s.body))) if isinstance(s, Stage) else s
            for s in self.module.step
        )
        if not any(isinstance(s, Stage) for s in step):
            step = tuple(self._stage_step(self.module.steps()[0]))
        procedures = [
            self.readers[p.name].procedure if p.name in self.readers else p for p in self.module.procedures
        ]
        return self.module.with_(
            arrays=(*self.module.arrays, *self.copies.values()),
            procedures=(*procedures, *self.conversions.values()),
            step=step,
        )

    def _stage_step(self, body: Iterable[Call | Loop]) -> Body:
        """The step of a stage, with conversions before the first statement that reads each copy."""
        statements: Body = []
        for stmt in body:
            # By segment and extents, the parameters to convert, each with one of the casts that converted it.
            casts_by_owner: dict[tuple[str, tuple[int, ...]], list[tuple[Array, Op]]] = {}
            for call, _ in calls((stmt,)):
                for position, ops in self.casts.get(call.procedure, {}).items():
                    param = self.arrays[call.args[position].array]
                    if param.name not in self.copies:
                        self.copies[param.name] = self._copy(param, ops[0])
                        owner = call.procedure.removesuffix(FORWARD).removesuffix(BACKWARD)
                        casts_by_owner.setdefault((owner, param.extents), []).append((param, ops[0]))
            statements += [
                self._conversion_call(owner, params) for (owner, _), params in casts_by_owner.items()
            ]
            statements.append(self._redirected(stmt))
        return statements

    def _copy(self, param: Array, op: Op) -> Array:
        type_ = op.results[0].type
        name = self.array_names.of(param.name, f"{param.name}.{type_.dtype}")
        relation = Relation(Role.COPY, param.name)
        return Array(
            name,
            type_,
            Kind.COMPUTE_COPY,
            param.extents,
            stage=param.stage,
            relation=relation,
            zigzag=param.zigzag,
            unpadded=param.unpadded,
            span=param.span,
        )

    def _conversion_call(self, owner: str, params: list[tuple[Array, Op]]) -> Call | Loop:
        """The statement that converts all elements of the parameters."""
        ops = [op for _, op in params]
        name = self.names.of((owner, *((op.operands, op.results) for op in ops)), f"{owner}.cast")
        self.conversions[name] = _conversion_procedure(name, ops)
        index = (Affine(0, (("l", 1),)),) if params[0][0].extents else ()
        reads = (Ref(a.name, index) for a, _ in params)
        call = Call(name, (*reads, *(Ref(self.copies[a.name].name, index) for a, _ in params)))
        return Loop("l", params[0][0].extents[0], (call,)) if index else call

    def _redirected(self, stmt: Call | Loop) -> Call | Loop:
        if isinstance(stmt, Loop):
            return replace(stmt, body=tuple(map(self._redirected, stmt.body)))
        reader = self.readers.get(stmt.procedure)
        if reader is None:
            return stmt
        args = [
            replace(ref, array=self.copies[ref.array].name) if is_copy else ref
            for ref, is_copy in ((stmt.args[i], is_copy) for i, is_copy in reader.inputs)
        ]
        inputs = len(self.module.procedure(stmt.procedure).inputs)
        return replace(stmt, args=(*args, *stmt.args[inputs:]))


def _reader(procedure: Procedure, casts: dict[int, tuple[Op, ...]]) -> _Reader:
    """The procedure with copies as inputs in place of its casts."""
    removed = {op.results[0].name for ops in casts.values() for op in ops}
    body = [s for s in procedure.statements if s.results[0].name not in removed]
    read = {v.name for op in body for v in op.operands} | {o.value.name for o in procedure.outputs}
    names = {v.name for v in procedure.inputs} | {v.name for s in procedure.statements for v in s.results}
    inputs: list[Value] = []
    positions: list[tuple[int, bool]] = []
    copies: dict[str, Value] = {}
    for i, value in enumerate(procedure.inputs):
        if i not in casts or value.name in read:
            inputs.append(value)
            positions.append((i, False))
        if i in casts:
            type_ = casts[i][0].results[0].type
            copy = Value(fresh(f"{value.name}.{type_.dtype}", names), type_)
            names.add(copy.name)
            copies.update((op.results[0].name, copy) for op in casts[i])
            inputs.append(copy)
            positions.append((i, True))
    reading = [s.with_operands(lambda v: copies.get(v.name, v)) for s in body]
    return _Reader(replace(procedure, inputs=tuple(inputs), body=tuple(reading)), positions)


def _conversion_procedure(name: str, casts: list[Op]) -> Procedure:
    inputs, outputs, body = [], [], []
    names: set[str] = set()
    for op in casts:
        source, result = op.operands[0], op.results[0]
        source = replace(source, name=fresh(source.name, names))
        names.add(source.name)
        result = replace(result, name=fresh(f"{source.name}.{result.type.dtype}", names))
        names.add(result.name)
        inputs.append(source)
        outputs.append(Output(result))
        body.append(replace(op, operands=(source,), results=(result,), origin=""))
    return Procedure(name, tuple(inputs), tuple(outputs), tuple(body))
