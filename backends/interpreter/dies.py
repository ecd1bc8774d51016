"""The dies that one process runs: their prepared instructions, and the engine that executes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from wscc.backends.interpreter.binding import DieMemory, Routine, Template
from wscc.backends.interpreter.checked import Shadow
from wscc.backends.interpreter.engine import DynamicCall, Ending, Engine
from wscc.backends.interpreter.exchange import Exchange, Key
from wscc.backends.interpreter.kernels.scratch import Array
from wscc.backends.interpreter.kernels.table import bound
from wscc.backends.interpreter.kernels.views import Prepared
from wscc.backends.interpreter.load_checks import column
from wscc.backends.interpreter.messages import Counts, Kind, Transport
from wscc.ir.streams.program import Streams

# Prepared instructions cached over all dies, about a kilobyte each; beyond it they are prepared again.
_MOST_PREPARED = 1 << 20

Routines = dict[int, dict[str, Routine]]
# A procedure, an instruction in it, and the arguments that the instruction uses.
_Addressed = tuple[str, int, tuple[int, ...]]


@dataclass(slots=True)
class Dies:
    """All dies of a machine, or those of worker `exchange.me` if there is an exchange.

    `calls` are the calls of each die, `shadows` the tags of each memory in checked mode, else empty. `sent` counts
    the messages of each die.
    """

    streams: Streams
    calls: Sequence[Sequence[DynamicCall]]
    routines: Routines
    memories: Sequence[DieMemory]
    shadows: Sequence[Shadow]
    name: Callable[[int], str]
    exchange: Exchange | None = None
    sent: list[Counts] = field(init=False)
    _codes: list[dict[DynamicCall, list[Prepared]]] = field(init=False, repr=False)
    _calls_by_address: list[dict[_Addressed, Prepared]] = field(init=False, repr=False)
    _transport: Transport = field(init=False, repr=False)

    def __post_init__(self) -> None:
        count = len(self.memories)
        self.sent = [{} for _ in range(count)]
        self._codes = [{} for _ in range(count)]
        self._calls_by_address = [{} for _ in range(count)]
        self._transport = Transport(exchange=self.exchange)

    def run_step(self) -> Ending:
        """Run the calls of a step on the dies of this process."""
        # Made for the step: what it calls back must not be held by what it is held by, or the memory of the dies
        # would stay until the interpreter of Python looks for cycles.
        dies = [die for die in range(len(self.memories)) if self._is_local(die)]
        enter = self._enter if self.shadows else None
        return Engine(dies, self._code, self.name, self._transport, enter).run(self.calls)

    def highest(self) -> list[int]:
        """One past the highest byte that this process wrote in the memory of each die."""
        return [m.highest for m in self.memories]

    def _is_local(self, die: int) -> bool:
        return self.exchange is None or self.exchange.workers[die] == self.exchange.me

    def _code(self, die: int, call: DynamicCall) -> list[Prepared]:
        """The prepared instructions of a call, cached."""
        codes = self._codes[die]
        code = codes.get(call)
        if code is None:
            if len(self._calls_by_address[die]) > _MOST_PREPARED // len(self.memories):
                self._calls_by_address[die].clear()
                codes.clear()
            name, args = call
            routine = self.routines[self.streams.roles[die]][name]
            code = codes[call] = [self._prepared(die, name, i, t, args) for i, t in enumerate(routine.body)]
        return code

    def _prepared(self, die: int, name: str, index: int, t: Template, args: tuple[int, ...]) -> Prepared:
        known = self._calls_by_address[die]
        key = (name, index, tuple([args[a] for a in t.args]))
        prepared = known.get(key)
        if prepared is None:
            prepared = self._prepare(die, t, args)
            if self.shadows:
                prepared = self.shadows[die].guard(t, args, prepared)
            known[key] = prepared
        return prepared

    def _prepare(self, die: int, t: Template, args: tuple[int, ...]) -> Prepared:
        memory, transport = self.memories[die], self._transport
        views, attrs = memory.views(t, args), memory.attrs(t)
        if t.opcode in ("post", "send") and not self._is_local(attrs[1]):
            return self._prepare_far(die, t, args)
        match t.opcode:
            case "post":
                return transport.post, (views[0], transport.box(attrs[1], die, attrs[0]))
            case "send":
                box = transport.box(die, attrs[1], attrs[0])
                return transport.send, (views[0], box, self.sent[die], self._kind(die, views[0], attrs[2]))
            case "wait":
                return transport.wait, (transport.end(die, attrs[0], attrs[1] == "sent"),)
            case _:
                return bound(t.run, (*views, *attrs))

    def _prepare_far(self, die: int, t: Template, args: tuple[int, ...]) -> Prepared:
        """The call for a post or send whose peer is run by another process."""
        assert self.exchange is not None
        memory, transport, sends = self.memories[die], self._transport, t.opcode == "send"
        channel, peer, *route = memory.attrs(t)
        number = self.exchange.numbers[(die, peer, channel) if sends else (peer, die, channel)]
        box = transport.far_box(
            transport.end(die, channel, sends), number, peer, self.memories[peer].described
        )
        (place,), (view,) = t.places, memory.views(t, args)
        words = self.exchange.describe(memory.address(place, args), place.sizes, place.strides, place.dtype)
        if sends:
            return transport.send_far, (view, box, words, self.sent[die], self._kind(die, view, *route))
        return transport.post_far, (view, box, words)

    def _kind(self, die: int, message: Array, route: int) -> Kind:
        """The key under which a message is counted in `sent`, whose count it starts at zero."""
        kind = (route, message.nbytes)
        self.sent[die].setdefault(kind, 0)
        return kind

    def _enter(self, die: int, call: DynamicCall) -> None:
        name, args = call
        self.shadows[die].enter(self.routines[self.streams.roles[die]][name], args)


def exchange_of(streams: Streams, routines: Routines, workers: Sequence[int]) -> Exchange:
    """The exchange for all channels between dies of different workers; `workers` has the worker of each die."""
    keys: set[Key] = set()
    rank = 0
    worker = np.array(workers)
    for role, by_name in routines.items():
        dies = np.flatnonzero(np.asarray(streams.roles) == role)
        rows = streams.bindings[dies]
        for t in {id(t): t for routine in by_name.values() for t in routine.body}.values():
            if t.opcode in ("post", "send"):
                channels, peers = (column(value, rows) for value in t.attrs[:2])
                ends = (dies, peers) if t.opcode == "send" else (peers, dies)
                far = worker[dies] != worker[peers]
                keys.update(zip(*(x[far].tolist() for x in (*ends, channels)), strict=True))
                rank = max(rank, len(t.places[0].sizes))
    return Exchange(sorted(keys), workers, rank)


def deal(dies: int, stages: int, workers: int) -> tuple[int, ...]:
    """The worker of each die; every worker has about the same number of dies.

    The axes that communicate most are innermost in the numbering of dies, so neighbours stay together; and each
    worker has a part of every pipeline stage, if there are enough dies, so that none waits while other stages work.
    """
    stage_dies = dies // stages
    if stage_dies < workers:
        return tuple(die * workers // dies for die in range(dies))
    return tuple(die % stage_dies * workers // stage_dies for die in range(dies))
