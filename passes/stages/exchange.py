"""What stages send each other: values between chunks, gradients back, and what concerns shared parameters."""

from __future__ import annotations

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
    """A message on its way forward, or its gradient on the way back."""

    message: Message
    backward: bool

    @property
    def chunks(self) -> tuple[int, int]:
        """From which to which."""
        m = self.message
        return (m.target, m.source) if self.backward else (m.source, m.target)


@dataclass(frozen=True, slots=True)
class _Move:
    """One value from a part on one stage to a part on another."""

    type: TensorType
    source: int
    target: int
    read: Ref
    write: Ref


class Exchanges:
    """Makes the calls in which stages meet; `sums` are carried gradients that add up contributions."""

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
        # Contributions to sums, and to gradients of shared parameters, wait in memory of their own.
        self.landing: dict[Hashable, Part] = {}
        for m in crossing:
            if (gradient := self.gradients.get(m.array, "")) in self.sums:
                slots = parts.slots[m.source].gradients
                name = f"{gradient}.{m.element}.from{m.target}"
                self._land(m, module.array(gradient), name, m.source % parts.stages, slots)

    def landing_arrays(self) -> Iterator[Array]:
        return (p.array for p in self.landing.values())

    def _land(self, key: Hashable, like: Array, name: str, stage: int, slots: int) -> None:
        extents = (slots,) if slots > 1 else ()
        made = Array(self.parts.names.of(key, name), like.type, Kind.CARRIED, extents, stage=stage)
        self.landing[key] = Part(made, 0, slots)

    # -- between chunks ---------------------------------------------------------------------------------

    def items(
        self, events: list[Timed], stages: int, work: Callable[[Timed], list[Item]]
    ) -> list[list[Item]]:  # fmt: skip
        """By stage, its `work` and its exchanges in order: after each slot, pair by pair."""
        out: list[list[Item]] = [[] for _ in range(stages)]
        slot = 0
        pending: list[tuple[Crossing, int]] = []
        for e in [*events, None]:
            if e is None or e.slot != slot:
                self._exchange(pending, out)
                pending, slot = [], e.slot if e else slot
            if e is not None:
                out[e.stage] += work(e)
                for m in self.messages if e.task.last else ():
                    crossing = Crossing(m, e.task.backward)
                    if crossing.chunks[0] == e.task.chunk:
                        pending.append((crossing, e.task.microbatch))
        return out

    def _exchange(self, pending: list[tuple[Crossing, int]], out: list[list[Item]]) -> None:
        pairs: dict[tuple[int, int], list[tuple[Crossing, int]]] = {}
        for crossing, m in pending:
            a, b = sorted(c % len(out) for c in crossing.chunks)
            pairs.setdefault((a, b), []).append((crossing, m))
        for (a, b), both in sorted(pairs.items()):
            item = Item(tuple(c for c, _ in both), tuple(m for _, m in both))
            for stage in {a: None, b: None}:
                out[stage].append(item)

    def call(self, key: object, microbatches: list[Affine]) -> Call:
        """The call of an exchange item."""
        assert isinstance(key, tuple)
        return self._pass([self._move(c, m) for c, m in zip(key, microbatches, strict=True)])

    def _move(self, crossing: Crossing, microbatch: Affine) -> _Move:
        m = crossing.message
        source, target = crossing.chunks
        name = self.gradients[m.array] if crossing.backward else m.array
        array = self.module.array(name)
        turns = array.extents[0] if crossing.backward and array.extents else 0
        index = (Affine(m.element, modulus=turns),) if array.extents else ()
        read = self.parts.of[name][source].ref(index, microbatch)
        if crossing.backward and name in self.sums:
            write = self.landing[m].ref((), microbatch)
        else:
            write = self.parts.of[name][target].ref(index, microbatch)
        stages = self.parts.stages
        return _Move(array.type, source % stages, target % stages, read, write)

    def landed(self, chunk: int, microbatch: Affine) -> Iterator[Call]:
        """Add to a chunk's gradients what other chunks have sent."""
        for m in self.messages:
            if m in self.landing and m.source == chunk:
                gradient = self.gradients[m.array]
                array = self.module.array(gradient)
                index = (Affine(m.element),) if array.extents else ()
                target = self.parts.of[gradient][chunk].ref(index, microbatch)
                yield self._add(array.type, self.landing[m].ref((), microbatch), target)

    # -- shared parameters ------------------------------------------------------------------------------

    def sum_shared_gradients(self, bodies: list[Body]) -> None:
        """Each owner gets what other stages have added up for its parameter."""
        for a, copies in self._shared():
            gradient = self.gradients.get(a.name, "")
            name = self.partials.get(gradient, gradient)
            name = name if name in self.parts.of else gradient
            if name not in self.parts.of:
                continue
            owner = self.parts.owner(a.name)
            like, held = self.module.array(name), self.parts.of[name]
            for stage in copies:
                key = (a.name, stage)
                self._land(key, like, f"{gradient}.from{stage}", owner, 0)
                landing = self.landing[key].ref((), NOW)
                self._meet(bodies, _Move(like.type, stage, owner, held[stage].ref((), NOW), landing))
                bodies[owner].append(self._add(like.type, landing, held[owner].ref((), NOW)))

    def send_shared_weights(self, bodies: list[Body]) -> None:
        """Each copy becomes what its owner has updated."""
        for a, copies in self._shared():
            owner, held = self.parts.owner(a.name), self.parts.of[a.name]
            for stage in copies:
                move = _Move(a.type, owner, stage, held[owner].ref((), NOW), held[stage].ref((), NOW))
                self._meet(bodies, move)

    def _shared(self) -> Iterator[tuple[Array, list[int]]]:
        """Parameters that several stages hold, with the stages of the copies."""
        for a in self.module.arrays:
            if a.kind is Kind.PARAM and a.name in self.parts.of and not self.parts.is_layered(a):
                _, *copies = self.parts.of[a.name]
                if copies:
                    yield a, copies

    def sum_over_stages(self, scalar: str, bodies: list[Body]) -> None:
        """Every stage gets the sum of what all have in the scalar."""
        given = Value(scalar, self.module.array(scalar).type)
        total = Value(f"{scalar}.total", given.type)
        reshard = Reshard("stage_sum", self.axis, given, total)
        name = self.names.of(scalar, f"{scalar}.over_stages")
        self.procedures[name] = Procedure(name, (given,), (Output(total),), (reshard,))
        for body in bodies:
            body.append(Call(name, (Ref(scalar), Ref(scalar))))

    # -- procedures -------------------------------------------------------------------------------------

    def _meet(self, bodies: list[Body], move: _Move) -> None:
        call = self._pass([move])
        for stage in {move.source: None, move.target: None}:
            bodies[stage].append(call)

    def _pass(self, moves: list[_Move]) -> Call:
        """The call that makes all the moves at once."""
        key = tuple((m.type, m.source, m.target) for m in moves)
        name = self.names.of(key, "pass")
        if name not in self.procedures:
            self.procedures[name] = self._passing(name, moves)
        return Call(name, (*(m.read for m in moves), *(m.write for m in moves)))

    def _passing(self, name: str, moves: list[_Move]) -> Procedure:
        inputs, outputs, body = [], [], []
        for i, m in enumerate(moves):
            given = made = Value(f"x{i}", m.type)
            if m.source != m.target:
                made = Value(f"y{i}", m.type)
                body.append(Reshard("permute", self.axis, given, made, source=m.source, target=m.target))
            inputs.append(given)
            outputs.append(Output(made))
        return Procedure(name, tuple(inputs), tuple(outputs), tuple(body))

    def _add(self, type_: TensorType, read: Ref, write: Ref) -> Call:
        key = ("add", type_)
        name = self.names.of(key, "add")
        given = Value("x", type_)
        self.procedures[name] = Procedure(name, (given,), (Output(given, Mode.ADD),), ())
        return Call(name, (read, write))
