"""Times of gather plans by the link model of the simulator: messages of all groups of an axis queue for their links.

Links serve first come, first served, and routers pass a message on once its first byte is there (`LinkTimes`). A die
sends in the order of the plan, each message once what it passes on has arrived. Paths are initial ones: `route` may do
better. Left out are memories, and whatever else is on the links.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from wscc.analysis.cost import LinkRates, Rates
from wscc.analysis.gather_plan import GatherPlan, Move, Part
from wscc.ir.per_die import NOBODY
from wscc.machine.topology import Hop, Path, Topology
from wscc.routing.limits import TREE_LATENCIES
from wscc.routing.live_paths import live_path

# Other trees are a guess at what `route` finds, and take it longer: they are taken where they gain so much.
_GUESSED: Final = 1.1
# Messages of a plan beyond which it is not simulated: about a tenth of a second.
_MOST_MESSAGES: Final = 6_000


def first_path(topology: Topology, source: int, destination: int, *, balanced: bool) -> Path:
    """The initial path of a message or, `balanced`, for every other source that of the way back, which goes along the
    column first: links are then about as busy as `route` leaves them."""
    if balanced and topology.grid is not None and sum(topology.coordinate(source)) % 2:
        return live_path(topology, destination, source)[::-1]
    return live_path(topology, source, destination)


@dataclass(frozen=True)
class MessageTimes:
    """The link model for a plan on the dies of `groups`, each listed in order of position. `replicated`: routers may
    replicate what a die sends to several others."""

    plan: GatherPlan
    topology: Topology
    groups: Sequence[Sequence[int]]
    rates: Rates[float]
    replicated: bool = False
    _links: dict[Hop, LinkRates[float]] = field(default_factory=dict, repr=False)
    _known: dict[tuple[int, bool], float | None] = field(default_factory=dict, repr=False)

    def seconds(self, shard: int, *, backwards: bool = False) -> float | None:
        """Seconds of a gather of shards of so many bytes or, `backwards`, of a reduction to them; None where the plan
        has too many messages."""
        key = shard, backwards
        if key not in self._known:
            moves = sum(map(len, self.plan.rounds))
            few = moves * self.plan.size * len(self.groups) <= _MOST_MESSAGES
            self._known[key] = self._timed(shard, backwards=backwards) if few else None
        return self._known[key]

    def _timed(self, shard: int, *, backwards: bool) -> float:
        """Seconds on initial paths; on balanced ones, with a margin, where `route` looks for other trees."""
        run = _Run(self, shard)
        end = run.run(backwards=backwards)
        if not self.replicated or max(run.busy.values()) <= TREE_LATENCIES * self.rates.link.latency:
            return end
        return min(end, _GUESSED * _Run(self, shard, balanced=True).run(backwards=backwards))

    def link(self, hop: Hop) -> LinkRates[float]:
        """The rates of a link."""
        if hop not in self._links:
            self._links[hop] = self.rates.between(*hop)
        return self._links[hop]

    def rounds(self, *, backwards: bool) -> Iterator[tuple[Move, ...]]:
        """The rounds in order."""
        if not backwards:
            yield from self.plan.rounds
        for moves in reversed(self.plan.rounds) if backwards else ():
            yield tuple(m.backwards() for m in moves)


@dataclass(slots=True, eq=False)
class _Message:
    """A message of so many bytes along a path, that may begin once so many others have arrived (`missing`); those that
    wait for it are in `followers`."""

    path: Path
    size: int
    missing: int = 0
    followers: list[_Message] = field(default_factory=list)


@dataclass
class _Run:
    """One simulation: the messages that each die has to send, in order, from when on each link is free, and how long it
    is busy in all."""

    times: MessageTimes
    shard: int
    balanced: bool = False
    sends: dict[int, list[_Message]] = field(default_factory=dict)
    free: dict[Hop, float] = field(default_factory=dict)
    busy: dict[Hop, float] = field(default_factory=dict)
    queue: list[tuple[float, int, _Message, int, float]] = field(default_factory=list)
    events: int = 0

    def run(self, *, backwards: bool) -> float:
        """Seconds until the last message has arrived."""
        for group in self.times.groups:
            self._plan(group, backwards=backwards)
        for die in self.sends:
            self._send(die, 0.0)
        return self._serve()

    def _plan(self, group: Sequence[int], *, backwards: bool) -> None:
        """Add the messages of a group, each after those that brought the shard that it passes on."""
        brought: dict[tuple[int, int], list[_Message]] = {}
        for moves in self.times.rounds(backwards=backwards):
            arriving: dict[tuple[int, int], list[_Message]] = {}
            for move in moves:
                for p, (to, shard) in enumerate(zip(move.to, move.shard, strict=True)):
                    if to != NOBODY:
                        message = self._message(group[p], group[to], move.part)
                        for before in brought.get((p, shard), ()):
                            before.followers.append(message)
                            message.missing += 1
                        arriving.setdefault((to, shard), []).append(message)
            for key, messages in arriving.items():
                brought.setdefault(key, []).extend(messages)

    def _message(self, source: int, to: int, part: Part) -> _Message:
        path = first_path(self.times.topology, source, to, balanced=self.balanced)
        message = _Message(path, self.shard if part is Part.WHOLE else -(-self.shard // 2))
        self.sends.setdefault(source, []).append(message)
        return message

    def _send(self, die: int, time: float) -> None:
        """Begin the messages of a die, in order, that wait for nothing."""
        waiting = self.sends.get(die, [])
        while waiting and not waiting[0].missing:
            self._push(time, waiting.pop(0), 1, time)

    def _push(self, time: float, message: _Message, hop: int, tail: float) -> None:
        self.events += 1
        heappush(self.queue, (time, self.events, message, hop, tail))

    def _serve(self) -> float:
        """Move messages from link to link; when the last one has arrived."""
        end, trees = 0.0, dict[tuple[int, Hop], tuple[float, float]]()
        while self.queue:
            time, _, message, hop, tail = heappop(self.queue)
            path = message.path
            if hop == len(path):
                end = time
                for follower in message.followers:
                    follower.missing -= 1
                self._send(path[-1], time)
                continue
            link = path[hop - 1], path[hop]
            rates = self.times.link(link)
            if (path[0], link) in trees:
                start, sent = trees[path[0], link]
                start, tail = max(start, time), max(sent, time + rates.latency)
            else:
                start = max(time, self.free.get(link, 0.0))
                hold = rates.busy(rates.times().on_link(message.size))
                self.free[link] = start + hold
                self.busy[link] = self.busy.get(link, 0.0) + hold
                tail = max(start + hold + rates.latency, tail + rates.latency)
                if self.times.replicated:
                    trees[path[0], link] = start, tail
            head = tail if hop == len(path) - 1 else start + rates.latency
            self._push(head, message, hop + 1, tail)
        return end
