"""Communication between stages: values between chunks, their gradients back, and shared parameters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from wscc.ir.array import Array, Kind, Role
from wscc.ir.module import Mode, Module, Output, Procedure
from wscc.ir.naming import Names
from wscc.ir.op import Reshard, Value
from wscc.ir.step import Affine, Call, Ref
from wscc.ir.types import TensorType
from wscc.passes.stages.cut import Chunk, Message, Piece
from wscc.passes.stages.order_1f1b import Timed
from wscc.passes.stages.parts import Part, Parts
from wscc.passes.stages.roll_loops import Item
from wscc.passes.stages.step import NOW, Body


@dataclass(frozen=True, slots=True)
class Crossing:
    """A message, or with `backward` its gradient in the opposite direction."""

    message: Message
    backward: bool

    @property
    def chunks(self) -> tuple[int, int]:
        """The sending and the receiving chunk."""
        m = self.message
        return (m.target, m.source) if self.backward else (m.source, m.target)


@dataclass(frozen=True, slots=True)
class _Move:
    """A move of one value from a part on stage `source` to a part on stage `target`."""

    type: TensorType
    source: int
    target: int
    read: Ref
    write: Ref


class Exchanges:
    """Maker of the calls that several stages make together, in which they communicate.

    `sums` are the loop-carried gradients to which several chunks add contributions.
    """

    def __init__(
        self, module: Module, axis: str, parts: Parts, procedures: dict[str, Procedure], names: Names,
        chunks: list[Chunk], crossing: list[Message],
    ) -> None:  # fmt: skip
        self.module = module
        self.axis = axis
        self.parts = parts
        self.procedures = procedures
        self.messages = crossing
        self.sums = [ref.array for stmt in chunks[0].zeroing for ref in Piece(stmt).call.args]
        self.names = names
        self.gradients, self.partials = module.related(Role.GRADIENT), module.related(Role.PARTIAL)
        # Buffers for received contributions to sums, and to gradients of shared parameters.
        self.receive_buffers: dict[Hashable, Part] = {}
        for m in crossing:
            if (gradient := self.gradients.get(m.array, "")) in self.sums:
                slots = parts.slots[m.source].gradients
                name = f"{gradient}.{m.element}.from{m.target}"
                self._add_receive_buffer(m, module.array(gradient), name, m.source % parts.stages, slots)

    def received_arrays(self) -> Iterator[Array]:
        return (p.array for p in self.receive_buffers.values())

    def _add_receive_buffer(self, key: Hashable, like: Array, name: str, stage: int, slots: int) -> None:
        extents = (slots,) if slots > 1 else ()
        array = Array(
            self.parts.names.of(key, name), like.type, Kind.CARRIED, extents, stage=stage, zigzag=like.zigzag
        )  # fmt: skip
        self.receive_buffers[key] = Part(array, 0, slots)

    # -- between chunks ---------------------------------------------------------------------------------

    def items(
        self, events: list[Timed], stages: int, work: Callable[[Timed], list[Item]]
    ) -> list[list[Item]]:  # fmt: skip
        """By stage, its `work` and its exchanges in order: after each slot, one exchange for each pair of stages."""
        items: list[list[Item]] = [[] for _ in range(stages)]
        # By sending chunk and direction.
        sent: defaultdict[tuple[int, bool], list[Crossing]] = defaultdict(list)
        for crossing in (Crossing(m, backward) for m in self.messages for backward in (False, True)):
            sent[crossing.chunks[0], crossing.backward].append(crossing)
        slot = 0
        pending: list[tuple[Crossing, int]] = []
        for event in [*events, None]:
            if event is None or event.slot != slot:
                self._exchange(pending, items)
                pending, slot = [], event.slot if event else slot
            if event is not None:
                items[event.stage] += work(event)
                task = event.task
                if task.last:
                    pending += [(crossing, task.microbatch) for crossing in sent[task.chunk, task.backward]]
        return items

    def _exchange(self, pending: list[tuple[Crossing, int]], items: list[list[Item]]) -> None:
        pairs: dict[tuple[int, int], list[tuple[Crossing, int]]] = {}
        for crossing, m in pending:
            a, b = sorted(c % len(items) for c in crossing.chunks)
            pairs.setdefault((a, b), []).append((crossing, m))
        for (a, b), crossings in sorted(pairs.items()):
            item = Item(tuple(c for c, _ in crossings), tuple(m for _, m in crossings))
            for stage in {a: None, b: None}:
                items[stage].append(item)

    def call(self, key: object, microbatches: list[Affine]) -> Call:
        """The call of the exchange with the crossings `key`, one for each of `microbatches`."""
        assert isinstance(key, tuple)
        return self._exchange_call([self._move(c, m) for c, m in zip(key, microbatches, strict=True)])

    def _move(self, crossing: Crossing, microbatch: Affine) -> _Move:
        m = crossing.message
        source, target = crossing.chunks
        name = self.gradients[m.array] if crossing.backward else m.array
        array = self.module.array(name)
        buffers = array.extents[0] if crossing.backward and array.extents else 0
        index = (Affine(m.element, modulus=buffers),) if array.extents else ()
        read = self.parts.of[name][source].ref(index, microbatch)
        if crossing.backward and name in self.sums:
            write = self.receive_buffers[m].ref((), microbatch)
        else:
            write = self.parts.of[name][target].ref(index, microbatch)
        stages = self.parts.stages
        return _Move(array.type, source % stages, target % stages, read, write)

    def add_received(self, chunk: int, microbatch: Affine) -> Iterator[Call]:
        """The calls that add contributions received from other chunks to the gradients of `chunk`."""
        for m in self.messages:
            if m in self.receive_buffers and m.source == chunk:
                gradient = self.gradients[m.array]
                array = self.module.array(gradient)
                index = (Affine(m.element),) if array.extents else ()
                target = self.parts.of[gradient][chunk].ref(index, microbatch)
                yield self._add(array.type, self.receive_buffers[m].ref((), microbatch), target)

    # -- shared parameters ------------------------------------------------------------------------------

    def sum_shared_gradients(self, bodies: list[Body]) -> None:
        """Append the calls that add the gradients of shared parameters from other stages on the owners."""
        for a, copies in self._shared():
            gradient = self.gradients.get(a.name, "")
            name = self.partials.get(gradient, gradient)
            name = name if name in self.parts.of else gradient
            if name not in self.parts.of:
                continue
            owner = self.parts.owner(a.name)
            like, parts = self.module.array(name), self.parts.of[name]
            for stage in copies:
                key = (a.name, stage)
                self._add_receive_buffer(key, like, f"{gradient}.from{stage}", owner, 0)
                buffer = self.receive_buffers[key].ref((), NOW)
                self._append_move(bodies, _Move(like.type, stage, owner, parts[stage].ref((), NOW), buffer))
                bodies[owner].append(self._add(like.type, buffer, parts[owner].ref((), NOW)))

    def send_shared_weights(self, bodies: list[Body]) -> None:
        """Append the calls that send updated shared parameters from their owners to the copies."""
        for a, copies in self._shared():
            owner, parts = self.parts.owner(a.name), self.parts.of[a.name]
            for stage in copies:
                move = _Move(a.type, owner, stage, parts[owner].ref((), NOW), parts[stage].ref((), NOW))
                self._append_move(bodies, move)

    def _shared(self) -> Iterator[tuple[Array, list[int]]]:
        """Parameters with a part on several stages, and the stages of the copies."""
        for a in self.module.arrays:
            if a.kind is Kind.PARAM and a.name in self.parts.of and not self.parts.is_layered(a):
                _, *copies = self.parts.of[a.name]
                if copies:
                    yield a, copies

    def sum_over_stages(self, scalar: str, bodies: list[Body]) -> None:
        """Append the call that sums `scalar` over all stages."""
        value = Value(scalar, self.module.array(scalar).type)
        total = Value(f"{scalar}.total", value.type)
        reshard = Reshard("stage_sum", self.axis, value, total)
        name = self.names.of(scalar, f"{scalar}.over_stages")
        self.procedures[name] = Procedure(name, (value,), (Output(total),), (reshard,))
        for body in bodies:
            body.append(Call(name, (Ref(scalar), Ref(scalar))))

    # -- procedures -------------------------------------------------------------------------------------

    def _append_move(self, bodies: list[Body], move: _Move) -> None:
        call = self._exchange_call([move])
        for stage in {move.source: None, move.target: None}:
            bodies[stage].append(call)

    def _exchange_call(self, moves: list[_Move]) -> Call:
        """The call that makes all of `moves` at once."""
        key = tuple((m.type, m.source, m.target) for m in moves)
        name = self.names.of(key, "pass")
        if name not in self.procedures:
            self.procedures[name] = self._exchange_procedure(name, moves)
        return Call(name, (*(m.read for m in moves), *(m.write for m in moves)))

    def _exchange_procedure(self, name: str, moves: list[_Move]) -> Procedure:
        inputs, outputs, body = [], [], []
        for i, m in enumerate(moves):
            value = result = Value(f"x{i}", m.type)
            if m.source != m.target:
                result = Value(f"y{i}", m.type)
                body.append(Reshard("permute", self.axis, value, result, source=m.source, target=m.target))
            inputs.append(value)
            outputs.append(Output(result))
        return Procedure(name, tuple(inputs), tuple(outputs), tuple(body))

    def _add(self, type_: TensorType, read: Ref, write: Ref) -> Call:
        key = ("add", type_)
        name = self.names.of(key, "add")
        value = Value("x", type_)
        self.procedures[name] = Procedure(name, (value,), (Output(value, Mode.ADD),), ())
        return Call(name, (read, write))
