"""Two scheduled procedures as one, so that the messages of the second are on their way while the first works."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from wscc.ir.fabric import FabricStmt, Kernel, Post, Send, Transfer, View, Wait
from wscc.ir.module import Op, Output, Procedure
from wscc.ir.naming import fresh
from wscc.passes.overlap_calls_time import Seconds


def merged(first: Procedure, second: Procedure, name: str, times: tuple[Seconds, Seconds]) -> Procedure:
    """A procedure that takes the inputs of both, then the outputs of both, and does what both do.

    Calls of the two must touch nothing in common that one of them writes. Then every order of their statements that
    keeps the order of each is right, and since posts and sends do not block, free of deadlock: each message has its
    post and send above its waits in the one order, as before. Buffers, formals and channels of the second are renamed
    apart; sources of both become `procedure/source`.
    """
    taken = {v.name for v in first.formals} | {b.name for b in first.buffers}
    names: dict[str, str] = {}
    for old in (*(v.name for v in second.formals), *(b.name for b in second.buffers)):
        if old not in names:
            names[old] = fresh(f"{second.name}.{old}", taken)
            taken.add(names[old])
    channels = 1 + max((s.channel for s in first.body if not isinstance(s, Op | Kernel)), default=-1)
    other = [_renamed(s, second.name, names, channels) for s in second.body]
    own = [_renamed(s, first.name, {}, 0) for s in first.body]
    return Procedure(
        name,
        (*first.inputs, *(replace(v, name=names[v.name]) for v in second.inputs)),
        (
            *first.outputs,
            *(Output(replace(o.value, name=names[o.value.name]), o.mode) for o in second.outputs),
        ),
        tuple(_interleaved(own, other, *times)),
        (*first.buffers, *(replace(b, name=names[b.name]) for b in second.buffers)),
    )


def _interleaved(
    own: Sequence[FabricStmt], other: Sequence[FabricStmt], own_time: Seconds, other_time: Seconds
) -> Iterator[FabricStmt]:
    """Waits of `other` are spread over the work of `own` in proportion to how long their messages take; what follows
    a wait comes at once. Only before kernels, so that messages which `own` sends together stay together."""
    due = _shares(other_time.messages)
    done = [0.0, *_shares(own_time.work)]
    at = 0
    for i, stmt in enumerate(own):
        if isinstance(stmt, Kernel):
            while at < len(other) and due[at] <= done[i]:
                yield other[at]
                at += 1
        yield stmt
    yield from other[at:]


def _shares(seconds: Sequence[float]) -> list[float]:
    """By statement, the part of all seconds that is over with it."""
    whole = sum(seconds)
    return [n / whole if whole else 1.0 for n in accumulate(seconds)]


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
