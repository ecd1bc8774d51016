"""Let the messages of a reshard be on their way while work is done that neither makes nor needs what they bring."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from wscc.analysis.aliases import aliases
from wscc.analysis.dependences import Dependences
from wscc.analysis.memory.array_layout import place_arrays
from wscc.analysis.memory.fits import all_fast, fit
from wscc.analysis.memory.live_ranges import lifetimes, live_peak
from wscc.analysis.statement_times import Seconds, shares
from wscc.ir.fabric import Kernel, Send
from wscc.ir.module import Module, Procedure
from wscc.ir.op import GraphStmt
from wscc.ir.per_die import Ints
from wscc.passes.base import Fact, Pass


@dataclass(frozen=True, slots=True)
class SpreadMessages(Pass):
    """Spread the statements of each reshard over the work between what it waits for and what waits for it.

    A weight that is gathered for its use (`zero 3`) waits for nothing: its messages begin when the gather before it,
    along the same axis, is over, and are on their way during the work between. A gradient that is scattered is waited
    for by nobody but the sum at the end: its messages end before the next ones begin. Waits come when as much of that
    work is done as of the messages should have arrived, by an estimate. Statements that touch the same memory keep
    their order, posts and sends stand above their waits, so results stay what they were, and nothing can deadlock.

    A procedure stays as it is if it has no products to hide anything behind, or where its locals would then not all fit
    the fast memory: messages that live longer would push others out of it.

    Before: gemm ..; post 0; send 0; wait 0; gemm .. of what came
    After:  post 0; send 0; gemm ..; wait 0; gemm .. of what came
    """

    name: ClassVar[str] = "spread_messages"
    requires: ClassVar[frozenset[Fact]] = frozenset({Fact.SCHEDULED})

    def run(self, module: Module) -> Module:
        names, die = aliases(module), module.machine.die
        in_sram = place_arrays(module, 0)[1] <= die.sram
        made = []
        for p in module.procedures:
            if live_peak(lifetimes(p, die)) > die.sram:
                made.append(p)
                continue
            times = Seconds.of(p, module.machine, in_sram=in_sram)
            spread = _spread(p, times, module.dies_used, names[p.name])
            fits = spread is not p and all_fast(spread, die) and fit(module, [spread])
            made.append(spread if fits else p)
        return module.with_(procedures=tuple(made))


@dataclass(frozen=True, slots=True)
class _Group:
    """Statements of one reshard, by position; `first` and `last` are those that it must follow and precede."""

    members: tuple[int, ...]
    follows: frozenset[int]
    precedes: frozenset[int]
    line: tuple[bool, frozenset[Ints]]


def _spread(procedure: Procedure, times: Seconds, dies: int, names: dict[str, str]) -> Procedure:
    if not any(_is_gemm(procedure, i) for i in range(len(procedure.body))):
        return procedure
    groups = list(_groups(procedure, times, dies, names))
    order = list(range(len(procedure.body)))
    for group in groups:
        line = [g for g in groups if g.line == group.line]
        at = line.index(group)
        if group.line[0]:
            near = [i for g in line[:at][-1:] for i in g.members if times.messages[i]]
        else:
            near = [i for g in line[at + 1 :][:1] for i in g.members if isinstance(procedure.body[i], Send)]
        order = _placed(order, group, near, procedure, times)
    if order == sorted(order):
        return procedure
    return replace(procedure, body=tuple(procedure.body[i] for i in order))


def _groups(procedure: Procedure, times: Seconds, dies: int, names: dict[str, str]) -> Iterator[_Group]:
    """Reshards of several rounds that either wait for nothing or that nothing waits for, and whose messages take longer
    than their own work. Those in a line do the same along the same axis."""
    sources = {s.channel: s.source for s in procedure.body if isinstance(s, Send)}
    by_source: dict[str, list[int]] = {}
    for i, s in enumerate(procedure.body):
        assert not isinstance(s, GraphStmt)
        source = s.source if isinstance(s, Kernel) else sources.get(s.channel, "")
        by_source.setdefault(source, []).append(i)
    order: Dependences | None = None
    for source, members in by_source.items():
        if not source or not _goes_round(members, procedure, times):
            continue
        order = order or Dependences.of(procedure, dies, names)
        follows, precedes = order.around(members)
        if len(follows) and all(_is_first(i, procedure, order) for i in follows.tolist()):
            members = sorted({*members, *follows.tolist()})
            follows, precedes = order.around(members)
        if (len(follows) == 0) != (len(precedes) == 0):
            to = frozenset(s.to for i in members if isinstance(s := procedure.body[i], Send))
            line = len(follows) == 0, to
            yield _Group(tuple(members), frozenset(follows.tolist()), frozenset(precedes.tolist()), line)


def _goes_round(members: Sequence[int], procedure: Procedure, times: Seconds) -> bool:
    """Whether some messages wait for others, all take longer than the work, and no product is among that."""
    if any(_is_gemm(procedure, i) for i in members):
        return False
    arrived = next((i for i in members if times.messages[i]), len(procedure.body))
    again = any(i > arrived and isinstance(procedure.body[i], Send) for i in members)
    return again and sum(times.messages[i] for i in members) > sum(times.work[i] for i in members)


def _is_first(statement: int, procedure: Procedure, order: Dependences) -> bool:
    """Whether the statement only converts or copies what the procedure is given."""
    is_light = isinstance(procedure.body[statement], Kernel) and not _is_gemm(procedure, statement)
    return is_light and not len(order.around([statement])[0])


def _is_gemm(procedure: Procedure, statement: int) -> bool:
    found = procedure.body[statement]
    return isinstance(found, Kernel) and found.opcode == "gemm"


def _placed(
    order: list[int], group: _Group, near: Sequence[int], procedure: Procedure, times: Seconds
) -> list[int]:
    """The order with the group's statements spread over the work in which they may stand. Where it waits for nothing:
    from when those `near` have arrived, but never later than before; else until `near` begin, but never earlier."""
    members, free = set(group.members), group.line[0]
    others = [i for i in order if i not in members]
    where = {i: k for k, i in enumerate(others)}
    start = 1 + max((where[i] for i in group.follows), default=-1)
    end = min((where[i] for i in group.precedes), default=len(others))
    began = [order.index(i) for i in group.members if isinstance(procedure.body[i], Send)]
    ended = [order.index(i) for i in group.members if times.messages[i]]
    if free and near:
        start = max(
            start, min(1 + max(where[i] for i in near), sum(i not in members for i in order[: began[0]]))
        )
    elif near:
        end = min(end, max(min(where[i] for i in near), sum(i not in members for i in order[: ended[-1]])))
    window = others[start:end]
    room = shares([times.room[i] for i in window])
    if not room or not room[-1]:
        return order
    due = shares([times.messages[i] for i in group.members])
    placed, at = [], 0
    for k, i in enumerate(window):
        if isinstance(procedure.body[i], Kernel):
            while at < len(due) and due[at] <= (room[k - 1] if k else 0.0):
                placed.append(group.members[at])
                at += 1
        placed.append(i)
    return [*others[:start], *placed, *group.members[at:], *others[end:]]
