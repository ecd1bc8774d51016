"""The plan of a collective as a program: every die is a role, every message one `send` over one link.

A die does its part of every message in the order of the plan. So there is no deadlock: of the messages that are
not done, the first in that order waits only for messages that are done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from wscc.backends.collective.memory import ELEMENT, Layout, lands_in_place
from wscc.collectives.plan import COPY, Link, Message, Plan, Request
from wscc.ir.routes import Route
from wscc.ir.streams.program import Address, Code, Instruction, Operand, Program, ProgramCall, Streams

NAME = "collective"


@dataclass
class _Die:
    """Builder of the instructions of one die. `sending` has the chunks that a message over a channel still reads,
    `holds` the chunks with a value; equal instructions are one object (of `cache`), which the interpreter prepares
    once."""

    layout: Layout
    cache: dict[Instruction, Instruction]
    body: list[Instruction] = field(default_factory=list)
    sending: dict[int, frozenset[int]] = field(default_factory=dict)
    holds: set[int] = field(default_factory=set)

    def send(self, m: Message, channel: int, peer: int) -> None:
        self._settle(channel)
        link, layout = (m.src, m.dst), self.layout
        if len(m.chunks) == 1:
            read = layout.chunk(m.chunks[0])
        else:
            size = 0
            for c in m.chunks:
                chunk = layout.chunk(c)
                self._emit("copy", layout.pack(link, size, chunk.shape[0]), chunk)
                size += chunk.shape[0]
            read = layout.pack(link, 0, size)
        attrs = (("channel", channel), ("peer", peer), ("route", channel))
        self._add(Instruction("send", (), (read,), attrs))
        self.sending[channel] = frozenset(m.chunks if len(m.chunks) == 1 else ())

    def receive(self, m: Message, channel: int, peer: int) -> None:
        link, layout = (m.src, m.dst), self.layout
        for busy in [k for k, chunks in self.sending.items() if not chunks.isdisjoint(m.chunks)]:
            self._settle(busy)
        sizes = [layout.elements[c] for c in m.chunks]
        direct = lands_in_place(m.op, len(m.chunks))
        slot = layout.chunk(m.chunks[0]) if direct else layout.slot(link, 0, sum(sizes))
        self._add(Instruction("post", (slot,), (), (("channel", channel), ("peer", peer))))
        self._wait(channel, "received")
        start = 0
        for c, size in zip(() if direct else m.chunks, () if direct else sizes, strict=True):
            received, chunk = layout.slot(link, start, size), layout.chunk(c)
            if m.op == COPY or c not in self.holds:
                self._emit("copy", chunk, received)
            else:
                self._emit("add", chunk, chunk, received)
            start += size
        self.holds.update(m.chunks)

    def finish(self) -> tuple[Instruction, ...]:
        for channel in list(self.sending):
            self._settle(channel)
        return tuple(self.body)

    def _settle(self, channel: int) -> None:
        """Wait until the message in flight on the channel has been sent."""
        if self.sending.pop(channel, None) is not None:
            self._wait(channel, "sent")

    def _wait(self, channel: int, side: str) -> None:
        self._add(Instruction("wait", (), (), (("channel", channel), ("side", side))))

    def _emit(self, opcode: str, write: Operand, *reads: Operand) -> None:
        self._add(Instruction(opcode, (write,), reads))

    def _add(self, instruction: Instruction) -> None:
        self.body.append(self.cache.setdefault(instruction, instruction))


def streams_of(request: Request, plan: Plan, memory: Mapping[int, Layout]) -> Streams:
    """The streams that execute a plan. Logical die i is the i-th live die; the host's part of the arena is at 0."""
    number = {d: i for i, d in enumerate(request.dies)}
    channel: dict[Link, int] = {link: i for i, link in enumerate(request.topology.links)}
    cache: dict[Instruction, Instruction] = {}
    dies = {d: _Die(layout, cache) for d, layout in memory.items()}
    for c, chunk in enumerate(plan.chunks):
        for d in chunk.sources:
            dies[d].holds.add(c)
    for m in plan.messages:
        number_of_link = channel[m.src, m.dst]
        dies[m.src].send(m, number_of_link, number[m.dst])
        dies[m.dst].receive(m, number_of_link, number[m.src])
    return Streams(
        programs=tuple(
            Program(i, (Code(NAME, 1, dies[d].finish()),)) for i, d in enumerate(request.dies)
        ),
        steps=((ProgramCall(NAME, (Address(0),)),),),
        dies=request.dies,
        roles=tuple(range(len(request.dies))),
        bindings=np.zeros((len(request.dies), 0), np.int64),
        routes=tuple(map(Route.along, request.topology.links)),
        arena_bytes=_largest(list(memory.values())),
    )  # fmt: skip


def _largest(memory: Sequence[Layout]) -> int:
    return max(layout.size for layout in memory) * ELEMENT.size
