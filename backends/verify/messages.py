"""The messages of one procedure on all its dies: the events of every die, and the pairs of a send and a slot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, NamedTuple

import numpy as np

from wscc.backends.interpreter.load_checks import column, die_name
from wscc.backends.verify.body import DTYPES
from wscc.backends.verify.findings import Finding
from wscc.backends.verify.views import Ints
from wscc.ir.streams.artifact import Manifest
from wscc.ir.streams.program import Code, Instruction, Scalar, Streams

SENT, RECEIVED = "sent", "received"
SEND, POST, WAIT_SENT, WAIT_RECEIVED = range(4)
BEGINS: Final = {"send": SEND, "post": POST}
WAITS: Final = {SENT: WAIT_SENT, RECEIVED: WAIT_RECEIVED}


class Event(NamedTuple):
    """The instruction `at` a place begins or awaits a message: the `ordinal`-th that the procedure begins."""

    kind: int
    at: int
    ordinal: int


@dataclass(frozen=True, slots=True)
class Begun:
    """The sends, or the posts, of a procedure. Each has an entry in the arrays: its channel, ordinal, elements, number
    of the element type, and its peer as a number in `peers`."""

    channel: Ints
    order: Ints
    elements: Ints
    kind: Ints
    peer: Ints
    peers: tuple[Scalar, ...]

    @classmethod
    def of(cls, code: Code, events: Sequence[Event], kind: int) -> Begun:
        begun = [e for e in events if e.kind == kind]
        peers: dict[Scalar, int] = {}
        scalars: dict[int, tuple[int, int, int, int]] = {}  # by id of the instruction
        for x in map(code.body.__getitem__, [e.at for e in begun]):
            if id(x) not in scalars:
                channels, size, type_, peer = _scalars(x)
                scalars[id(x)] = channels, size, type_, peers.setdefault(peer, len(peers))
        rows = [scalars[id(code.body[e.at])] for e in begun]
        channel, elements, types, peer_of = np.array(rows, np.int64).reshape(-1, 4).T
        order = np.array([e.ordinal for e in begun], np.int64)
        return cls(channel, order, elements, types, peer_of, tuple(peers))


@dataclass(frozen=True, slots=True)
class Part:
    """The events of the dies of one role in a procedure. `slots` is the largest number granted at once, `begun` are its
    sends and its posts."""

    code: Code
    dies: Ints
    events: tuple[Event, ...]
    slots: int
    begun: tuple[Begun, Begun]


@dataclass(frozen=True, slots=True)
class Matched:
    """The messages of a procedure. `number[part][ordinal, i]` is the number of a message of the `i`-th die of a part,
    the same at both ends; `peers` are the senders and receivers, by number."""

    parts: tuple[Part, ...]
    number: tuple[Ints, ...]
    count: int
    peers: tuple[Ints, ...]


def part_of(code: Code, dies: Ints) -> tuple[Part, list[tuple[int, str]]]:
    """The events of a role, and (instruction, text) of the errors in them."""
    in_flight: dict[tuple[int, int], int] = {}
    events: list[Event] = []
    errors: list[tuple[int, str]] = []
    ordinal, granted, slots = 0, 0, 0
    message_of = {number: _message(x) for number, x in {id(x): x for x in code.body}.items()}
    for i, number in enumerate(map(id, code.body)):
        if (message := message_of[number]) is None:
            continue
        kind, channel = message
        if kind <= POST:
            if message in in_flight:
                words = f"second `{code.body[i].opcode}` on channel {channel} before the first was waited for"
                errors.append((i, words))
                continue
            in_flight[message] = ordinal
            events.append(Event(kind, i, ordinal))
            ordinal += 1
            if kind == POST:
                granted += 1
                slots = max(slots, granted)
        else:
            begun = in_flight.pop((kind - 2, channel), None)
            if begun is None:
                errors.append((i, f"waits on channel {channel} for what was never begun"))
                continue
            events.append(Event(kind, i, begun))
            granted -= kind == WAIT_RECEIVED
    for (kind, channel), n in in_flight.items():
        index = next(e.at for e in events if e.ordinal == n)
        verb = "sends a message" if kind == SEND else "grants a slot"
        errors.append((index, f"{verb} on channel {channel} that is not waited for when the procedure ends"))
    ends = Begun.of(code, events, SEND), Begun.of(code, events, POST)
    return Part(code, dies, tuple(events), slots, ends), errors


def _message(x: Instruction) -> tuple[int, int] | None:
    """The kind of event that an instruction is, and its channel; None if it is no part of a message."""
    if x.opcode in BEGINS:
        return BEGINS[x.opcode], _integer(x.attr("channel"))
    return (WAITS[str(x.attr("side"))], _integer(x.attr("channel"))) if x.opcode == "wait" else None


def _integer(value: object) -> int:
    assert isinstance(value, int)
    return value


@dataclass(frozen=True, slots=True)
class _Ends:
    """The sends, or the slots, of a procedure: an array for each field, an entry for each message."""

    sender: Ints
    receiver: Ints
    channel: Ints
    order: Ints
    elements: Ints
    kind: Ints
    part: Ints
    ordinal: Ints
    place: Ints

    @property
    def sorted_rows(self) -> Ints:
        """Rows in order of sender, receiver and channel, and of time where these are equal."""
        return np.lexsort((self.order, self.channel, self.receiver, self.sender))

    @property
    def in_order(self) -> Ints:
        """Sender, receiver, channel, elements and type of each message, in order."""
        fields = np.stack([self.sender, self.receiver, self.channel, self.elements, self.kind])
        return fields[:, self.sorted_rows]


_FIELDS: Final = 9


def _ends(parts: Sequence[Part], streams: Streams, kind: int) -> _Ends:
    """The sends (`kind` SEND) or slots (POST) of all parts."""
    columns: list[list[Ints]] = [[np.zeros(0, np.int64)] for _ in range(_FIELDS)]
    for p, part in enumerate(parts):
        begun = part.begun[kind]
        if not len(begun.peer):
            continue
        rows = streams.bindings[part.dies]
        peers = np.stack([column(peer, rows) for peer in begun.peers])[begun.peer]
        own = np.broadcast_to(part.dies, peers.shape)
        pair = (own, peers) if kind == SEND else (peers, own)
        # Of each message, with an axis for the dies.
        fields = (
            begun.channel,
            begun.order,
            begun.elements,
            begun.kind,
            np.full_like(begun.order, p),
            begun.order,
        )
        place = np.arange(len(rows))
        for c, values in zip(columns, (*pair, *(f[:, None] for f in fields), place), strict=True):
            c.append(np.broadcast_to(values, peers.shape).reshape(-1))
    return _Ends(*map(np.concatenate, columns))


def _scalars(x: Instruction) -> tuple[int, int, int, Scalar]:
    """Channel, elements, number of the element type, and peer of a message."""
    (o,) = (*x.writes, *x.reads)
    return _integer(x.attr("channel")), prod(o.shape), DTYPES.index(o.dtype), x.attr("peer")


def match(
    parts: Sequence[Part], streams: Streams, manifest: Manifest
) -> tuple[Matched | None, list[Finding]]:
    """The messages: the k-th send of a channel from one die to another is paired with the k-th slot granted for it.

    None and the findings if a send has no slot, or a slot no send.
    """
    sends, posts = _ends(parts, streams, SEND), _ends(parts, streams, POST)
    mismatches = list(_mismatches(parts, streams, manifest, sends, posts))
    if mismatches:
        return None, mismatches
    number = tuple(
        np.zeros((max((e.ordinal for e in p.events), default=-1) + 1, len(p.dies)), np.int64) for p in parts
    )
    for ends in (sends, posts):
        rows = ends.sorted_rows
        for p, numbers in enumerate(number):
            (mine,) = np.nonzero(ends.part[rows] == p)
            numbers[ends.ordinal[rows[mine]], ends.place[rows[mine]]] = mine
    peers = (sends.sender[sends.sorted_rows], sends.receiver[sends.sorted_rows])
    return Matched(tuple(parts), number, len(sends.sender), peers), []


def _mismatches(
    parts: Sequence[Part], streams: Streams, manifest: Manifest, sends: _Ends, posts: _Ends
) -> Iterator[Finding]:  # fmt: skip
    def name(die: int) -> str:
        return die_name(streams.dies[die], manifest)

    if np.array_equal(sends.in_order, posts.in_order):
        return
    rows_by_key: list[dict[tuple[int, int, int], list[int]]] = []
    for ends in (sends, posts):
        by_key: dict[tuple[int, int, int], list[int]] = {}
        keys = zip(ends.sender.tolist(), ends.receiver.tolist(), ends.channel.tolist(), strict=True)
        rows = list(keys)
        for row in ends.sorted_rows.tolist():
            by_key.setdefault(rows[row], []).append(row)
        rows_by_key.append(by_key)
    for key in dict.fromkeys((*rows_by_key[0], *rows_by_key[1])):
        sender, receiver, channel = key
        s, r = rows_by_key[0].get(key, []), rows_by_key[1].get(key, [])
        for a, b in zip(s, r, strict=False):
            message, slot = (f"{e.elements[n]} {DTYPES[e.kind[n]]}" for e, n in ((sends, a), (posts, b)))
            if message != slot:
                words = (
                    f"sends {message} on channel {channel} to die {name(receiver)}, whose slot is for {slot}"
                )
                yield _finding(parts, sends, a, name(sender), words)
        for a in s[len(r) :]:
            words = f"sends on channel {channel} to die {name(receiver)}, which grants no slot for it"
            yield _finding(parts, sends, a, name(sender), words)
        for b in r[len(s) :]:
            words = f"grants a slot on channel {channel} to die {name(sender)}, which sends nothing to it"
            yield _finding(parts, posts, b, name(receiver), words)


def _finding(parts: Sequence[Part], ends: _Ends, row: int, die: str, words: str) -> Finding:
    part = parts[ends.part[row]]
    index = next(e.at for e in part.events if e.ordinal == ends.ordinal[row])
    return Finding("messages", words, die, part.code.name, index)
