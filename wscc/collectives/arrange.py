"""Messages that take chunks along given paths, in an order found by list scheduling (R. Graham, 1969).

Every free link sends the most urgent chunks that its sender has: the earliest wave first, then the one with the
most hops still ahead of it (critical path first), as many as share a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from typing import NamedTuple

from wscc.collectives.plan import COPY, Message
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
        """The hops that wait for each hop."""
        out: list[list[int]] = [[] for _ in self.arcs]
        into: dict[int, list[int]] = {}
        for i, arc in enumerate(self.arcs):
            for previous in into.get(arc.src, ()):
                out[previous].append(i)
            into.setdefault(arc.dst, []).append(i)
        return tuple(map(tuple, out))

    @cached_property
    def waits(self) -> tuple[int, ...]:
        """The number of hops that each hop waits for."""
        count = [0] * len(self.arcs)
        for followers in self.followers:
            for i in followers:
                count[i] += 1
        return tuple(count)

    @cached_property
    def tails(self) -> tuple[int, ...]:
        """The length of the longest chain of hops that each hop starts."""
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


# (wave, -hops ahead, chunk, hop) of a chunk that waits for a link.
_Waiting = tuple[int, int, int, int]


class _Arranging:
    """The state of list scheduling: the queue of each link (by number) and the time until which it is busy."""

    def __init__(
        self, routes: Sequence[Route], sizes: Sequence[int], waves: Sequence[int], model: LinkModel, limit: int
    ) -> None:  # fmt: skip
        self.sizes, self.waves, self.model, self.limit = sizes, waves, model, limit
        self.routes = routes
        distinct = {id(route): route for route in routes}
        self.links = sorted({(arc.src, arc.dst) for route in distinct.values() for arc in route.arcs})
        number = {link: i for i, link in enumerate(self.links)}
        numbers = {key: [number[a.src, a.dst] for a in route.arcs] for key, route in distinct.items()}
        self.link_of = [numbers[id(route)] for route in routes]
        self.pending = [list(route.waits) for route in routes]
        self.queues: list[list[_Waiting]] = [[] for _ in self.links]
        self.busy_until = [0.0] * len(self.links)
        # A link becomes free (chunk -1), or a hop of a chunk ends: time, chunk, hop, link.
        self.events: list[tuple[float, int, int, int]] = []
        self.messages: list[Message] = []

    def run(self) -> tuple[Message, ...]:
        awake: set[int] = set()
        for c, waits in enumerate(self.pending):
            awake.update(self._queue(c, i, 0.0) for i, count in enumerate(waits) if not count)
        queues, busy, events, now = self.queues, self.busy_until, self.events, 0.0
        while True:
            for link in sorted(awake) if len(awake) > 1 else awake:
                if queues[link] and busy[link] <= now:
                    self._send(link, now)
            if not events:
                return tuple(self.messages)
            now = events[0][0]
            awake = self._advance(now)

    def _queue(self, c: int, hop: int, now: float) -> int:
        link = self.link_of[c][hop]
        queue, free = self.queues[link], self.busy_until[link]
        if not queue and free > now:
            heappush(self.events, (free, -1, 0, link))
        heappush(queue, (self.waves[c], -self.routes[c].tails[hop], c, hop))
        return link

    def _advance(self, now: float) -> set[int]:
        awake, events, routes = set[int](), self.events, self.routes
        while events and events[0][0] == now:
            _, c, hop, link = heappop(events)
            if c < 0:
                awake.add(link)
                continue
            pending = self.pending[c]
            for follower in routes[c].followers[hop]:
                pending[follower] -= 1
                if not pending[follower]:
                    awake.add(self._queue(c, follower, now))
        return awake

    def _send(self, link: int, now: float) -> None:
        """Send one message: chunks in order of urgency while they fit and are of the same kind."""
        queue, sizes = self.queues[link], self.sizes
        _, _, c, hop = heappop(queue)
        op, size = self.routes[c].arcs[hop].op, sizes[c]
        hops = [(c, hop)]
        while queue and size + sizes[queue[0][2]] <= self.limit:
            _, _, c, hop = queue[0]
            if self.routes[c].arcs[hop].op != op:
                break
            heappop(queue)
            hops.append((c, hop))
            size += sizes[c]
        self.messages.append(Message(*self.links[link], op, tuple([c for c, _ in hops])))
        model = self.model.on(self.links[link])
        self.busy_until[link] = free = now + model.hold(size)
        if queue:
            heappush(self.events, (free, -1, 0, link))
        early = self.model.passes_early(op)
        arrival = now + (model.latency if early else model.span(size))
        for c, hop in hops:
            if self.routes[c].followers[hop]:
                heappush(self.events, (arrival, c, hop, link))
            arrival += sizes[c] if early else 0
