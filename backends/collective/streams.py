"""The schedule of a collective as a program: every die a role, every message one `send` over one link.

A die does its part of every message in the order of the plan. Then nothing can stick: of the messages that are
not done, the first in that order finds all that it waits for done.
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
    """The growing instructions of one die. `sending` has the chunks that a message over a channel still reads;
    equal instructions are one object (of `known`), so that the interpreter prepares them once."""

    layout: Layout
    known: dict[Instruction, Instruction]
    body: list[Instruction] = field(default_factory=list)
    sending: dict[int, frozenset[int]] = field(default_factory=dict)
    holds: set[int] = field(default_factory=set)

    def send(self, m: Message, channel: int, peer: int) -> None:
        self._settle(channel)
        link, layout = (m.src, m.dst), self.layout
        if len(m.chunks) == 1:
            read = layout.chunk(m.chunks[0])
        else:
            at = 0
            for c in m.chunks:
                chunk = layout.chunk(c)
                self._emit("copy", layout.pack(link, at, chunk.shape[0]), chunk)
                at += chunk.shape[0]
            read = layout.pack(link, 0, at)
        given = (("channel", channel), ("peer", peer), ("route", channel))
        self._add(Instruction("send", (), (read,), given))
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
        at = 0
        for c, size in zip(() if direct else m.chunks, () if direct else sizes, strict=True):
            arrived, chunk = layout.slot(link, at, size), layout.chunk(c)
            if m.op == COPY or c not in self.holds:
                self._emit("copy", chunk, arrived)
            else:
                self._emit("add", chunk, chunk, arrived)
            at += size
        self.holds.update(m.chunks)

    def finish(self) -> tuple[Instruction, ...]:
        for channel in list(self.sending):
            self._settle(channel)
        return tuple(self.body)

    def _settle(self, channel: int) -> None:
        """Until the message under way on the channel has left."""
        if self.sending.pop(channel, None) is not None:
            self._wait(channel, "sent")

    def _wait(self, channel: int, side: str) -> None:
        self._add(Instruction("wait", (), (), (("channel", channel), ("side", side))))

    def _emit(self, opcode: str, write: Operand, *reads: Operand) -> None:
        self._add(Instruction(opcode, (write,), reads))

    def _add(self, instruction: Instruction) -> None:
        self.body.append(self.known.setdefault(instruction, instruction))


def streams_of(request: Request, plan: Plan, memory: Mapping[int, Layout]) -> Streams:
    """Logical die i is the i-th live die. The host's part of the arena is at address 0."""
    number = {d: i for i, d in enumerate(request.dies)}
    channel: dict[Link, int] = {link: i for i, link in enumerate(request.topology.links)}
    known: dict[Instruction, Instruction] = {}
    dies = {d: _Die(layout, known) for d, layout in memory.items()}
    for c, chunk in enumerate(plan.chunks):
        for d in chunk.sources:
            dies[d].holds.add(c)
    for m in plan.messages:
        on = channel[m.src, m.dst]
        dies[m.src].send(m, on, number[m.dst])
        dies[m.dst].receive(m, on, number[m.src])
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
