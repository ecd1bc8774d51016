"""Spreading of the messages of reshards over work that neither produces nor needs their data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from wscc.analysis.aliases import aliases
from wscc.analysis.dependences import Dependences, Index
from wscc.analysis.memory.fits import arrays_fit_sram, locals_fit, locals_fit_sram
from wscc.analysis.memory.handed import handed_in
from wscc.analysis.memory.live_ranges import all_ranges, live_peak
from wscc.analysis.statement_times import StatementTimes, cumulative_shares
from wscc.ir.fabric import Kernel, Send
from wscc.ir.module import Module, Procedure
from wscc.ir.op import GraphStmt
from wscc.ir.per_die import Ints
from wscc.passes.base import Fact, Pass


@dataclass(frozen=True, slots=True)
class SpreadMessages(Pass):
    """Spread the statements of each reshard over the work between its last predecessor and its first successor.

    The gather of a weight for its use (`zero 3`) depends on nothing: its messages begin when the gather before it along
    the same axis is over, and are in flight during the work between. Nothing but the sum at the end depends on the
    scatter of a gradient: its messages end before the next ones begin. Messages that are mostly latency take no turns:
    they begin at once, or end at last. By an estimate, a wait comes when the same
    fraction of that work is done as of the messages has arrived. Dependent statements keep their order, and posts and
    sends stand above their waits, so results stay what they were, and nothing can deadlock.

    A procedure stays as it is if it has no products that could hide messages, or if its locals would then not all fit
    the fast memory: messages in flight for longer would push others out of it.

    Before: gemm ..; post 0; send 0; wait 0; gemm .. of what came
    After:  post 0; send 0; gemm ..; wait 0; gemm .. of what came
    """

    name: ClassVar[str] = "spread_messages"
    requires: ClassVar[frozenset[Fact]] = frozenset({Fact.SCHEDULED})

    def run(self, module: Module) -> Module:
        names, die = aliases(module), module.die
        in_sram, handed = arrays_fit_sram(module), handed_in(module)
        procedures = []
        for p in module.procedures:
            if live_peak(all_ranges(p, handed)) > die.sram:
                procedures.append(p)
                continue
            times = StatementTimes.of(p, module, in_sram=in_sram)
            spread = _spread(p, times, module.dies_used, names[p.name])
            fits = spread is not p and locals_fit_sram(spread, die, handed) and locals_fit(module, [spread])
            procedures.append(spread if fits else p)
        return module.with_(procedures=tuple(procedures))


@dataclass(frozen=True, slots=True)
class _Group:
    """The statements of one reshard by position, with the statements that they depend on and that depend on them.

    `queue`: whether it is a prefetch (it depends on nothing), and the receivers by sender of its messages. Groups of
    one queue take turns."""

    members: tuple[int, ...]
    predecessors: frozenset[int]
    successors: frozenset[int]
    queue: tuple[bool, frozenset[Ints]]


def _spread(procedure: Procedure, times: StatementTimes, dies: int, names: dict[str, str]) -> Procedure:
    if not any(_is_gemm(procedure, i) for i in range(len(procedure.body))):
        return procedure
    groups = list(_groups(procedure, times, dies, names))
    order = list(range(len(procedure.body)))
    for group in groups:
        queue = [g for g in groups if g.queue == group.queue]
        turn = queue.index(group)
        if _is_mostly_latency(group.members, times):
            adjacent = []
        elif group.queue[0]:
            adjacent = [i for g in queue[:turn][-1:] for i in g.members if times.messages[i]]
        else:
            adjacent = [
                i for g in queue[turn + 1 :][:1] for i in g.members if isinstance(procedure.body[i], Send)
            ]
        order = _placed(order, group, adjacent, procedure, times)
    if order == sorted(order):
        return procedure
    return replace(procedure, body=tuple(procedure.body[i] for i in order))


def _groups(
    procedure: Procedure, times: StatementTimes, dies: int, names: dict[str, str]
) -> Iterator[_Group]:
    """Reshards of several messages that have no predecessors or no successors, and whose messages take longer than
    their own work."""
    sources = {s.channel: s.source for s in procedure.body if isinstance(s, Send)}
    by_source: dict[str, list[int]] = {}
    for i, s in enumerate(procedure.body):
        assert not isinstance(s, GraphStmt)
        source = s.source if isinstance(s, Kernel) else sources.get(s.channel, "")
        by_source.setdefault(source, []).append(i)
    dependences: Dependences | None = None
    for source, members in by_source.items():
        if not source or not _is_spreadable(members, procedure, times):
            continue
        dependences = dependences or Dependences.of(procedure, dies, names)
        predecessors, successors = dependences.neighbours(members)
        if len(predecessors) and all(
            _is_light_prologue(i, procedure, dependences) for i in predecessors.tolist()
        ):
            members = sorted({*members, *predecessors.tolist()})
            predecessors, successors = dependences.neighbours(members)
        sends = [(i, s) for i in members if isinstance(s := procedure.body[i], Send)]
        one_side = (len(predecessors) == 0) != (len(successors) == 0)
        if one_side and _is_apart([i for i, _ in sends], predecessors, successors):
            queue = len(predecessors) == 0, frozenset(s.to for _, s in sends)
            yield _Group(
                tuple(members), frozenset(predecessors.tolist()), frozenset(successors.tolist()), queue
            )


def _is_apart(sends: Sequence[int], predecessors: Index, successors: Index) -> bool:
    """Whether all messages of a reshard are sent behind what it uses and before what uses it.

    Not so where a stream does it slice by slice: some are used before others begin.
    """
    begins = not len(predecessors) or predecessors[-1] < sends[0]
    ends = not len(successors) or sends[-1] < successors[0]
    return bool(begins and ends)


def _is_mostly_latency(members: Sequence[int], times: StatementTimes) -> bool:
    """Whether messages keep their links for less than half of their time: then others may be in flight beside them."""
    return 2 * sum(times.busy[i] for i in members) < sum(times.messages[i] for i in members)


def _is_spreadable(members: Sequence[int], procedure: Procedure, times: StatementTimes) -> bool:
    """Whether there are several messages, all take longer than the work, and no member is a product."""
    if any(_is_gemm(procedure, i) for i in members):
        return False
    messages = sum(isinstance(procedure.body[i], Send) for i in members)
    return messages > 1 and sum(times.messages[i] for i in members) > sum(times.work[i] for i in members)


def _is_light_prologue(statement: int, procedure: Procedure, dependences: Dependences) -> bool:
    """Whether a statement is a light kernel that reads arguments only, such as a conversion or a copy."""
    is_light = isinstance(procedure.body[statement], Kernel) and not _is_gemm(procedure, statement)
    return is_light and not len(dependences.neighbours([statement])[0])


def _is_gemm(procedure: Procedure, statement: int) -> bool:
    stmt = procedure.body[statement]
    return isinstance(stmt, Kernel) and stmt.opcode == "gemm"


def _placed(
    order: list[int], group: _Group, adjacent: Sequence[int], procedure: Procedure, times: StatementTimes
) -> list[int]:
    """The order with the statements of a group spread over the work between its predecessors and its successors.

    A prefetch starts when the `adjacent` messages before it have arrived, but never later than it does now; other
    groups end before the `adjacent` messages behind them begin, but never earlier than they do now."""
    members, is_prefetch = set(group.members), group.queue[0]
    others = [i for i in order if i not in members]
    rank = {i: k for k, i in enumerate(others)}
    start = 1 + max((rank[i] for i in group.predecessors), default=-1)
    end = min((rank[i] for i in group.successors), default=len(others))
    sends = [order.index(i) for i in group.members if isinstance(procedure.body[i], Send)]
    arrivals = [order.index(i) for i in group.members if times.messages[i]]
    if is_prefetch and adjacent:
        start = max(
            start, min(1 + max(rank[i] for i in adjacent), sum(i not in members for i in order[: sends[0]]))
        )
    elif adjacent:
        end = min(
            end, max(min(rank[i] for i in adjacent), sum(i not in members for i in order[: arrivals[-1]]))
        )
    window = others[start:end]
    elapsed = cumulative_shares([times.link_idle[i] for i in window])
    if not elapsed or not elapsed[-1]:
        return order
    due = cumulative_shares([times.messages[i] for i in group.members])
    merged, n = [], 0
    for k, i in enumerate(window):
        if isinstance(procedure.body[i], Kernel):
            while n < len(due) and due[n] <= (elapsed[k - 1] if k else 0.0):
                merged.append(group.members[n])
                n += 1
        merged.append(i)
    return [*others[:start], *merged, *group.members[n:], *others[end:]]
