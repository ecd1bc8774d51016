"""Cut the chain of segments into pipeline stages, each with its own step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from wscc.ir.module import Affine, Call, Kind, Loop, Mode, Module, Procedure, Stage
from wscc.ir.naming import Names
from wscc.passes.backward import BACKWARD
from wscc.passes.base import Fact, Pass
from wscc.passes.stages_cut import Piece, chain_loop, check_groups, cut, messages
from wscc.passes.stages_exchange import Exchanges
from wscc.passes.stages_loops import Item, Repeated, compressed, short_count
from wscc.passes.stages_order import one_f_one_b, timed
from wscc.passes.stages_parts import Parts
from wscc.passes.stages_slots import in_flight
from wscc.passes.stages_step import Body, StepWriter
from wscc.strategy import stage_axes


@dataclass(frozen=True, slots=True)
class Stages(Pass):
    """Give each pipeline stage its chunks of layers, its arrays and its own step.

    The order of forward and backward work is 1F1B (`stages_order`), held as loops over micro-batches. What
    chunks hand on crosses between stages after the slot that made it, all that two stages have for each other
    in one call which both make, calls in one order for all: so no stage waits in a circle. Values in flight get
    a slot for each micro-batch that may be under way. A parameter that several stages use has a copy on each;
    gradients are summed, while still partial, on the stage that uses it first, which updates it and sends it on.

    Before: step { loop mb { @embed.fwd .. loop l { @block.fwd } .. @head.bwd .. loop l { @block.bwd } } }
    After:  step { stage 0 { .. loop mb { @embed.fwd .. @pass .. } .. } stage 1 { .. } }

    Fails with W201 when there are fewer layers than stages, or micro-batches that interleaving cannot group.
    """

    name: ClassVar[str] = "stages"
    requires: ClassVar[frozenset[Fact]] = frozenset({Fact.PARTITIONED})
    provides: ClassVar[frozenset[Fact]] = frozenset({Fact.STAGED})

    def run(self, module: Module) -> Module:
        axes = stage_axes(module.sizes)
        check_groups(module, axes)
        return _Cutter(module, axes[0]).run() if axes else module


class _Cutter:
    def __init__(self, module: Module, axis: str) -> None:
        self.module = module
        self.stages = module.sizes[axis]
        each, calls = module.train.interleave, module.train.microbatches
        self.period = self.stages if each > 1 else 1
        short = short_count(calls, self.stages, self.period)
        self.extra = calls - short
        self.chunks = cut(module, self.stages, each)
        crossing = messages(self.chunks, module)
        sources = {c: frozenset(m.source for m in crossing if m.target == c) for c in range(len(self.chunks))}
        self.events = timed(one_f_one_b(self.stages, each, short), sources)
        slots = in_flight(self.events, crossing, len(self.chunks))
        self.parts = Parts(module, self.stages, self.chunks, slots)
        self.procedures: dict[str, Procedure] = {}
        names = Names(p.name for p in module.procedures)
        self.writer = StepWriter(module, self.parts, self.procedures, names)
        self.exchanges = Exchanges(module, axis, self.parts, self.procedures, names, self.chunks, crossing)
        self.bodies: list[Body] = [[] for _ in range(self.stages)]

    def run(self) -> Module:
        at = chain_loop(self.module)
        for stmt in self.module.step[:at]:
            self._outside(stmt, after=False)
        for stage, items in enumerate(self.exchanges.items(self.events, self.stages)):
            for entry in compressed(items, self.period, self.extra):
                self.bodies[stage] += self._entry(entry)
        self.exchanges.sum_shared_gradients(self.bodies)
        after = [s for s in self.module.step[at + 1 :] if not isinstance(s, Stage)]
        for position, stmt in enumerate(after):
            self._outside(stmt, after=True)
            for scalar in self._complete(after, position):
                self.exchanges.sum_over_stages(scalar, self.bodies)
        self.exchanges.send_shared_weights(self.bodies)
        return self.module.with_(
            arrays=(*self.parts.arrays(), *self.exchanges.landing_arrays()),
            procedures=tuple(self.procedures.values()),
            step=tuple(Stage(i, tuple(b)) for i, b in enumerate(self.bodies)),
        )

    def _outside(self, stmt: Call | Loop | Stage, *, after: bool) -> None:
        assert not isinstance(stmt, Stage), "cut twice"
        for stage, body in self.writer.outside(stmt, after=after).items():
            self.bodies[stage] += body

    def _complete(self, after: list[Call | Loop], position: int) -> list[str]:
        """Scalars of all stages to which no statement after this one adds, each stage its own part."""
        here, later = _written(self.module, [after[position]]), _written(self.module, after[position + 1 :])
        return [
            name
            for name in here
            if name not in later and name not in self.parts.of and self.module.array(name).kind is Kind.SCALAR
        ]

    # -- the schedule -----------------------------------------------------------------------------------

    def _entry(self, entry: Item | Repeated) -> Body:
        if isinstance(entry, Item):
            return self._item(entry, [Affine(m) for m in entry.microbatches])
        variable = self.writer.microbatch
        body: Body = []
        for item in entry.items:
            body += self._item(item, [Affine(m, ((variable, entry.step),)) for m in item.microbatches])
        return [Loop(variable, entry.count, tuple(body))]

    def _item(self, item: Item, microbatches: list[Affine]) -> Body:
        match item.key:
            case (bool() as backward, int() as chunk):
                return self._work(chunk, microbatches[0], backward=backward)
            case _:
                return [self.exchanges.call(item.key, microbatches)]

    def _work(self, chunk: int, m: Affine, *, backward: bool) -> Body:
        pieces = self.chunks[chunk].backward if backward else self.chunks[chunk].forward
        body: Body = []
        if backward:
            for gradient in self.exchanges.sums:
                body += self.writer.zeroing(self.chunks[chunk].zeroing, gradient, chunk, m)
            body += self.exchanges.landed(chunk, m)
        body += [self.writer.piece(p, chunk, m) for p in pieces]
        return body


def _written(module: Module, stmts: list[Call | Loop]) -> list[str]:
    """Storage of arrays that statements outside the chain add to, or complete."""
    found: dict[str, None] = {}
    for stmt in stmts:
        call = Piece(stmt).call
        assert not call.procedure.endswith(BACKWARD)
        procedure = module.procedure(call.procedure)
        for out, ref in zip(procedure.outputs, call.args[len(procedure.inputs) :], strict=True):
            array = module.array(ref.array)
            if out.mode is Mode.ADD or array.type.shape == ():
                found[array.storage or array.name] = None
    return list(found)
