"""Scheduled procedures whose messages are on their way while something else works: two as one, or parts of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from wscc.analysis.statement_times import Seconds, shares
from wscc.ir.fabric import FabricStmt, Kernel, Send, Transfer, with_views
from wscc.ir.module import Output, Procedure
from wscc.ir.naming import fresh
from wscc.ir.op import GraphStmt
from wscc.passes.overlap_calls.strands import Strands, rows

# Less than any message's part of its strand.
_BEFORE: Final = 1e-9


def merged(
    first: Procedure, second: Procedure, name: str, times: tuple[Seconds, Seconds], strands: Strands
) -> Procedure:
    """A procedure that takes the inputs of both, then the outputs of both, and does what both do; `strands` are those
    of the second.

    Calls of the two must touch nothing in common that one of them writes. Then every order of their statements that
    keeps the order of each strand is right, and since posts and sends do not block, free of deadlock: each message has
    its post and send above its waits in the one order, as before. Buffers, arguments and channels of the second are
    renamed apart; sources of both become `procedure/source`.
    """
    taken = {v.name for v in first.arguments} | {b.name for b in first.buffers}
    names: dict[str, str] = {}
    for old in (*(v.name for v in second.arguments), *(b.name for b in second.buffers)):
        if old not in names:
            names[old] = fresh(f"{second.name}.{old}", taken)
            taken.add(names[old])
    channels = 1 + max((s.channel for s in first.body if not isinstance(s, GraphStmt | Kernel)), default=-1)
    own = [_renamed(s, first.name, {}, 0) for s in first.body]
    other = [
        (due, _renamed(s, second.name, names, channels)) for due, s in _abreast(second, times[1], strands)
    ]
    given = (Output(replace(o.value, name=names[o.value.name]), o.mode) for o in second.outputs)
    return Procedure(
        name,
        (*first.inputs, *(replace(v, name=names[v.name]) for v in second.inputs)),
        (*first.outputs, *given),
        tuple(_interleaved(own, other, times[0])),
        (*first.buffers, *(replace(b, name=names[b.name]) for b in second.buffers)),
    )


def abreast(procedure: Procedure, times: Seconds, strands: Strands) -> Procedure:
    """The procedure with strands side by side instead of one after the other, where links have room for them. A row of
    them begins before the last messages of the row before have arrived."""
    found = rows(strands, times)
    if len(found) == len(strands):
        return procedure
    placed = [
        (row + due if due or not row else row - _BEFORE, stmt)
        for row, some in enumerate(found)
        for due, stmt in _abreast(procedure, times, some)
    ]
    placed.sort(key=lambda p: p[0])
    return replace(procedure, body=tuple(stmt for _, stmt in placed))


def _abreast(procedure: Procedure, times: Seconds, strands: Strands) -> Iterator[tuple[float, FabricStmt]]:
    """Every statement with the part of its strand's messages that has arrived with it, in that order."""
    due: dict[int, float] = {}
    for part in strands:
        due.update(zip(part, shares([times.messages[i] for i in part]), strict=True))
    for i in sorted(due, key=due.__getitem__):
        stmt = procedure.body[i]
        assert not isinstance(stmt, GraphStmt)
        yield due[i], stmt


def _interleaved(
    own: Sequence[FabricStmt], other: Sequence[tuple[float, FabricStmt]], times: Seconds
) -> Iterator[FabricStmt]:
    """Waits of `other` come when the same part of the room of `own` is over as of their strand's messages should have
    arrived, what follows a wait at once. Only before kernels, so that what `own` sends together stays together."""
    done = [0.0, *shares(times.room)]
    at = 0
    for i, stmt in enumerate(own):
        if isinstance(stmt, Kernel):
            while at < len(other) and other[at][0] <= done[i]:
                yield other[at][1]
                at += 1
        yield stmt
    yield from (stmt for _, stmt in other[at:])


def _renamed(
    stmt: GraphStmt | FabricStmt, procedure: str, names: dict[str, str], channels: int
) -> FabricStmt:
    assert not isinstance(stmt, GraphStmt | Transfer), "only scheduled procedures are merged"
    moved = with_views(stmt, lambda v: replace(v, buffer=names.get(v.buffer, v.buffer)))
    if isinstance(moved, Kernel | Send) and moved.source:
        moved = replace(moved, source=f"{procedure}/{moved.source}")
    return moved if isinstance(moved, Kernel) else replace(moved, channel=moved.channel + channels)
