"""The step of each stage: what lies outside the chain, and the work of its chunks in a given order."""

from __future__ import annotations

from dataclasses import replace

from wscc.ir.array import Kind
from wscc.ir.module import Mode, Module, Procedure
from wscc.ir.naming import BACKWARD, Names
from wscc.ir.step import Affine, Call, Loop, Stage, Step
from wscc.passes.stages.cut import Chunk, Piece, chain_loop, cut, messages
from wscc.passes.stages.exchange import Exchanges
from wscc.passes.stages.order_1f1b import one_f_one_b, timed
from wscc.passes.stages.parts import Parts
from wscc.passes.stages.roll_loops import Item, Repeated, compressed, compressed_throughout, short_count
from wscc.passes.stages.slots import Slots, slots_in_flight
from wscc.passes.stages.step import Body, StepWriter
from wscc.passes.stages.work_items import Orders, OutsideWork, Portion, Work, outside_call, works_of


class Cutter:
    """Cutter of a module along `axis` (empty: one stage), with tasks in the order of `orders`, or in 1F1B order.

    With `expanded`, every micro-batch has a slot of its own, so that each element of an array in flight holds one value
    in a step (array expansion: Feautrier, ICS 1988).
    """

    def __init__(
        self, module: Module, axis: str, orders: Orders | None = None, *, expanded: bool = False
    ) -> None:
        self.module = module
        self.axis = axis
        self.orders = orders
        self.stages = module.sizes[axis] if axis else 1
        interleave, microbatches = module.train.interleave, module.train.microbatches
        self.period = self.stages if interleave > 1 else 1
        simulated = short_count(microbatches, self.stages, self.period)
        self.omitted = microbatches - simulated
        self.chunks = cut(module, self.stages, interleave)
        crossing = messages(self.chunks, module)
        sources = {c: frozenset(m.source for m in crossing if m.target == c) for c in range(len(self.chunks))}
        tasks = orders.tasks if orders else one_f_one_b(self.stages, interleave, simulated)
        self.events = timed(tasks, sources)
        slots = slots_in_flight(self.events, crossing, len(self.chunks))
        if expanded:
            slots = [Slots(microbatches, microbatches, microbatches)] * len(self.chunks)
        self.parts = Parts(module, self.stages, self.chunks, slots)
        self.procedures: dict[str, Procedure] = {}
        names = Names(p.name for p in module.procedures)
        self.writer = StepWriter(module, self.parts, self.procedures, names)
        self.exchanges = Exchanges(module, axis, self.parts, self.procedures, names, self.chunks, crossing)
        self.bodies: list[Body] = [[] for _ in range(self.stages)]
        self.entries: list[list[Item | Repeated]] = []
        self.works: list[list[Work]] = []

    def run(self) -> Module:
        position = chain_loop(self.module)
        for stmt in self.module.step[:position]:
            self._outside(stmt, after=False)
        before = [list(b) for b in self.bodies]
        self.entries = self._stage_entries()
        if self.orders is None:
            self._chain()
        lengths = [len(b) for b in self.bodies]
        self._after_chain(self.module.step[position + 1 :])
        after = [b[n:] for b, n in zip(self.bodies, lengths, strict=True)]
        self.works = [
            works_of(i, before[i], self.chunks, after[i], self.parts, self.writer) for i in range(self.stages)
        ]
        if self.orders is not None:
            self.bodies = [[] for _ in range(self.stages)]
            self._chain()
        return self._module()

    def _after_chain(self, step: Step) -> None:
        self.exchanges.sum_shared_gradients(self.bodies)
        after = [s for s in step if not isinstance(s, Stage)]
        for scalar in self.parts.sums:
            if scalar not in _written(self.module, after):
                self.exchanges.sum_over_stages(scalar, self.bodies)
        for position, stmt in enumerate(after):
            self._outside(stmt, after=True)
            for scalar in self._completed_scalars(after, position) if self.stages > 1 else ():
                self.exchanges.sum_over_stages(scalar, self.bodies)
        self.exchanges.send_shared_weights(self.bodies)

    def _module(self) -> Module:
        arrays = (*self.parts.arrays(), *self.exchanges.received_arrays())
        step: Step = tuple(Stage(i, tuple(b)) for i, b in enumerate(self.bodies))
        if not self.axis:
            arrays, step = tuple(replace(a, stage=-1) for a in arrays), tuple(self.bodies[0])
        return self.module.with_(arrays=arrays, procedures=tuple(self.procedures.values()), step=step)

    def _stage_entries(self) -> list[list[Item | Repeated]]:
        """By stage, its entries: those of the chain, or of the whole step where `orders` are given."""
        if self.orders is not None:
            items = self.exchanges.items(self.events, self.stages, self.orders.items)
            stages = zip(self.orders.before, items, self.orders.after, strict=True)
            return [compressed_throughout([*before, *i, *after]) for before, i, after in stages]
        items = self.exchanges.items(
            self.events, self.stages, lambda e: [Item((e.task.backward, e.task.chunk), (e.task.microbatch,))]
        )
        return [compressed(i, self.period, self.omitted) for i in items]

    def _chain(self) -> None:
        for stage, entries in enumerate(self.entries):
            for entry in entries:
                self.bodies[stage] += self._entry(entry, stage)

    def _outside(self, stmt: Call | Loop | Stage, *, after: bool) -> None:
        assert not isinstance(stmt, Stage), "cut twice"
        for stage, body in self.writer.outside(stmt, after=after).items():
            self.bodies[stage] += body

    def _completed_scalars(self, after: list[Call | Loop], position: int) -> list[str]:
        """Scalars on all stages, to which each adds its part, and the statement at `position` is the last to do so."""
        here, later = _written(self.module, [after[position]]), _written(self.module, after[position + 1 :])
        return [
            name
            for name in here
            if name not in later and name not in self.parts.of and self.module.array(name).kind is Kind.SCALAR
        ]

    # -- the order --------------------------------------------------------------------------------------

    def _entry(self, entry: Item | Repeated, stage: int) -> Body:
        if isinstance(entry, Item):
            return self._item(entry, [Affine(m) for m in entry.microbatches], stage)
        variable = self.writer.microbatch
        body: Body = []
        for item in entry.items:
            microbatches = [Affine(m, ((variable, entry.step),)) for m in item.microbatches]
            body += self._item(item, microbatches, stage)
        return [Loop(variable, entry.count, tuple(body))]

    def _item(self, item: Item, microbatches: list[Affine], stage: int) -> Body:
        match item.key:
            case (bool() as backward, int() as chunk):
                pieces = self.chunks[chunk].backward if backward else self.chunks[chunk].forward
                return self._work(chunk, pieces, microbatches[0], starts=backward)
            case Portion() as portion:
                pieces = [_portion(self.chunks[portion.chunk], portion, *span) for span in portion.spans]
                return self._work(
                    portion.chunk, pieces, microbatches[0], starts=portion.backward and portion.starts
                )
            case OutsideWork() as outside:
                return [outside_call(self.works[stage][outside.number], microbatches)]
            case _:
                return [self.exchanges.call(item.key, microbatches)]

    def _work(self, chunk: int, pieces: list[Piece], m: Affine, *, starts: bool) -> Body:
        """The statements of pieces of a task; with `starts`, after those that prepare the sums of a backward task."""
        body: Body = []
        if starts:
            for gradient in self.exchanges.sums:
                body += self.writer.zeroing(self.chunks[chunk].zeroing, gradient, chunk, m)
            body += self.exchanges.add_received(chunk, m)
        body += [self.writer.piece(p, chunk, m) for p in pieces]
        return body


def _portion(chunk: Chunk, portion: Portion, index: int, first: int, count: int) -> Piece:
    piece = (chunk.backward if portion.backward else chunk.forward)[index]
    return replace(piece, first=piece.first + first, count=count) if piece.count else piece


def _written(module: Module, stmts: list[Call | Loop]) -> list[str]:
    """Storage of the scalars that statements outside the chain write, and of the arrays to which they add."""
    storages: dict[str, None] = {}
    for stmt in stmts:
        call = Piece(stmt).call
        assert not call.procedure.endswith(BACKWARD)
        procedure = module.procedure(call.procedure)
        for out, ref in zip(procedure.outputs, call.args[len(procedure.inputs) :], strict=True):
            array = module.array(ref.array)
            if out.mode is Mode.ADD or array.type.shape == ():
                storages[array.storage or array.name] = None
    return list(storages)
