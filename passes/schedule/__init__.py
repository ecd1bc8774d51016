"""Order of the posts, sends and waits of each procedure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from wscc.analysis.accesses import accesses
from wscc.analysis.aliases import aliases
from wscc.analysis.transfer_groups import WINDOW
from wscc.ir.die_arrays import present, senders
from wscc.ir.fabric import FabricStmt, Kernel, Post, Send, Transfer, Wait
from wscc.ir.module import Module, Procedure
from wscc.ir.per_die import NOBODY
from wscc.passes.base import Fact, Pass
from wscc.passes.schedule.slack import Slack, TransferTimes, transfer_times


@dataclass(frozen=True, slots=True)
class Schedule(Pass):
    """Turn each transfer into post, send, wait (received) and wait (sent), in one order for all dies.

    Without `overlap` the four stand where the transfer stood. With it, posts and sends move up to their earliest
    positions that data and slot allow, waits down to the latest, just before the first statement that depends on them.
    Since a message in flight occupies memory at both ends, nothing moves over more than `ahead` other groups or
    `window` other transfers (or as many as carry few bytes), and a local transfer over no more work than hides it.
    Kernels keep their order. A send of a later phase follows the waits (received) of earlier phases.

    Invariants:
    - Each die's memory ends as if all transfers and kernels had run one by one in the order of the input.
    - Free of deadlock. Posts and sends never block, and both stand above the waits of their message in the
      one order. Of all blocked dies take the one whose wait stands highest: the peer's post or send stands
      above it, so the peer is blocked higher up, a contradiction.
    - Every message is over when the procedure ends, so calls do not mix.

    Before: transfer 0 to=[1,0] %x -> %y
    After:  post 0 %y; send 0 to=[1,0] %x; ...; wait 0 received; ...; wait 0 sent
    """

    name: ClassVar[str] = "schedule"
    requires: ClassVar[frozenset[Fact]] = frozenset({Fact.ROUTED})
    provides: ClassVar[frozenset[Fact]] = frozenset({Fact.SCHEDULED})

    overlap: bool = True
    ahead: int = 1
    window: int = WINDOW

    def run(self, module: Module) -> Module:
        names = aliases(module)
        return module.with_(
            procedures=tuple(self._scheduled(p, module, names[p.name]) for p in module.procedures)
        )

    def _scheduled(self, procedure: Procedure, module: Module, names: dict[str, str]) -> Procedure:
        body, dies = procedure.body, module.dies_used
        times: dict[int, TransferTimes] = {}
        if self.overlap:
            slack = Slack(max(self.ahead, 0), max(self.window, 0), module.die)
            times = transfer_times(procedure, accesses(procedure, dies, names), slack)
        # (time, rank at that time, position in the input) of each statement
        ordered: list[tuple[int, int, int, FabricStmt]] = []
        for i, stmt in enumerate(body):
            if isinstance(stmt, Transfer):
                if stmt.to != NOBODY:
                    ordered += _split(i, stmt, times.get(i, TransferTimes.in_place(i)), dies)
            else:
                assert isinstance(stmt, Kernel), "scheduled twice"
                ordered.append((2 * i + 1, 0, i, stmt))
        ordered.sort(key=lambda entry: entry[:3])
        return replace(procedure, body=tuple(stmt for *_, stmt in ordered))


def _split(i: int, t: Transfer, times: TransferTimes, dies: int) -> list[tuple[int, int, int, FabricStmt]]:
    """The four statements of a transfer with their sort keys (time, rank, position).

    Of statements at one time, waits come first: they may free the slot or bring the data of others.
    """
    by_receiver = senders(t.to, dies)
    rank = 0 if times.received > times.send else 3
    return [
        (times.post, 1, i, Post(t.channel, by_receiver, t.write)),
        (times.send, 2, i, Send(t.channel, t.to, t.read, t.route, t.source)),
        (times.received, rank, i, Wait(t.channel, sent=False, where=present(by_receiver, dies))),
        (times.sent, rank, i, Wait(t.channel, sent=True, where=present(t.to, dies))),
    ]
