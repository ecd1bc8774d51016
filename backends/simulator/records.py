"""Records of links and dies in a run of the simulator; all times in ticks."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

Link = tuple[int, int]


class Hold(NamedTuple):
    """The use of a link by a message: for `ticks` until `end`, after a queue that it joined at `asked`."""

    link: Link
    asked: int
    end: int
    ticks: int

    def later(self, ticks: int) -> Hold:
        return self._replace(asked=self.asked + ticks, end=self.end + ticks)


@dataclass(slots=True)
class LinkUse:
    """Totals of a link: bytes (also by channel), messages, ticks in use, ticks that messages queued for it, and the
    number of those that did (`conflicts`)."""

    bytes: int = 0
    messages: int = 0
    busy: int = 0
    queueing: int = 0
    conflicts: int = 0
    channels: dict[int, int] = field(default_factory=lambda: defaultdict(int))


@dataclass(slots=True)
class DieUse:
    """Ticks of a die by cause: instructions (`busy`), delays, and waiting for messages: `bubble` until one from or to
    another stage starts, `idle` until one of its own stage does, `exposed` (by channel) while it is in flight."""

    busy: int = 0
    delayed: int = 0
    bubble: int = 0
    idle: int = 0
    exposed: dict[int, int] = field(default_factory=lambda: defaultdict(int))
