"""Two scheduled procedures as one, so that the messages of the second are on their way while the first works."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from wscc.ir.fabric import FabricStmt, Kernel, Post, Send, Transfer, View, Wait
from wscc.ir.module import Op, Output, Procedure
from wscc.ir.naming import fresh
from wscc.passes.overlap_calls_time import Seconds


def merged(
    first: Procedure, second: Procedure, name: str, times: tuple[Seconds, Seconds], aliases: dict[str, str]
) -> Procedure:
    """A procedure that takes the inputs of both, then the outputs of both, and does what both do.

    Calls of the two must touch nothing in common that one of them writes. Then every order of their statements that
    keeps the order of each is right, and since posts and sends do not block, free of deadlock: each message has its
    post and send above its waits in the one order, as before. Buffers, formals and channels of the second are renamed
    apart; sources of both become `procedure/source`. `aliases`: common names of formals of the second that may be
    the same memory.
    """
    taken = {v.name for v in first.formals} | {b.name for b in first.buffers}
    names: dict[str, str] = {}
    for old in (*(v.name for v in second.formals), *(b.name for b in second.buffers)):
        if old not in names:
            names[old] = fresh(f"{second.name}.{old}", taken)
            taken.add(names[old])
    channels = 1 + max((s.channel for s in first.body if not isinstance(s, Op | Kernel)), default=-1)
    own = [_renamed(s, first.name, {}, 0) for s in first.body]
    due = _due(second, times[1], strands(second, aliases))
    other = [
        (due[i], _renamed(second.body[i], second.name, names, channels))
        for i in sorted(due, key=due.__getitem__)
    ]
    return Procedure(
        name,
        (*first.inputs, *(replace(v, name=names[v.name]) for v in second.inputs)),
        (
            *first.outputs,
            *(Output(replace(o.value, name=names[o.value.name]), o.mode) for o in second.outputs),
        ),
        tuple(_interleaved(own, other, times[0])),
        (*first.buffers, *(replace(b, name=names[b.name]) for b in second.buffers)),
    )


def strands(procedure: Procedure, aliases: dict[str, str]) -> list[list[int]]:
    """The statements, by position, in sets that have no memory and no message in common, each in order."""
    root: dict[str | int, str | int] = {}

    def find(x: str | int) -> str | int:
        while root.setdefault(x, x) != x:
            x = root[x]
        return x

    touched = [[aliases.get(x, x) if isinstance(x, str) else x for x in _touched(s)] for s in procedure.body]
    for names in touched:
        for x in names[1:]:
            root[find(x)] = find(names[0])
    found: dict[str | int, list[int]] = {}
    for i, names in enumerate(touched):
        found.setdefault(find(names[0]) if names else -1, []).append(i)
    return list(found.values())


def _touched(stmt: Op | FabricStmt) -> list[str | int]:
    """Buffers, and the channel of a message."""
    match stmt:
        case Kernel():
            return [v.buffer for v in (*stmt.writes, *stmt.reads)]
        case Post():
            return [stmt.channel, stmt.write.buffer]
        case Send():
            return [stmt.channel, stmt.read.buffer]
        case Wait():
            return [stmt.channel]
        case Transfer() | Op():
            raise AssertionError("only scheduled procedures are merged")


def _due(procedure: Procedure, times: Seconds, parts: list[list[int]]) -> dict[int, float]:
    """By position of each statement, strand by strand: the part of its strand's messages that has arrived with it."""
    due: dict[int, float] = {}
    for part in parts:
        due.update(zip(part, _shares([times.messages[i] for i in part]), strict=True))
    return due


def _interleaved(
    own: Sequence[FabricStmt], other: Sequence[tuple[float, FabricStmt]], times: Seconds
) -> Iterator[FabricStmt]:
    """Waits of `other` come when the same part of the work of `own` is done as of their strand's messages should have
    arrived, what follows a wait at once. Only before kernels, so that what `own` sends together stays together."""
    done = [0.0, *_shares(times.work)]
    at = 0
    for i, stmt in enumerate(own):
        if isinstance(stmt, Kernel):
            while at < len(other) and other[at][0] <= done[i]:
                yield other[at][1]
                at += 1
        yield stmt
    yield from (stmt for _, stmt in other[at:])


def _shares(seconds: Sequence[float]) -> list[float]:
    """By statement, the part of all seconds that is over with it."""
    whole = sum(seconds)
    return [n / whole if whole else 0.0 for n in accumulate(seconds)]


def _renamed(stmt: Op | FabricStmt, procedure: str, names: dict[str, str], channels: int) -> FabricStmt:
    def view(v: View) -> View:
        return replace(v, buffer=names.get(v.buffer, v.buffer))

    def source(s: str) -> str:
        return f"{procedure}/{s}" if s and "/" not in s else s

    match stmt:
        case Kernel():
            return replace(
                stmt, writes=tuple(map(view, stmt.writes)), reads=tuple(map(view, stmt.reads)),
                source=source(stmt.source),
            )  # fmt: skip
        case Post():
            return replace(stmt, channel=stmt.channel + channels, write=view(stmt.write))
        case Send():
            return replace(
                stmt, channel=stmt.channel + channels, read=view(stmt.read), source=source(stmt.source)
            )
        case Wait():
            return replace(stmt, channel=stmt.channel + channels)
        case Transfer() | Op():
            raise AssertionError("only scheduled procedures are merged")
