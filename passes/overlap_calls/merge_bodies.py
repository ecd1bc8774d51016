"""Scheduled procedures merged into one, or interleaved in themselves, so that messages of one part overlap work of
others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from wscc.analysis.statement_times import StatementTimes, cumulative_shares
from wscc.ir.fabric import FabricStmt, Kernel, Send, Transfer, with_views
from wscc.ir.module import Output, Procedure
from wscc.ir.naming import fresh
from wscc.ir.op import GraphStmt
from wscc.passes.overlap_calls.components import Components, rows

# Less than any message's fraction of the time of its component.
_BEFORE: Final = 1e-9


def merged(
    first: Procedure,
    second: Procedure,
    name: str,
    times: tuple[StatementTimes, StatementTimes],
    components: Components,
) -> Procedure:
    """A procedure with the inputs of both, then the outputs of both, and the effect of both.

    `times` are those of both; `components` are those of the second. Calls of the two must not conflict. Then every
    order of their statements that keeps the order of each component is right, and since posts and sends do not block,
    free of deadlock: each message has its post and send above its waits in the one order, as before. Buffers, arguments
    and channels of the second are renamed apart; sources of both become `procedure/source`.
    """
    taken = {v.name for v in first.arguments} | {b.name for b in first.buffers}
    names: dict[str, str] = {}
    for old in (*(v.name for v in second.arguments), *(b.name for b in second.buffers)):
        if old not in names:
            names[old] = fresh(f"{second.name}.{old}", taken)
            taken.add(names[old])
    channels = 1 + max((s.channel for s in first.body if not isinstance(s, GraphStmt | Kernel)), default=-1)
    host = [_renamed(s, first.name, {}, 0) for s in first.body]
    guest = [
        (due, _renamed(s, second.name, names, channels))
        for due, s in _by_arrival(second, times[1], components)
    ]
    outputs = (Output(replace(o.value, name=names[o.value.name]), o.mode) for o in second.outputs)
    return Procedure(
        name,
        (*first.inputs, *(replace(v, name=names[v.name]) for v in second.inputs)),
        (*first.outputs, *outputs),
        tuple(_inserted(host, guest, times[0])),
        (*first.buffers, *(replace(b, name=names[b.name]) for b in second.buffers)),
    )


def interleaved(procedure: Procedure, times: StatementTimes, components: Components) -> Procedure:
    """The procedure with its components interleaved instead of one after the other, where links have room for them.

    A row of components begins before the last messages of the row before have arrived.
    """
    packed = rows(components, times)
    if len(packed) == len(components):
        return procedure
    keyed = [
        (row + due if due or not row else row - _BEFORE, stmt)
        for row, row_components in enumerate(packed)
        for due, stmt in _by_arrival(procedure, times, row_components)
    ]
    keyed.sort(key=lambda p: p[0])
    return replace(procedure, body=tuple(stmt for _, stmt in keyed))


def _by_arrival(
    procedure: Procedure, times: StatementTimes, components: Components
) -> Iterator[tuple[float, FabricStmt]]:
    """(fraction, statement): every statement with the fraction of its component's message time that has passed with it,
    in order of that."""
    due: dict[int, float] = {}
    for component in components:
        due.update(zip(component, cumulative_shares([times.messages[i] for i in component]), strict=True))
    for i in sorted(due, key=due.__getitem__):
        stmt = procedure.body[i]
        assert not isinstance(stmt, GraphStmt)
        yield due[i], stmt


def _inserted(
    host: Sequence[FabricStmt], guest: Sequence[tuple[float, FabricStmt]], times: StatementTimes
) -> Iterator[FabricStmt]:
    """The statements of the host with those of the guest, given by arrival, inserted.

    A wait of the guest comes when the same fraction of the host's link-idle time has passed as of the message time of
    its component, and what follows the wait comes at once. Insertions are only before kernels, so that messages which
    the host sends together stay together.
    """
    elapsed = [0.0, *cumulative_shares(times.link_idle)]
    n = 0
    for i, stmt in enumerate(host):
        if isinstance(stmt, Kernel):
            while n < len(guest) and guest[n][0] <= elapsed[i]:
                yield guest[n][1]
                n += 1
        yield stmt
    yield from (stmt for _, stmt in guest[n:])


def _renamed(
    stmt: GraphStmt | FabricStmt, procedure: str, names: dict[str, str], channels: int
) -> FabricStmt:
    assert not isinstance(stmt, GraphStmt | Transfer), "only scheduled procedures are merged"
    renamed = with_views(stmt, lambda v: v.on(names.get(v.buffer, v.buffer)))
    if isinstance(renamed, Kernel | Send) and renamed.source:
        renamed = replace(renamed, source=f"{procedure}/{renamed.source}")
    return renamed if isinstance(renamed, Kernel) else replace(renamed, channel=renamed.channel + channels)
