"""Copies within a die take only as long as there is room for them: they begin and end as their memory allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from wscc.ir.fabric import FabricStmt, Post, Send, Wait
from wscc.ir.module import Op, Procedure


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """Where the parts of a message of each die to itself stand in a scheduled body, and the buffers (or formals)
    that it reads and fills."""

    source: str
    slot: str
    post: int
    send: int
    received: int
    left: int


def local_copies(body: Sequence[FabricStmt | Op]) -> list[LocalCopy]:
    """The messages of dies to themselves."""
    parts: dict[int, dict[str, int]] = {}
    for i, stmt in enumerate(body):
        match stmt:
            case Send() if stmt.is_local:
                parts.setdefault(stmt.channel, {})["send"] = i
            case Post() | Wait():
                part = "post" if isinstance(stmt, Post) else "left" if stmt.sent else "received"
                parts.setdefault(stmt.channel, {})[part] = i
            case _:
                pass
    found = []
    for at in parts.values():
        if "send" in at:
            send, post = body[at["send"]], body[at["post"]]
            assert isinstance(send, Send)
            assert isinstance(post, Post)
            found.append(LocalCopy(send.read.buffer, post.write.buffer, **at))
    return found


def with_copies_within(procedure: Procedure, lives: dict[str, tuple[int, int]]) -> Procedure:
    """The procedure with the copies into and out of these buffers moved so that each is live from the first to the
    last of two statements: posts and sends go down, at most to the wait that they belong to, and waits go up. No
    message of a die to itself makes another die wait, so that this cannot block."""
    body = procedure.body
    # Before which statement (rank 0) or after which one (rank 2) the moved ones stand.
    place: dict[int, tuple[int, int]] = {}
    for c in local_copies(body):
        if c.slot in lives:
            first = lives[c.slot][0]
            place |= {part: (first, 0) for part in (c.post, c.send) if part < first <= c.received}
        if c.source in lives:
            last = lives[c.source][1]
            if max(c.post, c.send) <= last < c.left:
                place[c.left] = last, 2
    order = sorted(range(len(body)), key=lambda i: (*place.get(i, (i, 1)), i))
    return replace(procedure, body=tuple(body[i] for i in order))
