"""Copies within a die take only as long as there is room for them: they begin and end as their memory allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wscc.analysis.statement_accesses import Message, messages
from wscc.ir.fabric import FabricStmt, Post, Send
from wscc.ir.op import GraphStmt


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """Where the parts of a message of each die to itself stand in a scheduled body, and the buffers (or arguments)
    that it reads and fills."""

    source: str
    slot: str
    parts: Message


def local_copies(body: Sequence[FabricStmt | GraphStmt]) -> list[LocalCopy]:
    """The messages of dies to themselves."""
    copies = []
    for m in messages(body).values():
        send, post = body[m.send], body[m.post]
        assert isinstance(send, Send)
        assert isinstance(post, Post)
        if send.is_local:
            copies.append(LocalCopy(send.read.buffer, post.write.buffer, m))
    return copies
