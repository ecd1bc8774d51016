"""Runs the streams of a program with real numbers: one byte arena per die, and messages between them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wscc.backends.binding import DieMemory, Prepared, Routine, Template
from wscc.backends.blas import limit_blas_to_one_thread
from wscc.backends.checked import Shadow
from wscc.backends.engine import DynamicCall, Engine
from wscc.backends.load_checks import (
    check_calls,
    check_computer,
    check_dies,
    check_memory,
    check_messages,
    die_name,
)
from wscc.ir.artifact import Manifest
from wscc.ir.program import Streams, dynamic_calls, stage_of_role
from wscc.ir.routes import crossings

# Prepared instructions kept over all dies, about a kilobyte each; beyond it they are made again.
_KEPT = 1 << 20


@dataclass(slots=True)
class Machine:
    """The dies of a program, loaded and ready to step.

    `checked` poisons memory that nothing has written and refuses to read it, and to touch memory that a
    message is using. `CompileError`: W501 if the program does not fit itself or the wafer (at load) or an
    instruction cannot be executed, W401 if this computer cannot hold the dies, W502 if dies wait for one
    another, W504 if a check fails. After an error in `run_step` the machine is of no more use.
    """

    streams: Streams
    manifest: Manifest
    threads: int = 1
    checked: bool = False
    _calls: list[list[DynamicCall]] = field(init=False, repr=False)
    _routines: dict[int, dict[str, Routine]] = field(init=False, repr=False)
    _memories: list[DieMemory] = field(init=False, repr=False)
    _shadows: list[Shadow] = field(init=False, repr=False)
    _codes: list[dict[DynamicCall, list[Prepared]]] = field(init=False, repr=False)
    _sent: list[dict[tuple[int, int], int]] = field(init=False, repr=False)
    _engine: Engine = field(init=False, repr=False)

    def __post_init__(self) -> None:
        limit_blas_to_one_thread()
        streams, dies = self.streams, len(self.streams.dies)
        check_dies(streams, self.manifest)
        check_computer(streams, shadows=self.checked)
        steps = [list(dynamic_calls(step)) for step in streams.steps]
        stages = stage_of_role(streams)
        self._calls = [steps[stages[role]] for role in streams.roles]
        # What roles have in common is one object, unless it was read from a file.
        known: dict[tuple[int, int], Template] = {}
        self._routines = {
            p.role: {c.name: Routine.of(c, known) for c in p.procedures} for p in streams.programs
        }
        for stage, calls in enumerate(steps):
            routines = {role: r for role, r in self._routines.items() if stages[role] == stage}
            check_calls(routines, calls)
            check_memory(streams, routines, calls)
        check_messages(streams, self.manifest, self._routines)
        self._memories = [DieMemory.of(streams.arena_bytes, streams.bindings[i]) for i in range(dies)]
        self._shadows = [Shadow(m) for m in self._memories] if self.checked else []
        self._codes = [{} for _ in range(dies)]
        self._sent = [{} for _ in range(dies)]
        self._engine = Engine(dies, self._code, self.die_name, self.threads)
        if self.checked:
            self._engine.enter = self._enter

    def run_step(self) -> None:
        """Every die executes the step once."""
        self._engine.run(self._calls)

    def die_name(self, die: int) -> str:
        """The place of a logical die on the wafer, `(row, column)`."""
        return die_name(self.streams.dies[die], self.manifest)

    def store(self, die: int, address: int, value: NDArray[np.generic]) -> None:
        """The host writes an array, contiguous, into a die's memory."""
        value = np.ascontiguousarray(value)
        memory = self._memories[die]
        memory.arena[address : address + value.nbytes] = value.reshape(-1).view(np.uint8)
        memory.highest = max(memory.highest, address + value.nbytes)
        if self.checked:
            self._shadows[die].store(address, value.nbytes)

    def load(
        self, die: int, address: int, shape: tuple[int, ...], dtype: np.dtype[np.generic]
    ) -> NDArray[np.generic]:
        """A copy of an array in a die's memory."""
        view: NDArray[np.generic] = np.ndarray(shape, dtype, self._memories[die].arena.data, address)
        if self.checked:
            self._shadows[die].load(address, view.nbytes)
        return view.copy()

    def traffic(self) -> dict[tuple[int, int], int]:
        """Bytes carried so far by each link that carried any: (physical die, its neighbour), one way."""
        links: dict[tuple[int, int], int] = {}
        crossed = crossings(self.streams.routes)
        for sent in self._sent:
            for (route, amount), times in sent.items():
                parts = self.streams.routes[route].parts(amount)
                for leg, link in crossed[route]:
                    links[link] = links.get(link, 0) + parts[leg] * times
        return dict(sorted(links.items()))

    def peak_bytes(self) -> tuple[int, ...]:
        """By logical die, one past the highest byte that an executed instruction or the host wrote."""
        return tuple(m.highest for m in self._memories)

    def _code(self, die: int, call: DynamicCall) -> list[Prepared]:
        """The prepared instructions of a call; made once."""
        codes = self._codes[die]
        code = codes.get(call)
        if code is None:
            if len(self._memories[die].prepared) > _KEPT // len(self._memories):
                self._memories[die].prepared.clear()
                codes.clear()
            name, args = call
            routine = self._routines[self.streams.roles[die]][name]
            code = codes[call] = [self._prepared(die, name, i, t, args) for i, t in enumerate(routine.body)]
        return code

    def _prepared(self, die: int, name: str, index: int, t: Template, args: tuple[int, ...]) -> Prepared:
        memory = self._memories[die]
        key = (name, index, tuple([args[a] for a in t.args]))
        known = memory.prepared.get(key)
        if known is None:
            known = self._prepare(die, t, args)
            if self.checked:
                known = self._shadows[die].guard(t, args, known)
            memory.prepared[key] = known
        return known

    def _prepare(self, die: int, t: Template, args: tuple[int, ...]) -> Prepared:
        memory, transport = self._memories[die], self._engine.transport
        views, attrs = memory.views(t, args), memory.attrs(t)
        match t.opcode:
            case "post":
                return transport.post, (views[0], transport.box(attrs[1], die, attrs[0]))
            case "send":
                box = transport.box(die, attrs[1], attrs[0])
                return transport.send, (views[0], box, self._sent[die], attrs[2])
            case "wait":
                return transport.wait, (transport.end(die, attrs[0], attrs[1] == "sent"),)
            case _:
                return t.run, (*views, *attrs)

    def _enter(self, die: int, call: DynamicCall) -> None:
        name, _ = call
        self._shadows[die].enter(self._routines[self.streams.roles[die]][name])
