"""Views that the statements of fabric procedures read and write, on which dies, and from when until when.

The one scan of statements: whatever orders, moves or places them takes reads and writes from here. Verifiers and
oracles have scans of their own, so that they share no mistake with what they check.

A result that a kernel adds to counts as written: the same statements have to keep their order with it.
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
Views = tuple[tuple[View, bool], ...]  # each with whether it is written


def views_of(stmt: Stmt) -> Views:
    """The views that a statement by itself reads and writes, in no other's stead: a wait has none, nor has an op."""
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
    """By statement of a body, the views that it reads and writes.

    A message writes its slot from the post to the wait (received), and reads its source from the send to the wait
    (sent): the wait reads or writes what the post or send did.
    """
    begun: dict[tuple[int, bool], Views] = {}
    for stmt in body:
        if isinstance(stmt, Wait):
            yield begun[stmt.channel, stmt.sent]
            continue
        views = views_of(stmt)
        if isinstance(stmt, Post | Send):
            begun[stmt.channel, isinstance(stmt, Send)] = views
        yield views


def where_of(stmt: Stmt, dies: int, *, writes: bool) -> Ints:
    """1 on the dies on which a statement accesses what it writes, or what it reads."""
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
    """The buffers and arguments that some statement reads or writes."""
    return {view.buffer for stmt in body for view, _ in views_of(stmt)}


@dataclass(frozen=True, slots=True)
class Access:
    """A view that statement `at` of a body reads or writes."""

    at: int
    view: View
    writes: bool


def accesses_by_buffer(body: Iterable[Stmt]) -> dict[str, list[Access]]:
    """By buffer and argument, its accesses in order; of one statement, writes before reads."""
    accesses: dict[str, list[Access]] = {}
    for at, views in enumerate(accessed(body)):
        for view, writes in views:
            accesses.setdefault(view.buffer, []).append(Access(at, view, writes))
    return accesses


def positions_by_buffer(body: Iterable[Stmt]) -> dict[str, list[int]]:
    """By buffer and argument, the statements that access it, in order; one that does so twice is there twice."""
    positions: dict[str, list[int]] = {}
    for at, views in enumerate(accessed(body)):
        for view, _ in views:
            positions.setdefault(view.buffer, []).append(at)
    return positions


@dataclass(frozen=True, slots=True)
class Message:
    """Positions in a scheduled body of the four statements of a message."""

    post: int
    send: int
    received: int
    left: int


def messages(body: Sequence[Stmt]) -> dict[int, Message]:
    """The messages of a scheduled body by channel, in the order of their first statements."""
    parts: dict[int, dict[str, int]] = {}
    for at, stmt in enumerate(body):
        if isinstance(stmt, Post | Send | Wait):
            parts.setdefault(stmt.channel, {})[_part(stmt)] = at
    return {channel: Message(**part) for channel, part in parts.items()}


def _part(stmt: Post | Send | Wait) -> str:
    if isinstance(stmt, Wait):
        return "left" if stmt.sent else "received"
    return "post" if isinstance(stmt, Post) else "send"
