"""Copies within a die take only as long as there is room for them: they begin and end as their memory allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wscc.ir.fabric import FabricStmt, Post, Send, Wait
from wscc.ir.op import GraphStmt


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


def local_copies(body: Sequence[FabricStmt | GraphStmt]) -> list[LocalCopy]:
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
