"""The calls of some dies as the event loop reads them: plain tuples, with numbers for messages.

Made once for all states in which a call is entered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from wscc.backends.simulator.calls import Cargo, DieCall
from wscc.backends.simulator.drafts import END, LEAD, PORT, POST, SEND, WAIT
from wscc.backends.simulator.records import Link, LinkUse

# The calls of a die: (number, call), where messages of different calls are distinguished by the number.
Script = Sequence[tuple[int, DieCall]]

# (lead, kind, message, ticks, ticks of the HBM's port, cargo). The message of a `WAIT` counts twice, and one more for
# its side `sent`: it is the number of one of its ends.
Op = tuple[int, int, int, int, int, Cargo | None]


@dataclass(frozen=True, slots=True)
class Lines:
    """The operations of one die. `places[i]` is the instruction of operation i, counted over all calls; of its leads,
    `busy` ticks in total are work and `delayed` are delays. `leads` are those by instruction."""

    ops: Sequence[Op]
    places: Sequence[int]
    leads: Sequence[int]
    busy: int
    delayed: int


@dataclass(frozen=True)
class Scripts:
    """The scripts of some dies; `calls` (their numbers), `senders`, `channels` and `across` are by message."""

    dies: tuple[int, ...]
    lines: tuple[Lines, ...]
    calls: tuple[int, ...]
    senders: tuple[int, ...]
    channels: tuple[int, ...]
    across: tuple[bool, ...]
    cargos: tuple[tuple[int, int, Cargo], ...]  # (call, channel, cargo)

    @staticmethod
    def of(scripts: Mapping[int, Script]) -> Scripts:
        """The scripts by die, whose order decides between events of one time."""
        messages: dict[tuple[int, int, int], int] = {}
        across: list[bool] = []
        lines = tuple(_lines(script, messages, across) for script in scripts.values())
        calls, senders, channels = zip(*messages, strict=True) if messages else ((), (), ())
        cargos = tuple(
            (call, channel, cargo) for script in scripts.values() for call, die_call in script
            for channel, cargo in zip(die_call.draft.sent_on, die_call.cargos, strict=True)
        )  # fmt: skip
        return Scripts(tuple(scripts), lines, calls, senders, channels, tuple(across), cargos)

    @cached_property
    def traffic(self) -> dict[Link, LinkUse]:
        """What each link carries, at any time: a link carries the bytes of a tree once."""
        links: dict[Link, LinkUse] = {}
        trees: set[tuple[object, ...]] = set()
        for call, channel, cargo in self.cargos:
            for number, leg in enumerate(cargo.legs):
                for link in leg.links:
                    if cargo.tree[0] >= 0:
                        key = call, cargo.source, cargo.tree, number, link
                        if key in trees:
                            continue
                        trees.add(key)
                    use = links.get(link)
                    if use is None:
                        use = links[link] = LinkUse()
                    use.bytes += leg.part
                    use.messages += 1
                    use.busy += leg.hold
                    use.channels[channel] += leg.part
        return links


def _lines(script: Script, messages: dict[tuple[int, int, int], int], across: list[bool]) -> Lines:
    """The operations of one die. `messages` numbers messages by (call, sender, channel) and gains those of this die."""
    ops: list[Op] = []
    places: list[int] = []
    leads: list[int] = []
    busy = delayed = carried = 0
    for call, die_call in script:
        draft, cargos = die_call.draft, die_call.cargos
        numbers = []
        for sender, channel, is_across in die_call.messages:
            number = messages.setdefault((call, sender, channel), len(messages))
            if number == len(across):
                across.append(is_across)
            numbers.append(number)
        before = len(leads)
        for lead, kind, position, ticks, hbm, message, side, send in draft.steps:
            if carried:  # what the call before ended with
                if kind == PORT:
                    ops.append((carried, LEAD, -1, 0, 0, None))
                    places.append(before + position)
                else:
                    lead += carried
                carried = 0
            if kind == WAIT:
                ops.append((lead, WAIT, 2 * numbers[message] + side, 0, 0, None))
            elif kind == SEND:
                ops.append((lead, SEND, numbers[message], 0, hbm, cargos[send]))
            elif kind == POST:
                ops.append((lead, POST, numbers[message], 0, hbm, None))
            elif kind == END:
                carried = lead
                continue
            else:
                ops.append((lead, kind, -1, ticks, hbm, None))
            places.append(before + position)
        leads += draft.leads
        busy += draft.busy
        delayed += draft.delayed
    ops.append((carried, END, -1, 0, 0, None))
    places.append(len(leads))
    return Lines(ops, places, leads, busy, delayed)
