"""When the paths of chunks are known: which chunk each link sends next, by list scheduling.

Every link that is free takes the most urgent chunks that its sender has: the earliest wave first, then the one
with the most hops still ahead of it (critical path first), as many as share a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from typing import NamedTuple

from wscc.collectives.plan import COPY, Link, Message
from wscc.collectives.timing import LinkModel


class Arc(NamedTuple):
    """One hop of a chunk."""

    src: int
    dst: int
    op: str = COPY


@dataclass(frozen=True)
class Route:
    """The hops of a chunk. A hop waits for every earlier one into the die that it leaves."""

    arcs: tuple[Arc, ...]

    @cached_property
    def followers(self) -> tuple[tuple[int, ...], ...]:
        """By hop: the hops that wait for it."""
        out: list[list[int]] = [[] for _ in self.arcs]
        into: dict[int, list[int]] = {}
        for i, arc in enumerate(self.arcs):
            for before in into.get(arc.src, ()):
                out[before].append(i)
            into.setdefault(arc.dst, []).append(i)
        return tuple(map(tuple, out))

    @cached_property
    def waits(self) -> tuple[int, ...]:
        """By hop: how many it waits for."""
        count = [0] * len(self.arcs)
        for after in self.followers:
            for i in after:
                count[i] += 1
        return tuple(count)

    @cached_property
    def tails(self) -> tuple[int, ...]:
        """By hop: the length of the longest chain of hops that it starts."""
        tail = [1] * len(self.arcs)
        for i in reversed(range(len(self.arcs))):
            tail[i] = 1 + max((tail[j] for j in self.followers[i]), default=0)
        return tuple(tail)


def arrange(
    routes: Sequence[Route], sizes: Sequence[int], waves: Sequence[int], model: LinkModel, limit: int
) -> tuple[Message, ...]:
    """The messages that take chunk c, of `sizes[c]` bytes, along `routes[c]`; up to `limit` bytes share one.

    Chunks of a lower wave go first where they meet.
    """
    return _Arranging(routes, sizes, waves, model, limit).run()


class _Arranging:
    def __init__(
        self, routes: Sequence[Route], sizes: Sequence[int], waves: Sequence[int], model: LinkModel, limit: int
    ) -> None:  # fmt: skip
        self.routes, self.sizes, self.waves, self.model, self.limit = routes, sizes, waves, model, limit
        self.pending = [list(route.waits) for route in routes]
        # By link and kind of message: (wave, -hops ahead, chunk, hop) of what waits to be sent.
        self.queues: dict[Link, list[tuple[int, int, int, int]]] = {}
        self.busy_until: dict[Link, float] = {}
        # Either a link is free (chunk -1), or a hop of a chunk is done.
        self.events: list[tuple[float, int, int, Link]] = []
        self.messages: list[Message] = []

    def run(self) -> tuple[Message, ...]:
        awake: set[Link] = set()
        for c, waits in enumerate(self.pending):
            awake.update(self._queue(c, i) for i, count in enumerate(waits) if not count)
        now = 0.0
        while True:
            for link in sorted(awake):
                if self.queues.get(link) and self.busy_until.get(link, 0.0) <= now:
                    self._send(link, now)
            if not self.events:
                return tuple(self.messages)
            now = self.events[0][0]
            awake = self._advance(now)

    def _queue(self, c: int, hop: int) -> Link:
        arc = self.routes[c].arcs[hop]
        link = (arc.src, arc.dst)
        heappush(self.queues.setdefault(link, []), (self.waves[c], -self.routes[c].tails[hop], c, hop))
        return link

    def _advance(self, now: float) -> set[Link]:
        awake: set[Link] = set()
        while self.events and self.events[0][0] == now:
            _, c, hop, link = heappop(self.events)
            if c < 0:
                awake.add(link)
                continue
            for after in self.routes[c].followers[hop]:
                self.pending[c][after] -= 1
                if not self.pending[c][after]:
                    awake.add(self._queue(c, after))
        return awake

    def _send(self, link: Link, now: float) -> None:
        """One message: chunks in order of urgency while they fit and are of the same kind."""
        queue, size = self.queues[link], 0
        hops: list[tuple[int, int]] = []
        op = self._op_of(queue[0])
        while (
            queue
            and self._op_of(queue[0]) == op
            and (not hops or size + self.sizes[queue[0][2]] <= self.limit)
        ):
            _, _, c, hop = heappop(queue)
            hops.append((c, hop))
            size += self.sizes[c]
        self.messages.append(Message(*link, op, tuple(c for c, _ in hops)))
        free = now + self.model.hold(size)
        self.busy_until[link] = free
        heappush(self.events, (free, -1, 0, link))
        early = self.model.passes_early(op)
        at = now + self.model.latency if early else now + self.model.span(size)
        for c, hop in hops:
            heappush(self.events, (at, c, hop, link))
            at += self.sizes[c] if early else 0

    def _op_of(self, waiting: tuple[int, int, int, int]) -> str:
        return self.routes[waiting[2]].arcs[waiting[3]].op
