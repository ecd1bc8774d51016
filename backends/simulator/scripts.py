"""The calls of some dies as the event loop reads them: plain tuples, with numbers for messages.

Made once for all states in which a call is entered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from wscc.backends.simulator.calls import Cargo, DieCall, Ends
from wscc.backends.simulator.costs import Leg
from wscc.backends.simulator.drafts import END, LEAD, PORT, POST, SEND, WAIT
from wscc.backends.simulator.records import Link, LinkUse

# The calls of a die: (number, call), where messages of different calls are distinguished by the number.
Script = Sequence[tuple[int, DieCall]]

# (lead, kind, message, ticks, ticks of the HBM's port). The message of a `WAIT` counts twice, and one more for its
# side `sent`: it is the number of one of its ends.
Op = tuple[int, int, int, int, int]
# (link, ticks that it is kept for, ticks from the first byte to the last, latency) of a message of one link.
Crossing = tuple[Link, int, int, int]


@dataclass(frozen=True, slots=True)
class Lines:
    """The operations of one die. `places[i]` is the instruction of operation i, counted over all calls; of its leads,
    `busy` ticks in total are work and `delayed` are delays. `leads` are those by instruction."""

    ops: Sequence[Op]
    places: Sequence[int]
    leads: Sequence[int]
    busy: int
    delayed: int


@dataclass(slots=True)
class Messages:
    """The messages of some calls by number: the number of the call, the sender, the channel, true if it is between
    stages, the cargo (None: nothing sends it), and the ticks of the ports at both ends."""

    calls: list[int] = field(default_factory=list)
    senders: list[int] = field(default_factory=list)
    channels: list[int] = field(default_factory=list)
    across: list[bool] = field(default_factory=list)
    cargos: list[Cargo | None] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    _numbers: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def number(self, call: int, ends: Ends) -> int:
        """The number of a message of a call, a new one for a new message."""
        sender, channel, across = ends
        key = call, sender, channel
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.calls)
            self.calls.append(call)
            self.senders.append(sender)
            self.channels.append(channel)
            self.across.append(across)
            self.cargos.append(None)
            self.reads.append(0)
            self.writes.append(0)
        return number

    def plain(self) -> list[Crossing | None]:
        """The crossing of each message that takes one link, alone, from SRAM to SRAM; None for others."""
        crossings: dict[
            int, Crossing | None
        ] = {}  # by identity of the legs, which many messages have in common
        found: list[Crossing | None] = []
        for cargo, read, write in zip(self.cargos, self.reads, self.writes, strict=True):
            if cargo is None or read or write or cargo.tree[0] >= 0:
                found.append(None)
                continue
            if id(cargo.legs) not in crossings:
                crossings[id(cargo.legs)] = _crossing(cargo.legs)
            found.append(crossings[id(cargo.legs)])
        return found


def _crossing(legs: Sequence[Leg]) -> Crossing | None:
    if len(legs) != 1 or len(legs[0].links) != 1:
        return None
    ticks = legs[0].ticks[0]
    return legs[0].links[0], ticks.hold, ticks.span, ticks.latency


@dataclass(frozen=True, eq=False)
class Scripts:
    """The scripts of some dies and their messages; `plain` is by message."""

    dies: tuple[int, ...]
    lines: tuple[Lines, ...]
    messages: Messages
    plain: Sequence[Crossing | None]

    @staticmethod
    def of(scripts: Mapping[int, Script]) -> Scripts:
        """The scripts by die, whose order decides between events of one time."""
        messages = Messages()
        lines = tuple(_lines(script, messages) for script in scripts.values())
        return Scripts(tuple(scripts), lines, messages, messages.plain())

    @cached_property
    def traffic(self) -> dict[Link, LinkUse]:
        """What each link carries, at any time: a link carries the bytes of a tree once."""
        links: dict[Link, LinkUse] = {}
        trees: set[tuple[object, ...]] = set()
        m = self.messages
        for call, channel, cargo in zip(m.calls, m.channels, m.cargos, strict=True):
            for number, leg in enumerate(cargo.legs if cargo else ()):
                for link, ticks in zip(leg.links, leg.ticks, strict=True):
                    if cargo and cargo.tree[0] >= 0:
                        key = call, cargo.source, cargo.tree, number, link
                        if key in trees:
                            continue
                        trees.add(key)
                    use = links.get(link)
                    if use is None:
                        use = links[link] = LinkUse()
                    use.bytes += leg.part
                    use.messages += 1
                    use.busy += ticks.hold
                    use.channels[channel] += leg.part
        return links


def _lines(script: Script, messages: Messages) -> Lines:
    """The operations of one die; `messages` gains those of this die."""
    ops: list[Op] = []
    places: list[int] = []
    leads: list[int] = []
    busy = delayed = carried = 0
    for call, die_call in script:
        draft, cargos = die_call.draft, die_call.cargos
        numbers = [messages.number(call, ends) for ends in die_call.messages]
        before = len(leads)
        for lead, kind, position, ticks, hbm, message, side, send in draft.steps:
            if carried:  # what the call before ended with
                if kind == PORT:
                    ops.append((carried, LEAD, -1, 0, 0))
                    places.append(before + position)
                else:
                    lead += carried
                carried = 0
            if kind == WAIT:
                ops.append((lead, WAIT, 2 * numbers[message] + side, 0, 0))
            elif kind == SEND:
                number = numbers[message]
                ops.append((lead, SEND, number, 0, hbm))
                messages.cargos[number], messages.reads[number] = cargos[send], hbm
            elif kind == POST:
                ops.append((lead, POST, numbers[message], 0, hbm))
                messages.writes[numbers[message]] = hbm
            elif kind == END:
                carried = lead
                continue
            else:
                ops.append((lead, kind, -1, ticks, hbm))
            places.append(before + position)
        leads += draft.leads
        busy += draft.busy
        delayed += draft.delayed
    ops.append((carried, END, -1, 0, 0))
    places.append(len(leads))
    return Lines(ops, places, leads, busy, delayed)
