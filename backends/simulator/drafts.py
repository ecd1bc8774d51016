"""The call of a procedure as all dies of a role have it: a flat list of steps with durations; what differs between
the dies (peers, routes) stands in it as fields.

Work that needs neither the HBM nor a message is added up: it is the `lead` of the next step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from wscc.diagnostics import Code as ErrorCode
from wscc.diagnostics import fail
from wscc.ir.streams.program import Field

# The kinds of steps; PORT is work that takes the port of the HBM, LEAD none but its lead.
PORT: Final = 0
POST: Final = 1
SEND: Final = 2
WAIT: Final = 3
LEAD: Final = 5
END: Final = 6
# Kinds of parts alone: work that may need the HBM, and a delay.
COMPUTE: Final = PORT
DELAY: Final = 4

X = TypeVar("X")


class Part(NamedTuple):
    """An instruction. COMPUTE takes `ticks`, and the HBM's port for `hbm` of them; DELAY takes `ticks` alone; `at_peak`
    are those of `flops` at the peak of a die. The others concern the message `channel`, of `bytes`, `peer` at its other
    end; `sent` is the side that a WAIT is for."""

    kind: int
    ticks: int = 0
    hbm: int = 0
    hbm_bytes: int = 0
    flops: int = 0
    at_peak: int = 0
    channel: int = -1
    peer: Field = -1
    route: Field = -1
    bytes: int = 0
    sent: bool = False


class Step(NamedTuple):
    """A step, after `lead` ticks. `position` is the number of its instruction in the code of the role. It takes
    `ticks`, and the HBM's port for `hbm` of them. `message` is an index of `Draft.messages`; `side` is 1 for a WAIT
    until it is sent; `send` is an index of `Draft.sends`."""

    lead: int
    kind: int
    position: int
    ticks: int = 0
    hbm: int = 0
    message: int = -1
    side: int = 0
    send: int = -1


class Message(NamedTuple):
    """A message that a die begins: with an index of `Draft.peers`, which receives it if `sent`, or else sends it."""

    channel: int
    peer: int
    sent: bool


class Send(NamedTuple):
    """What a SEND starts; indices of `Draft.peers` and `Draft.routes`. `hbm_bytes` are those that it reads in HBM."""

    peer: int
    route: int
    bytes: int
    hbm_bytes: int


@dataclass(slots=True, eq=False)
class Draft:
    """The steps and their totals; the peers and routes of all messages, numbered.

    `leads[position]` is the ticks of an instruction that is in the lead of a step, else 0; `busy` ticks of all leads
    are work and `delayed` are delays. `hbm_bytes` do not count those of `sends`.
    """

    steps: list[Step] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    peers: dict[Field, int] = field(default_factory=dict)
    routes: dict[Field, int] = field(default_factory=dict)
    leads: list[int] = field(default_factory=list)
    busy: int = 0
    delayed: int = 0
    flops: int = 0
    ideal_ticks: int = 0
    tile_ticks: int = 0
    hbm_bytes: int = 0


def draft_of(procedure: str, body: Iterable[X], part_of: Callable[[X], Part]) -> Draft:
    """The draft of a procedure; `part_of` gives the part of an instruction. `CompileError` W501 for a `wait` of
    nothing."""
    d, lead = Draft(), 0
    begun: dict[tuple[int, bool], int] = {}
    steps, leads = d.steps, d.leads
    for position, x in enumerate(body):
        part = part_of(x)
        kind, ticks, hbm = part.kind, part.ticks, part.hbm
        d.flops += part.flops
        d.ideal_ticks += part.at_peak
        alone = kind == DELAY or (kind == COMPUTE and not hbm)
        leads.append(ticks if alone else 0)
        if kind == COMPUTE:
            d.tile_ticks += ticks - part.at_peak
        if alone:
            lead += ticks
            if kind == DELAY:
                d.delayed += ticks
            else:
                d.busy += ticks
            continue
        if kind == PORT:
            if lead:  # work at the port may have to be begun again, what led to it has not
                steps.append(Step(lead, LEAD, position))
            steps.append(Step(0, PORT, position, ticks, hbm))
        elif kind == WAIT:
            message = begun.get((part.channel, part.sent), -1)
            if message < 0:
                raise _nothing(procedure, position, part.channel)
            steps.append(Step(lead, WAIT, position, 0, 0, message, int(part.sent)))
        else:
            steps.append(_begin(d, part, lead, position, begun))
        if kind != SEND:
            d.hbm_bytes += part.hbm_bytes
        lead = 0
    steps.append(Step(lead, END, len(leads)))
    return d


def _begin(d: Draft, part: Part, lead: int, position: int, begun: dict[tuple[int, bool], int]) -> Step:
    """The step of a `post` or `send`, which begins a message."""
    sent = part.kind == SEND
    message = begun[part.channel, sent] = len(d.messages)
    peer = d.peers.setdefault(part.peer, len(d.peers))
    d.messages.append(Message(part.channel, peer, sent))
    send = -1
    if sent:
        send = len(d.sends)
        route = d.routes.setdefault(part.route, len(d.routes))
        d.sends.append(Send(peer, route, part.bytes, part.hbm_bytes))
    return Step(lead, part.kind, position, 0, part.hbm, message, 0, send)


def _nothing(procedure: str, position: int, channel: int) -> Exception:
    return fail(
        ErrorCode.ARTIFACT,
        f"`{procedure}` instruction {position} waits for channel {channel}, on which nothing was begun",
    )
