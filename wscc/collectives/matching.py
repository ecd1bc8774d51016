"""Plans that send chunks from their homes to every die, by matching idle links with chunks, rarest first.

The idea is that of TACOS (Won et al., arXiv 2304.05301, section IV): in an expanding time line, an idle link
takes a chunk that its sender holds and its receiver neither holds nor awaits. The path of each chunk is then a
spanning arborescence, and all together a packing of them into time. Here the rarest chunk goes first, links
into the dies with the fewest links choose first, and small chunks share a message up to a limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from random import Random

from wscc.collectives.plan import COPY, Message
from wscc.collectives.timing import LinkModel
from wscc.machine.topology import Topology


class Matching:
    """One run: `homes[c]` is the die that has chunk c of `sizes[c]` bytes; `limit` bytes share a message.

    The result depends on the arguments alone; `seed` breaks ties.
    """

    def __init__(
        self, topology: Topology, homes: Sequence[int], sizes: Sequence[int], model: LinkModel, limit: int,
        seed: int,
    ) -> None:  # fmt: skip
        self.sizes, self.model, self.limit = sizes, model, limit
        self.random = Random(seed)
        # Sets of chunks are the bits of whole numbers: those that a die may pass on, and those that it holds or awaits.
        self.has = [0] * topology.dies
        for c, home in enumerate(homes):
            self.has[home] |= 1 << c
        self.claimed = list(self.has)
        self.copies = [0] * len(sizes)
        self.by_copies = [(1 << len(sizes)) - 1] + [0] * len(topology.live)
        self.rarest = 0
        self.links = self._in_order_of_need(topology)
        self.out: dict[int, list[int]] = {d: [] for d in topology.live}
        for i, (a, _) in enumerate(self.links):
            self.out[a].append(i)
        self.idle = [True] * len(self.links)
        self.events: list[tuple[float, int, int, int]] = []  # time, link or -1, die, chunks
        self.messages: list[Message] = []

    def _in_order_of_need(self, topology: Topology) -> list[tuple[int, int]]:
        """The links, those into dies with few links first: these have no time to lose."""
        links = list(topology.links)
        self.random.shuffle(links)
        return sorted(links, key=lambda link: len(topology.neighbours[link[1]]))

    def run(self) -> tuple[Message, ...]:
        """The messages in the order of their starts."""
        awake = set(range(len(self.links)))
        now = 0.0
        while True:
            for i in sorted(awake):
                self._offer(i, now)
            if not self.events:
                return tuple(self.messages)
            now = self.events[0][0]
            awake = self._advance(now)

    def _advance(self, now: float) -> set[int]:
        """Apply the events at time `now`; returns the links that may have something to send."""
        awake: set[int] = set()
        while self.events and self.events[0][0] == now:
            _, link, die, chunks = heappop(self.events)
            if link >= 0:
                self.idle[link] = True
                awake.add(link)
            else:
                self.has[die] |= chunks
                awake.update(self.out[die])
        return awake

    def _offer(self, i: int, now: float) -> None:
        if not self.idle[i]:
            return
        a, b = self.links[i]
        chosen: list[int] = []
        size = 0
        possible = self.has[a] & ~self.claimed[b]
        while possible:
            c = self._rarest_of(possible)
            possible &= ~(1 << c)
            if chosen and size + self.sizes[c] > self.limit:
                break
            chosen.append(c)
            size += self.sizes[c]
            if size >= self.limit:
                break
        if chosen:
            self._send(i, chosen, size, now)

    def _send(self, i: int, chosen: list[int], size: int, now: float) -> None:
        a, b = self.links[i]
        self.messages.append(Message(a, b, COPY, tuple(chosen)))
        self.idle[i] = False
        heappush(self.events, (now + self.model.hold(size), i, b, 0))
        arrival, all_bits, early = now + self.model.latency, 0, self.model.passes_early(COPY)
        for c in chosen:
            self._count(c)
            all_bits |= 1 << c
            if early:
                heappush(self.events, (arrival, -1, b, 1 << c))
            arrival += self.sizes[c]
        if not early:
            heappush(self.events, (now + self.model.span(size), -1, b, all_bits))
        self.claimed[b] |= all_bits

    def _rarest_of(self, possible: int) -> int:
        while not self.by_copies[self.rarest]:
            self.rarest += 1
        level = self.rarest
        while not possible & self.by_copies[level]:
            level += 1
        best = possible & self.by_copies[level]
        shift = self.random.randrange(len(self.sizes))
        best = (best >> shift << shift) or best
        return (best & -best).bit_length() - 1

    def _count(self, c: int) -> None:
        level = self.copies[c]
        self.by_copies[level] &= ~(1 << c)
        self.by_copies[level + 1] |= 1 << c
        self.copies[c] = level + 1
