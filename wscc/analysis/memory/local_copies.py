"""Copies within a die: messages of dies to themselves, with the buffers that they read and fill."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from wscc.analysis.statement_accesses import Message, messages
from wscc.ir.fabric import FabricStmt, Post, Send
from wscc.ir.op import GraphStmt


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """A message of each die to itself in a scheduled body: the buffers or arguments that it reads and fills, what it is
    said to be for, and the positions of its statements."""

    source: str
    slot: str
    purpose: str
    message: Message

    def shortens(self, buffer: str, locals_: Set[str]) -> bool:
        """Whether it may be made later, or earlier, so that a local is live for less: between two locals it may for the
        copy, which it is for, and not for what is copied."""
        return buffer == self.purpose or not {self.source, self.slot} <= locals_


def local_copies(body: Sequence[FabricStmt | GraphStmt]) -> list[LocalCopy]:
    """The copies within a die of a scheduled body, in the order of their first statements."""
    copies = []
    for m in messages(body).values():
        send, post = body[m.send], body[m.post]
        assert isinstance(send, Send)
        assert isinstance(post, Post)
        if send.is_local:
            copies.append(LocalCopy(send.read.buffer, post.write.buffer, send.source, m))
    return copies
