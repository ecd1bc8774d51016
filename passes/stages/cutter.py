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
from wscc.passes.stages.slots import Slots, in_flight
from wscc.passes.stages.step import Body, StepWriter
from wscc.passes.stages.work_items import Once, Orders, Portion, Work, once, works_of


class Cutter:
    """Cuts a module along `axis` (empty: one stage). Work follows `orders`, or 1F1B. With `apart`, every micro-batch
    has a slot of its own, so that an element of an array is one value."""

    def __init__(
        self, module: Module, axis: str, orders: Orders | None = None, *, apart: bool = False
    ) -> None:
        self.module = module
        self.axis = axis
        self.orders = orders
        self.stages = module.sizes[axis] if axis else 1
        each, calls = module.train.interleave, module.train.microbatches
        self.period = self.stages if each > 1 else 1
        short = short_count(calls, self.stages, self.period)
        self.extra = calls - short
        self.chunks = cut(module, self.stages, each)
        crossing = messages(self.chunks, module)
        sources = {c: frozenset(m.source for m in crossing if m.target == c) for c in range(len(self.chunks))}
        tasks = orders.tasks if orders else one_f_one_b(self.stages, each, short)
        self.events = timed(tasks, sources)
        slots = in_flight(self.events, crossing, len(self.chunks))
        if apart:
            slots = [Slots(calls, calls, calls)] * len(self.chunks)
        self.parts = Parts(module, self.stages, self.chunks, slots)
        self.procedures: dict[str, Procedure] = {}
        names = Names(p.name for p in module.procedures)
        self.writer = StepWriter(module, self.parts, self.procedures, names)
        self.exchanges = Exchanges(module, axis, self.parts, self.procedures, names, self.chunks, crossing)
        self.bodies: list[Body] = [[] for _ in range(self.stages)]
        self.entries: list[list[Item | Repeated]] = []
        self.works: list[list[Work]] = []

    def run(self) -> Module:
        at = chain_loop(self.module)
        for stmt in self.module.step[:at]:
            self._outside(stmt, after=False)
        before = [list(b) for b in self.bodies]
        self.entries = self._ordered()
        if self.orders is None:
            self._chain()
        done = [len(b) for b in self.bodies]
        self._behind(self.module.step[at + 1 :])
        behind = [b[n:] for b, n in zip(self.bodies, done, strict=True)]
        self.works = [
            works_of(i, before[i], self.chunks, behind[i], self.parts, self.writer)
            for i in range(self.stages)
        ]
        if self.orders is not None:
            self.bodies = [[] for _ in range(self.stages)]
            self._chain()
        return self._module()

    def _behind(self, step: Step) -> None:
        self.exchanges.sum_shared_gradients(self.bodies)
        after = [s for s in step if not isinstance(s, Stage)]
        for position, stmt in enumerate(after):
            self._outside(stmt, after=True)
            for scalar in self._complete(after, position) if self.stages > 1 else ():
                self.exchanges.sum_over_stages(scalar, self.bodies)
        self.exchanges.send_shared_weights(self.bodies)

    def _module(self) -> Module:
        arrays = (*self.parts.arrays(), *self.exchanges.landing_arrays())
        step: Step = tuple(Stage(i, tuple(b)) for i, b in enumerate(self.bodies))
        if not self.axis:
            arrays, step = tuple(replace(a, stage=-1) for a in arrays), tuple(self.bodies[0])
        return self.module.with_(arrays=arrays, procedures=tuple(self.procedures.values()), step=step)

    def _ordered(self) -> list[list[Item | Repeated]]:
        """By stage, its entries: of the chain, or of all where an order is given."""
        if self.orders is not None:
            items = self.exchanges.items(self.events, self.stages, self.orders.items)
            whole = zip(self.orders.before, items, self.orders.behind, strict=True)
            return [compressed_throughout([*before, *i, *behind]) for before, i, behind in whole]
        items = self.exchanges.items(
            self.events, self.stages, lambda e: [Item((e.task.backward, e.task.chunk), (e.task.microbatch,))]
        )
        return [compressed(i, self.period, self.extra) for i in items]

    def _chain(self) -> None:
        for stage, entries in enumerate(self.entries):
            for entry in entries:
                self.bodies[stage] += self._entry(entry, stage)

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

    # -- the order --------------------------------------------------------------------------------------

    def _entry(self, entry: Item | Repeated, stage: int) -> Body:
        if isinstance(entry, Item):
            return self._item(entry, [Affine(m) for m in entry.microbatches], stage)
        variable = self.writer.microbatch
        body: Body = []
        for item in entry.items:
            at = [Affine(m, ((variable, entry.step),)) for m in item.microbatches]
            body += self._item(item, at, stage)
        return [Loop(variable, entry.count, tuple(body))]

    def _item(self, item: Item, microbatches: list[Affine], stage: int) -> Body:
        match item.key:
            case (bool() as backward, int() as chunk):
                pieces = self.chunks[chunk].backward if backward else self.chunks[chunk].forward
                return self._work(chunk, pieces, microbatches[0], starts=backward)
            case Portion() as p:
                pieces = [_some(self.chunks[p.chunk], p, *span) for span in p.spans]
                return self._work(p.chunk, pieces, microbatches[0], starts=p.backward and p.starts)
            case Once() as some:
                return [once(self.works[stage][some.work], microbatches)]
            case _:
                return [self.exchanges.call(item.key, microbatches)]

    def _work(self, chunk: int, pieces: list[Piece], m: Affine, *, starts: bool) -> Body:
        """Pieces of a task; `starts` where they begin a backward task, which needs its sums."""
        body: Body = []
        if starts:
            for gradient in self.exchanges.sums:
                body += self.writer.zeroing(self.chunks[chunk].zeroing, gradient, chunk, m)
            body += self.exchanges.landed(chunk, m)
        body += [self.writer.piece(p, chunk, m) for p in pieces]
        return body


def _some(chunk: Chunk, portion: Portion, index: int, first: int, count: int) -> Piece:
    piece = (chunk.backward if portion.backward else chunk.forward)[index]
    return replace(piece, first=piece.first + first, count=count) if piece.count else piece


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
