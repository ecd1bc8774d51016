"""Where in the step a call that mostly waits for messages may run while another one works."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from wscc.ir.die_arrays import as_array
from wscc.ir.fabric import NOBODY, Send
from wscc.ir.module import Affine, Call, Loop, Module, Procedure, calls
from wscc.ir.naming import Names
from wscc.passes.aliases import aliases
from wscc.passes.overlap_calls_bodies import merged
from wscc.passes.overlap_calls_order import Order
from wscc.passes.overlap_calls_time import Seconds
from wscc.passes.stages_step import substituted

Body = list[Call | Loop]

# A merged procedure is one more to store, so it has to hide at least this part of the work of its stage.
WORTH: Final = 0.002


class Merger:
    """The procedures of a module, with those that are merged on the way."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.order = Order(module)
        self.procedures = {p.name: p for p in module.procedures}
        self.made: dict[str, Procedure] = {}
        self._seconds = {p.name: Seconds.of(p, module.machine) for p in module.procedures}
        self._names = Names(self.procedures)
        self._aliases = aliases(module)

    def work(self, procedure: str) -> float:
        return sum(self._seconds[procedure].work)

    def messages(self, procedure: str) -> float:
        return sum(self._seconds[procedure].messages)

    def may_merge(self, procedure: str) -> bool:
        """Not twice, and not where messages come from another stage, which would call something else."""
        return procedure not in self.made and _within_stage(self.procedures[procedure], self.module)

    def call(self, first: Call, second: Call) -> Call:
        """One call that does what both do, which must not clash."""
        p, q = self.procedures[first.procedure], self.procedures[second.procedure]
        name = self._names.of((p.name, q.name), f"{p.name}.{q.name}")
        if name not in self.made:
            made = merged(p, q, name, (self._seconds[p.name], self._seconds[q.name]), self._aliases[q.name])
            self.made[name] = self.procedures[name] = made
        a, b = len(p.inputs), len(q.inputs)
        return Call(name, (*first.args[:a], *second.args[:b], *first.args[a:], *second.args[b:]))


def _within_stage(procedure: Procedure, module: Module) -> bool:
    each = module.dies_used // module.stages
    stages = np.arange(module.dies_used) // each
    for stmt in procedure.body:
        if isinstance(stmt, Send):
            to = as_array(stmt.to, module.dies_used)
            if (stages[to[to != NOBODY]] != stages[to != NOBODY]).any():
                return False
    return True


@dataclass(slots=True)
class StepWriter:
    """Rewrites the step of one stage."""

    merger: Merger
    least: float

    @staticmethod
    def of(merger: Merger, body: tuple[Call | Loop, ...]) -> StepWriter:
        work = sum(times * merger.work(call.procedure) for call, times in calls(body))
        return StepWriter(merger, WORTH * work)

    def overlapped(self, body: Body) -> Body:
        """Each call that mostly waits for messages merged with one that works, where one may run beside it."""
        at = 0
        while at < len(body):
            after = len(body) - at - 1
            if self._waits(body[at]):
                body = self._hidden(body, at) or body
            at = len(body) - after
        return body

    def _waits(self, stmt: Call | Loop) -> bool:
        call = _call(stmt)
        if call is None or not self.merger.may_merge(call.procedure):
            return False
        return self.merger.messages(call.procedure) > self.merger.work(call.procedure)

    def _hidden(self, body: Body, at: int) -> Body | None:
        """The statements with the one at `at` merged into earlier ones; None if that cannot be, or is not worth it."""
        stmt = body[at]
        met = next((i for i in range(at - 1, -1, -1) if self.merger.order.meet(body[i], stmt)), None)
        if met is None:
            return None
        before = body[met]
        if isinstance(before, Loop) and _call(before) is None:
            opened = [*body[:met], *_last_apart(before), *body[met + 1 :]]
            return self._hidden(opened, at + len(opened) - len(body))
        head, between, rest = body[: met + 1], body[met + 1 : at], body[at + 1 :]
        if isinstance(stmt, Call):
            hosted = self._hosted(stmt, between)
            return None if hosted is None else [*head, *hosted, *rest]
        if not isinstance(before, Loop):
            return None
        pipelined = self._pipelined(before, stmt)
        if pipelined is None:
            return None
        loops, last = pipelined
        return [*body[:met], *loops, *(self._hosted(last, between) or [last, *between]), *rest]

    def _hosted(self, call: Call, between: Body) -> Body | None:
        """The statements with the call merged into the first of them that has work enough."""
        for i, stmt in enumerate(between):
            host = _call(stmt)
            if host is None or not self._worth(host, call, 1):
                continue
            first, others = (stmt, []) if isinstance(stmt, Call) else _first_apart(stmt)
            if not self.merger.order.clash(first, call):
                return [*between[:i], self.merger.call(first, call), *others, *between[i + 1 :]]
        return None

    def _pipelined(self, before: Loop, stmt: Loop) -> tuple[Body, Call] | None:
        """Iterations of `stmt` merged into those of `before` that follow the one they wait for; and the last."""
        first, second = _call(before), _call(stmt)
        pairing = self.merger.order.pairing(before, stmt)
        if first is None or second is None or pairing is None:
            return None
        if not self._worth(first, second, before.count - 1):
            return None
        variable = before.variable
        late = _at(second, stmt.variable, pairing)
        alone = _at(first, variable, Affine(0))
        last = _at(late, variable, Affine(before.count - 1))
        following = _at(first, variable, Affine(1, ((variable, 1),)))
        return [
            alone,
            replace(before, count=before.count - 1, body=(self.merger.call(following, late),)),
        ], last

    def _worth(self, host: Call, guest: Call, times: int) -> bool:
        """Whether the guest's messages have enough of the host's work to hide behind."""
        m = self.merger
        if not (times and m.may_merge(host.procedure) and m.may_merge(guest.procedure)):
            return False
        return times * min(m.work(host.procedure), m.messages(guest.procedure)) >= self.least


def _call(stmt: Call | Loop) -> Call | None:
    """The call of a statement that has but one."""
    if isinstance(stmt, Call):
        return stmt
    call = stmt.body[0] if len(stmt.body) == 1 else None
    return call if isinstance(call, Call) else None


def _at(stmt: Call, variable: str, value: Affine) -> Call:
    args = (replace(r, index=tuple(substituted(i, {variable: value}) for i in r.index)) for r in stmt.args)
    return replace(stmt, args=tuple(args))


def _everywhere(stmt: Call | Loop, variable: str, value: Affine) -> Call | Loop:
    if isinstance(stmt, Call):
        return _at(stmt, variable, value)
    return replace(stmt, body=tuple(_everywhere(s, variable, value) for s in stmt.body))


def _last_apart(loop: Loop) -> Body:
    """The loop without its last iteration, then the statements of that."""
    last = [_everywhere(s, loop.variable, Affine(loop.count - 1)) for s in loop.body]
    return [*([replace(loop, count=loop.count - 1)] if loop.count > 1 else []), *last]


def _first_apart(loop: Loop) -> tuple[Call, Body]:
    """The first iteration of a loop over one call, then the others."""
    call = _call(loop)
    assert call is not None
    later = _at(call, loop.variable, Affine(1, ((loop.variable, 1),)))
    rest: Body = [replace(loop, count=loop.count - 1, body=(later,))] if loop.count > 1 else []
    return _at(call, loop.variable, Affine(0)), rest
