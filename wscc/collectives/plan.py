"""Requests of collectives, and their plans: chunks of data, and the messages that move them, in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from wscc.machine.topology import Topology

Link = tuple[int, int]


class Op(StrEnum):
    """The collectives. `bytes` of a request means the whole vector for gather, scatter and reduce, the
    message for broadcast and p2p, and what each die holds for all_to_all."""

    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_REDUCE = "all_reduce"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    P2P = "p2p"


@dataclass(frozen=True)
class Request:
    """A collective over all live dies of a connected machine.

    `root` sends a broadcast or a p2p message and `target` receives the latter (numbers of dies).
    """

    op: Op
    topology: Topology
    bytes: int
    root: int
    target: int

    @property
    def dies(self) -> tuple[int, ...]:
        return self.topology.live

    @property
    def shards(self) -> tuple[int, ...]:
        """`bytes` in as many nearly equal whole parts as there are live dies, in their order."""
        return split(self.bytes, len(self.dies))


class Chunk(NamedTuple):
    """A piece of data: its bytes, the dies that hold (a contribution to) it, and those that need all of it."""

    bytes: int
    sources: frozenset[int]
    targets: frozenset[int]


COPY: Final = "copy"
REDUCE: Final = "reduce"


class Message(NamedTuple):
    """Chunks that cross one link together. `copy` replaces the receiver's value, `reduce` adds to it."""

    src: int
    dst: int
    op: str
    chunks: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """Messages in an order that links and dies keep: a link sends its messages in this order, and a message
    waits for every earlier one that brings one of its chunks to its sender."""

    algorithm: str
    chunks: tuple[Chunk, ...]
    messages: tuple[Message, ...]

    @property
    def sizes(self) -> list[int]:
        return [c.bytes for c in self.chunks]


def split(total: int, parts: int) -> tuple[int, ...]:
    """`total` as whole numbers that differ by at most one, the larger ones spread evenly."""
    return tuple((i + 1) * total // parts - i * total // parts for i in range(parts))


def pieces_of(total: int, pieces: int) -> Iterator[int]:
    """The parts of `split` that are not empty."""
    return (n for n in split(total, pieces) if n)


def time_reversal(plan: Plan) -> Plan:
    """The plan with every message reversed, last first: a broadcast from one die becomes a reduction to it."""
    chunks = tuple(Chunk(c.bytes, c.targets | c.sources, c.sources) for c in plan.chunks)
    messages = tuple(Message(m.dst, m.src, REDUCE, m.chunks) for m in reversed(plan.messages))
    return Plan(plan.algorithm, chunks, messages)


def reduce_then_gather(plan: Plan) -> Plan:
    """The plan of an all_reduce from one of an all_gather: its time reversal, then itself, without a barrier."""
    back = time_reversal(plan)
    chunks = tuple(Chunk(c.bytes, c.sources, c.sources) for c in back.chunks)
    return Plan(plan.algorithm, chunks, back.messages + plan.messages)
