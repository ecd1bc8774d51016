"""The steps of some dies as the event loop reads them: plain tuples, with numbers for dies and messages.

Made once for all states in which a call is entered. Work that needs neither the HBM nor a message is added up: it is
the `lead` of the next operation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from wscc.backends.simulator.calls import COMPUTE, DELAY, WAIT, Cargo, Step

# The calls of a die: (number, steps), where messages of different calls are distinguished by the number.
Script = Sequence[tuple[int, Sequence[Step]]]

# Work that takes the port of the HBM, a lead alone, and the end; other operations are `POST`, `SEND` and `WAIT`.
PORT: Final = COMPUTE
LEAD: Final = 5
END: Final = 6

# (lead, kind, message, ticks, ticks of the HBM's port, cargo). The message of a `WAIT` counts twice, and one more for
# its side `sent`: it is the number of one of its ends.
Op = tuple[int, int, int, int, int, Cargo | None]


@dataclass(frozen=True, slots=True)
class Lines:
    """The operations of one die. `places[i]` is the step of operation i; of its lead, `busy` ticks in total are work
    and `delayed` are delays."""

    ops: tuple[Op, ...]
    places: tuple[int, ...]
    steps: tuple[Step, ...]
    busy: int
    delayed: int


@dataclass(frozen=True, slots=True)
class Scripts:
    """The scripts of some dies; `calls` (their numbers), `senders` and `channels` are by message."""

    dies: tuple[int, ...]
    lines: tuple[Lines, ...]
    calls: tuple[int, ...]
    senders: tuple[int, ...]
    channels: tuple[int, ...]

    @staticmethod
    def of(scripts: Mapping[int, Script]) -> Scripts:
        """The scripts by die, whose order decides between events of one time."""
        messages: dict[tuple[int, int, int], int] = {}
        lines = tuple(_lines(script, messages) for script in scripts.values())
        calls, senders, channels = zip(*messages, strict=True) if messages else ((), (), ())
        return Scripts(tuple(scripts), lines, calls, senders, channels)


def _lines(script: Script, messages: dict[tuple[int, int, int], int]) -> Lines:
    """The operations of one die. `messages` numbers messages by (call, sender, channel) and gains those of this die."""
    ops: list[Op] = []
    places: list[int] = []
    steps: list[Step] = []
    lead = busy = delayed = 0
    for call, call_steps in script:
        for place, step in enumerate(call_steps, len(steps)):
            kind, _, ticks, hbm, sender, channel, sent, _, cargo = step
            if kind == COMPUTE and not hbm:
                lead += ticks
                busy += ticks
                continue
            if kind == DELAY:
                lead += ticks
                delayed += ticks
                continue
            if kind == COMPUTE:
                if lead:  # work at the port may have to be begun again, what led to it has not
                    ops.append((lead, LEAD, -1, 0, 0, None))
                    places.append(place)
                ops.append((0, PORT, -1, ticks, hbm, None))
            else:
                message = messages.setdefault((call, sender, channel), len(messages))
                ops.append((lead, kind, 2 * message + sent if kind == WAIT else message, 0, hbm, cargo))
            lead = 0
            places.append(place)
        steps += call_steps
    ops.append((lead, END, -1, 0, 0, None))
    places.append(len(steps))
    return Lines(tuple(ops), tuple(places), tuple(steps), busy, delayed)
