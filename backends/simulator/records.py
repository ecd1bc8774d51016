"""What a run of the simulator keeps of links, dies and messages."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from wscc.backends.simulator.calls import Cargo

Link = tuple[int, int]


class Hold(NamedTuple):
    """A message takes a link for `ticks` until `end`, and stood in line for it from `asked` on."""

    link: Link
    asked: int
    end: int
    ticks: int

    def later(self, ticks: int) -> Hold:
        return self._replace(asked=self.asked + ticks, end=self.end + ticks)


@dataclass(slots=True)
class LinkUse:
    """What a link did: bytes (also by channel), messages, ticks in use, ticks that messages queued for it, and how many
    did."""

    bytes: int = 0
    messages: int = 0
    busy: int = 0
    queueing: int = 0
    conflicts: int = 0
    channels: dict[int, int] = field(default_factory=lambda: defaultdict(int))


@dataclass(slots=True)
class DieUse:
    """Where the ticks of a die went: instructions (`busy`), delays, and waiting for messages: `bubble` until one from
    or to another stage starts, `idle` until one of its own stage does, `exposed` (by channel) while it is on its
    way."""

    busy: int = 0
    delayed: int = 0
    bubble: int = 0
    idle: int = 0
    exposed: dict[int, int] = field(default_factory=lambda: defaultdict(int))


@dataclass(slots=True, eq=False)
class Message:
    """One message: -1 where a time is not known yet. It has left, or arrived, when all of its legs have."""

    channel: int
    posted: int = -1
    issued: int = -1
    cargo: Cargo | None = None
    read: int = 0
    write: int = 0
    legs_inside: int = 0
    legs_on_way: int = 0
    leaving: int = 0
    arriving: int = 0
    left: int = -1
    arrived: int = -1
    sender_waits: int = -1
    receiver_waits: int = -1

    @property
    def start(self) -> int:
        return max(self.posted, self.issued)
