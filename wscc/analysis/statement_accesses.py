"""Views that the statements of fabric procedures read and write, the dies that do, and the spans of messages.

This is the one scan of statements: every analysis and pass that orders, moves or places statements takes reads and
writes from here. Verifiers and oracles have scans of their own, so that they share no mistake with what they check.

A result that a kernel adds to counts as written only: writes impose every order that a read of it would.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from wscc.ir.die_arrays import present, senders
from wscc.ir.fabric import FabricStmt, Kernel, Post, Send, Transfer, Wait
from wscc.ir.op import GraphStmt
from wscc.ir.per_die import Ints
from wscc.ir.views import View

Stmt = FabricStmt | GraphStmt
Views = tuple[tuple[View, bool], ...]  # (view, is written)


def views_of(stmt: Stmt) -> Views:
    """The views that a statement itself reads and writes, writes first; none of a wait (see `accessed`) or an op."""
    match stmt:
        case Kernel():
            return (*((v, True) for v in stmt.writes), *((v, False) for v in stmt.reads))
        case Transfer():
            return (stmt.write, True), (stmt.read, False)
        case Post():
            return ((stmt.write, True),)
        case Send():
            return ((stmt.read, False),)
    return ()


def accessed(body: Iterable[Stmt]) -> Iterator[Views]:
    """The views that each statement of a body reads and writes, waits included.

    A message writes its slot from the post to the wait (received), and reads its source from the send to the wait
    (sent), so a wait accesses the view of its post or send.
    """
    in_flight: dict[tuple[int, bool], Views] = {}
    for stmt in body:
        if isinstance(stmt, Wait):
            yield in_flight[stmt.channel, stmt.sent]
            continue
        views = views_of(stmt)
        if isinstance(stmt, Post | Send):
            in_flight[stmt.channel, isinstance(stmt, Send)] = views
        yield views


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
    return {view.buffer for stmt in body for view, _ in views_of(stmt)}


@dataclass(frozen=True, slots=True)
class Access:
    """A view that the statement at a position of a body reads or writes."""

    position: int
    view: View
    writes: bool


def accesses_by_buffer(body: Iterable[Stmt]) -> dict[str, list[Access]]:
    """The accesses to each buffer and argument in program order; of one statement, writes before reads."""
    accesses: dict[str, list[Access]] = {}
    for position, views in enumerate(accessed(body)):
        for view, writes in views:
            accesses.setdefault(view.buffer, []).append(Access(position, view, writes))
    return accesses


def positions_by_buffer(body: Iterable[Stmt]) -> dict[str, list[int]]:
    """Positions of the statements that access each buffer and argument, ascending, one entry for each access."""
    positions: dict[str, list[int]] = {}
    for position, views in enumerate(accessed(body)):
        for view, _ in views:
            positions.setdefault(view.buffer, []).append(position)
    return positions


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
        if isinstance(stmt, Post | Send | Wait):
            parts.setdefault(stmt.channel, {})[_part(stmt)] = position
    return {channel: Message(**part) for channel, part in parts.items()}


def _part(stmt: Post | Send | Wait) -> str:
    if isinstance(stmt, Wait):
        return "sent" if stmt.sent else "received"
    return "post" if isinstance(stmt, Post) else "send"
