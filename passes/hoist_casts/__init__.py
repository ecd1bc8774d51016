"""Convert weights to the type of computation once a step, instead of at every use."""

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

    The copy lies as its parameter rests and has its extents. It is made before the first call that reads it, layer
    by layer; calls read it in place of the parameter: half the bytes in each micro-batch, forward and backward, and
    nothing to convert. Parameters stay as they are, so that updates and checkpoints do.

    Before: loop mb { .. @block.fwd(w[l], x[l], x[l + 1]) .. }
    After:  loop l { @block.cast(w[l], w.bf16[l]) }  loop mb { .. @block.fwd(w.bf16[l], x[l], x[l + 1]) .. }

    Copies take memory to save time: a module whose arrays alone would then be more than a die holds is left as it is.
    Whether locals fit beside them only `plan_memory` knows (`wscc.driver.pipeline.Pipeline`).
    """

    name: ClassVar[str] = "hoist_casts"
    requires: ClassVar[frozenset[Fact]] = frozenset({Fact.STAGED})

    def run(self, module: Module) -> Module:
        casts = repeated_casts(module)
        if not casts:
            return module
        hoisted = _Hoisting(module, casts).run()
        die = module.machine.die
        return hoisted if peak_array_bytes(hoisted) <= die.sram + die.hbm else module


@dataclass(slots=True)
class _Reader:
    """A procedure that reads compute copies; for each of its inputs, the place of the one that it was before, and
    whether a copy stands for it."""

    procedure: Procedure
    inputs: list[tuple[int, bool]]


@dataclass(slots=True)
class _Hoisting:
    module: Module
    casts: Casts
    readers: dict[str, _Reader] = field(default_factory=dict)
    # Compute copies, by the name of their parameter.
    copies: dict[str, Array] = field(default_factory=dict)
    made: dict[str, Procedure] = field(default_factory=dict)
    names: Names = field(init=False)
    array_names: Names = field(init=False)
    arrays: dict[str, Array] = field(init=False)

    def run(self) -> Module:
        self.names = Names(p.name for p in self.module.procedures)
        self.arrays = {a.name: a for a in self.module.arrays}
        self.array_names = Names(self.arrays)
        self.readers = {name: _reader(self.module.procedure(name), c) for name, c in self.casts.items()}
        step: Step = tuple(
            replace(s, body=tuple(self._body(s.body))) if isinstance(s, Stage) else s
            for s in self.module.step
        )
        if not any(isinstance(s, Stage) for s in step):
            step = tuple(self._body(self.module.steps()[0]))
        procedures = [
            self.readers[p.name].procedure if p.name in self.readers else p for p in self.module.procedures
        ]
        return self.module.with_(
            arrays=(*self.module.arrays, *self.copies.values()),
            procedures=(*procedures, *self.made.values()),
            step=step,
        )

    def _body(self, body: Iterable[Call | Loop]) -> Body:
        """The step of a stage: copies are made where they are wanted first, and read from there on."""
        out: Body = []
        for stmt in body:
            # By segment and extents, the parameters to convert, each with one of the ops that did.
            due: dict[tuple[str, tuple[int, ...]], list[tuple[Array, Op]]] = {}
            for call, _ in calls((stmt,)):
                for place, ops in self.casts.get(call.procedure, {}).items():
                    param = self.arrays[call.args[place].array]
                    if param.name not in self.copies:
                        self.copies[param.name] = self._copy(param, ops[0])
                        owner = call.procedure.removesuffix(FORWARD).removesuffix(BACKWARD)
                        due.setdefault((owner, param.extents), []).append((param, ops[0]))
            out += [self._making(owner, params) for (owner, _), params in due.items()]
            out.append(self._redirected(stmt))
        return out

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
            span=param.span,
        )

    def _making(self, owner: str, params: list[tuple[Array, Op]]) -> Call | Loop:
        """The call that converts the parameters, over all their elements."""
        ops = [op for _, op in params]
        name = self.names.of((owner, *((op.operands, op.results) for op in ops)), f"{owner}.cast")
        self.made[name] = _conversion(name, ops)
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
        before = len(self.module.procedure(stmt.procedure).inputs)
        return replace(stmt, args=(*args, *stmt.args[before:]))


def _reader(procedure: Procedure, casts: dict[int, tuple[Op, ...]]) -> _Reader:
    """The procedure with copies among its inputs instead of the ops that made them."""
    gone = {op.results[0].name for ops in casts.values() for op in ops}
    body = [s for s in procedure.statements if s.results[0].name not in gone]
    read = {v.name for op in body for v in op.operands} | {o.value.name for o in procedure.outputs}
    taken = {v.name for v in procedure.inputs} | {v.name for s in procedure.statements for v in s.results}
    inputs: list[Value] = []
    places: list[tuple[int, bool]] = []
    copies: dict[str, Value] = {}
    for i, value in enumerate(procedure.inputs):
        if i not in casts or value.name in read:
            inputs.append(value)
            places.append((i, False))
        if i in casts:
            type_ = casts[i][0].results[0].type
            copy = Value(fresh(f"{value.name}.{type_.dtype}", taken), type_)
            taken.add(copy.name)
            copies.update((op.results[0].name, copy) for op in casts[i])
            inputs.append(copy)
            places.append((i, True))
    reading = [s.with_operands(lambda v: copies.get(v.name, v)) for s in body]
    return _Reader(replace(procedure, inputs=tuple(inputs), body=tuple(reading)), places)


def _conversion(name: str, casts: list[Op]) -> Procedure:
    inputs, outputs, body = [], [], []
    taken: set[str] = set()
    for op in casts:
        given, made = op.operands[0], op.results[0]
        given = replace(given, name=fresh(given.name, taken))
        taken.add(given.name)
        made = replace(made, name=fresh(f"{given.name}.{made.type.dtype}", taken))
        taken.add(made.name)
        inputs.append(given)
        outputs.append(Output(made))
        body.append(replace(op, operands=(given,), results=(made,), origin=""))
    return Procedure(name, tuple(inputs), tuple(outputs), tuple(body))
