"""Views that the statements of fabric procedures read and write, the dies that do, and the spans of messages.

This is the one scan of statements: every analysis and pass that orders, moves or places statements takes reads and
writes from here. Verifiers and oracles have scans of their own, so that they share no mistake with what they check.

A result that a kernel adds to counts as written only: writes impose every order that a read of it would.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from wscc.ir.die_arrays import present, senders
from wscc.ir.fabric import FabricStmt, Kernel, Post, Send, Transfer, Wait
from wscc.ir.op import GraphStmt
from wscc.ir.per_die import Ints
from wscc.ir.views import View

Stmt = FabricStmt | GraphStmt


# The views that a statement writes, and those that it reads.
Views: TypeAlias = tuple[tuple[View, ...], tuple[View, ...]]


def views_of(stmt: Stmt) -> Views:
    """The views that a statement itself writes and reads; none of a wait (see `accessed`) or an op."""
    match stmt:
        case Kernel():
            return stmt.writes, stmt.reads
        case Transfer():
            return (stmt.write,), (stmt.read,)
        case Post():
            return (stmt.write,), ()
        case Send():
            return (), (stmt.read,)
    return (), ()


def accessed(body: Iterable[Stmt]) -> Iterator[Views]:
    """The views that each statement of a body reads and writes, waits included.

    A message writes its slot from the post to the wait (received), and reads its source from the send to the wait
    (sent), so a wait accesses the view of its post or send.
    """
    in_flight: dict[tuple[int, bool], Views] = {}
    for stmt in body:
        match stmt:
            case Wait():
                yield in_flight[stmt.channel, stmt.sent]
            case Post() | Send():
                views = in_flight[stmt.channel, isinstance(stmt, Send)] = views_of(stmt)
                yield views
            case _:
                yield views_of(stmt)


def where_of(stmt: Stmt, dies: int, *, writes: bool) -> Ints:
    """A mask by die: 1 where a statement accesses what it writes, or with `writes=False` what it reads."""
    match stmt:
        case Kernel() | Wait():
            return stmt.where
        case Transfer():
            return present(senders(stmt.to, dies) if writes else stmt.to, dies)
        case Post():
            return present(stmt.sender, dies)
        case Send():
            return present(stmt.to, dies)
    return 1


def buffers_of(body: Iterable[Stmt]) -> set[str]:
    """Names of the buffers and arguments that some statement reads or writes."""
    return {view.buffer for stmt in body for views in views_of(stmt) for view in views}


class Access(NamedTuple):
    """A view that the statement at a position of a body reads or writes."""

    position: int
    view: View
    writes: bool


def accesses_by_buffer(body: Iterable[Stmt]) -> dict[str, list[Access]]:
    """The accesses to each buffer and argument in program order; of one statement, writes before reads."""
    accesses: defaultdict[str, list[Access]] = defaultdict(list)
    for position, (writes, reads) in enumerate(accessed(body)):
        for view in writes:
            accesses[view.buffer].append(Access(position, view, True))
        for view in reads:
            accesses[view.buffer].append(Access(position, view, False))
    return dict(accesses)


def positions_by_buffer(body: Iterable[Stmt]) -> dict[str, list[int]]:
    """Positions of the statements that access each buffer and argument, ascending, one entry for each access."""
    positions: defaultdict[str, list[int]] = defaultdict(list)
    for position, (writes, reads) in enumerate(accessed(body)):
        for view in writes:
            positions[view.buffer].append(position)
        for view in reads:
            positions[view.buffer].append(position)
    return dict(positions)


@dataclass(frozen=True, slots=True)
class Message:
    """Positions in a scheduled body of the four statements of a message: post, send, wait (received), wait (sent)."""

    post: int
    send: int
    received: int
    sent: int


def messages(body: Sequence[Stmt]) -> dict[int, Message]:
    """The messages of a scheduled body by channel, in the order of their first statements."""
    parts: dict[int, dict[str, int]] = {}
    for position, stmt in enumerate(body):
        match stmt:
            case Wait():
                part = "sent" if stmt.sent else "received"
            case Post():
                part = "post"
            case Send():
                part = "send"
            case _:
                continue
        parts.setdefault(stmt.channel, {})[part] = position
    return {channel: Message(**part) for channel, part in parts.items()}
