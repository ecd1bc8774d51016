"""Two independent executions of fabric modules: transfer by transfer, and dies by themselves with messages.

The second is as adverse as the rules allow: any die may run next, and a message is read from the sender and written to
the slot at any time between its send and post and the first wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from tests.support.fabric_modules import DTYPE, ELEMENTS, elements
from wscc.ir.fabric import Kernel, Post, Send, Transfer, Wait
from wscc.ir.module import Module, Procedure
from wscc.ir.per_die import NOBODY, at
from wscc.ir.step import Ref, walk
from wscc.ir.streams.program import Column, Operand, Streams, dynamic_calls
from wscc.ir.views import View

Floats = NDArray[np.float64]
# By storage array: [element, die, position].
State = dict[str, Floats]


def initial_state(module: Module, seed: int = 0) -> State:
    rng = np.random.default_rng(seed)
    return {
        a.name: rng.integers(-4, 5, (a.count, module.dies_used, ELEMENTS)).astype(np.float64)
        for a in module.arrays
        if not a.storage
    }


def compute(opcode: str, out: Floats, reads: list[Floats], attrs: dict[str, Any]) -> None:
    with np.errstate(all="ignore"):
        match opcode:
            case "copy":
                out[...] = reads[0].copy()
            case "add":
                out[...] = reads[0] + reads[1]
            case "scale":
                out[...] = attrs["factor"] * reads[0]
            case "fill":
                out[...] = attrs["value"]
            case "gemm":
                product = attrs["scale"] * (reads[0] @ reads[1])
                out[...] = out + product if attrs["accumulate"] else product
            case _:
                raise AssertionError(opcode)


def run_in_order(module: Module, state: State) -> State:
    """The state after a step in which all dies execute each statement in turn; a transfer copies sender by sender."""
    state = {k: v.copy() for k, v in state.items()}
    for call, variables in walk(module.step):
        procedure = module.procedure(call.procedure)
        memory = _bind(module, procedure, call.args, variables, state)
        for stmt in procedure.body:
            match stmt:
                case Kernel():
                    for d in range(module.dies_used):
                        if at(stmt.where, d):
                            _kernel(stmt, memory, d)
                case Transfer():
                    pairs = stmt.pairs(module.dies_used)
                    data = [_get(memory, stmt.read, i) for i, _ in pairs]
                    for (_, j), values in zip(pairs, data, strict=True):
                        memory[stmt.write.buffer][j].reshape(-1)[elements(stmt.write, j)] = values
                case _:
                    raise AssertionError(stmt)
    return state


def _element(module: Module, ref: Ref, variables: dict[str, int]) -> tuple[str, int]:
    array = module.array(ref.array)
    number = 0
    for extent, index in zip(array.extents, ref.index, strict=True):
        number = number * extent + index.at(variables)
    return array.storage or array.name, number


def _bind(
    module: Module, procedure: Procedure, args: tuple[Ref, ...], variables: dict[str, int], state: State
) -> dict[str, Floats]:
    memory = {b.name: np.full((module.dies_used, b.elements), np.nan) for b in procedure.buffers}
    for value, ref in reversed(list(zip(procedure.arguments, args, strict=True))):
        name, number = _element(module, ref, variables)
        memory[value.name] = state[name][number]
    return memory


def _get(memory: dict[str, Floats], view: View, die: int) -> Floats:
    return memory[view.buffer][die][elements(view, die)]


def _kernel(stmt: Kernel, memory: dict[str, Floats], die: int) -> None:
    (target,) = stmt.writes
    out = _get(memory, target, die)
    compute(stmt.opcode, out, [_get(memory, v, die) for v in stmt.reads], dict(stmt.attrs))
    memory[target.buffer][die][elements(target, die)] = out


# -- dies on their own ----------------------------------------------------------------------------------


@dataclass
class Message:
    """One end of a message: the view that it reads or writes, and whether it is done."""

    view: Floats
    done: bool = False


# One step of a die: an operation at once, or a wait that may have to be repeated.
Action = tuple[str, tuple[Any, ...]]


class Deadlock(AssertionError):
    pass


# (channel, sender, receiver)
Key = tuple[int, int, int]


@dataclass
class Network:
    """Messages in flight, and those that a die has yet to wait for, by (die, channel, is sent)."""

    posted: dict[Key, list[Message]] = field(default_factory=dict)
    sent: dict[Key, list[Message]] = field(default_factory=dict)
    open: dict[tuple[int, int, bool], tuple[Key, Message]] = field(default_factory=dict)

    def deliver(self, key: Key) -> None:
        if self.posted.get(key) and self.sent.get(key):
            slot, source = self.posted[key].pop(0), self.sent[key].pop(0)
            slot.view[...] = source.view.copy()
            slot.done = source.done = True

    def deliver_any(self, rng: Random) -> None:
        if ready := [k for k in self.posted if self.posted[k] and self.sent.get(k)]:
            self.deliver(rng.choice(ready))

    def step(self, die: int, action: Action) -> bool:
        """Try one action of a die; False if it must be tried again."""
        kind, rest = action
        if kind == "do":
            rest[0]()
            return True
        if kind == "wait":
            return self._wait(die, *rest)
        channel, peer, view = rest
        key = (channel, peer, die) if kind == "post" else (channel, die, peer)
        message, end = Message(view), (die, channel, kind == "send")
        (self.posted if kind == "post" else self.sent).setdefault(key, []).append(message)
        assert end not in self.open, f"channel {channel} used again before its wait"
        self.open[end] = key, message
        return True

    def _wait(self, die: int, channel: int, is_sent: bool) -> bool:
        key, message = self.open[die, channel, is_sent]
        if not message.done:
            self.deliver(key)
        if message.done:
            del self.open[die, channel, is_sent]
        return message.done


def run_apart(dies: int, programs: list[Iterator[Action]], rng: Random) -> None:
    """Run the actions of each die in order, dies interleaved at random, until all have ended; `Deadlock` if none
    can."""
    network = Network()
    current: list[Action | None] = [next(p, None) for p in programs]
    while any(a is not None for a in current):
        progress = False
        order = [d for d in range(dies) if current[d] is not None]
        rng.shuffle(order)
        for d in order:
            for _ in range(rng.randint(1, 6)):
                action = current[d]
                if action is None or not network.step(d, action):
                    break
                progress = True
                current[d] = next(programs[d], None)
            if rng.random() < 0.2:
                network.deliver_any(rng)
        if not progress:
            raise Deadlock([a for a in current if a is not None])
    assert not network.open, "a message is not over at the end"


def run_scheduled(module: Module, state: State, rng: Random) -> State:
    """The state after a step of a scheduled module, whose locals have memory of their own."""
    state = {k: v.copy() for k, v in state.items()}

    def program(d: int) -> Iterator[Action]:
        for call, variables in walk(module.step):
            procedure = module.procedure(call.procedure)
            memory = {b.name: np.full(b.elements, np.nan) for b in procedure.buffers}
            for value, ref in reversed(list(zip(procedure.arguments, call.args, strict=True))):
                name, number = _element(module, ref, variables)
                memory[value.name] = state[name][number, d]
            yield from _actions(procedure, d, lambda v, m=memory: strided(m[v.buffer], v, d))  # type: ignore[misc]

    run_apart(module.dies_used, [program(d) for d in range(module.dies_used)], rng)
    return state


def strided(buffer: Floats, view: View, die: int) -> Floats:
    tail = buffer[at(view.offset, die) :]
    return as_strided(tail, view.shape, tuple(s * buffer.itemsize for s in view.strides))


def run_planned(module: Module, state: State, rng: Random) -> State:
    """The state after a step of a planned module: everything at its address in one arena per die, NaN at first."""
    assert module.memory is not None
    arenas = [np.full(module.memory.arena_bytes // 8, np.nan) for _ in range(module.dies_used)]
    store_arrays(module, state, arenas)

    def program(d: int) -> Iterator[Action]:
        for call, variables in walk(module.step):
            procedure = module.procedure(call.procedure)
            base = {b.name: b.address for b in procedure.buffers}
            for value, ref in zip(procedure.arguments, call.args, strict=True):
                place = module.memory.placement(ref.array)  # type: ignore[union-attr]
                base[value.name] = place.address + place.stride * _element(module, ref, variables)[1]

            def find(view: View, base: dict[str, int] = base) -> Floats:
                assert base[view.buffer] % 64 == 0
                return strided(arenas[d][base[view.buffer] // 8 :], view, d)

            yield from _actions(procedure, d, find)

    run_apart(module.dies_used, [program(d) for d in range(module.dies_used)], rng)
    return load_arrays(module, arenas)


def run_streams(module: Module, streams: Streams, state: State, rng: Random) -> State:
    """The state after a step of instruction streams; the module only gives the addresses of arrays."""
    arenas = [np.full(streams.arena_bytes // 8, np.nan) for _ in streams.dies]
    store_arrays(module, state, arenas)

    def program(d: int) -> Iterator[Action]:
        row = streams.bindings[d]

        def value(x: Any) -> Any:
            return int(row[x.index]) if isinstance(x, Column) else x

        for name, args in dynamic_calls(streams.steps[0]):

            def find(o: Operand, args: tuple[int, ...] = args) -> Floats:
                start = value(o.offset) + (0 if o.arg < 0 else args[o.arg])
                assert o.dtype is DTYPE
                assert start % 8 == 0
                return as_strided(arenas[d][start // 8 :], o.shape, tuple(8 * s for s in o.strides))

            for ins in streams.programs[streams.roles[d]].code(name).body:
                attrs = {k: value(v) for k, v in ins.attrs}
                writes, reads = [find(o) for o in ins.writes], [find(o) for o in ins.reads]
                match ins.opcode:
                    case "post":
                        yield "post", (attrs["channel"], attrs["peer"], writes[0])
                    case "send":
                        ends = streams.dies[d], streams.dies[attrs["peer"]]
                        assert streams.routes[attrs["route"]].ends == ends
                        yield "send", (attrs["channel"], attrs["peer"], reads[0])
                    case "wait":
                        yield "wait", (attrs["channel"], attrs["side"] == "sent")
                    case _:
                        yield "do", (lambda i=ins, w=writes, r=reads, a=attrs: compute(i.opcode, w[0], r, a),)

    run_apart(len(streams.dies), [program(d) for d in range(len(streams.dies))], rng)
    return load_arrays(module, arenas)


def _actions(procedure: Procedure, d: int, find: Callable[[View], Floats]) -> Iterator[Action]:
    for stmt in procedure.body:
        match stmt:
            case Kernel() if at(stmt.where, d):
                out, reads = find(stmt.writes[0]), [find(v) for v in stmt.reads]
                yield "do", (lambda s=stmt, o=out, r=reads: compute(s.opcode, o, r, dict(s.attrs)),)
            case Post() if at(stmt.sender, d) != NOBODY:
                yield "post", (stmt.channel, at(stmt.sender, d), find(stmt.write))
            case Send() if at(stmt.to, d) != NOBODY:
                yield "send", (stmt.channel, at(stmt.to, d), find(stmt.read))
            case Wait() if at(stmt.where, d):
                yield "wait", (stmt.channel, stmt.sent)
            case Transfer():
                raise AssertionError("not scheduled")


def store_arrays(module: Module, state: State, arenas: list[Floats]) -> None:
    assert module.memory is not None
    for name, values in state.items():
        place = module.memory.placement(name)
        for e, d in np.ndindex(values.shape[:2]):
            start = (place.address + e * place.stride) // 8
            arenas[d][start : start + ELEMENTS] = values[e, d]


def load_arrays(module: Module, arenas: list[Floats]) -> State:
    assert module.memory is not None
    state = {}
    for a in module.arrays:
        if not a.storage:
            place = module.memory.placement(a.name)
            starts = [(place.address + e * place.stride) // 8 for e in range(a.count)]
            state[a.name] = np.stack([[arena[s : s + ELEMENTS] for arena in arenas] for s in starts])
    return state


def assert_same(a: State, b: State) -> None:
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)
