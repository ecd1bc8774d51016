"""Where in the step a call that mostly waits for messages may run while another one works."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wscc.ir.step import Affine, Call, Loop, calls, substituted
from wscc.passes.overlap_calls.dependences import only_call
from wscc.passes.overlap_calls.merger import Merger
from wscc.passes.overlap_calls.strands import Strands

Body = list[Call | Loop]


@dataclass(slots=True)
class StepWriter:
    """Rewrites the step of one stage; what is merged hides at least `least` seconds."""

    merger: Merger
    least: float

    @staticmethod
    def of(merger: Merger, body: tuple[Call | Loop, ...], share: float) -> StepWriter:
        """What is merged hides at least this share of what work and messages of the stage add up to."""
        each = ((times, call.procedure) for call, times in calls(body))
        return StepWriter(merger, share * sum(n * (merger.work(p) + merger.messages(p)) for n, p in each))

    def overlapped(self, body: Body) -> Body:
        """Calls with messages merged into earlier ones that they may run beside: first those in loops, which need whole
        loops to hide behind."""
        for kind in (Loop, Call):
            at = 0
            while at < len(body):
                after = len(body) - at - 1
                if isinstance(body[at], kind) and self._has_messages(body[at]):
                    body = self._hidden(body, at) or body
                at = len(body) - after
        return body

    def _has_messages(self, stmt: Call | Loop) -> bool:
        call = only_call(stmt)
        return call is not None and self.merger.messages(call.procedure) > 0

    def _hidden(self, body: Body, at: int) -> Body | None:
        """The statements with the one at `at` merged into earlier ones; None if that cannot be, or is not worth it."""
        stmt, met = body[at], self._met(body, at, body[at])
        if met < 0:
            return None
        before = body[met]
        if isinstance(before, Loop) and only_call(before) is None:
            opened = [*body[:met], *_last_apart(before), *body[met + 1 :]]
            return self._hidden(opened, at + len(opened) - len(body))
        if isinstance(stmt, Call):
            return self._hidden_parts(body, at, stmt)
        pipelined = self._pipelined(before, stmt) if isinstance(before, Loop) else None
        if pipelined is None:
            return None
        loops, last = pipelined
        between = body[met + 1 : at]
        return [*body[:met], *loops, *(self._hosted(last, between) or [last, *between]), *body[at + 1 :]]

    def _met(self, body: Body, at: int, stmt: Call | Loop) -> int:
        """The last statement before `at` that touches what `stmt` touches, or -1."""
        return next((i for i in range(at - 1, -1, -1) if self.merger.order.meet(body[i], stmt)), -1)

    def _hidden_parts(self, body: Body, at: int, call: Call) -> Body | None:
        """As `_hidden`, for the strands of a call that wait for the same statement, one set after the other."""
        waiting: dict[int, Strands] = {}
        for strand in self.merger.strands(call.procedure):
            waiting.setdefault(self._met(body, at, self.merger.part(call, [strand])), []).append(strand)
        left: Strands = []
        for met, some in sorted(waiting.items(), reverse=True):
            hosted = None
            if self.merger.saved(call.procedure, some) >= self.least:
                guest = call if len(waiting) == 1 else self.merger.part(call, some)
                hosted = self._hosted(guest, body[met + 1 : at])
            if hosted is None:
                left += some
            else:
                body, at = [*body[: met + 1], *hosted, *body[at:]], met + 1 + len(hosted)
        if len(left) == len(self.merger.strands(call.procedure)):
            return None
        return [*body[:at], *([self.merger.part(call, left)] if left else []), *body[at + 1 :]]

    def _hosted(self, call: Call, between: Body) -> Body | None:
        """The statements with the call merged into the first of them that has work enough."""
        for i, stmt in enumerate(between):
            host = only_call(stmt)
            if host is None or not self._worth(host, call, 1):
                continue
            first, others = (stmt, []) if isinstance(stmt, Call) else _first_apart(stmt)
            if not self.merger.order.clash(first, call):
                return [*between[:i], self.merger.call(first, call), *others, *between[i + 1 :]]
        return None

    def _pipelined(self, before: Loop, stmt: Loop) -> tuple[Body, Call] | None:
        """Iterations of `stmt` merged into those of `before` that follow the one they wait for; and the last."""
        first, second = only_call(before), only_call(stmt)
        pairing = self.merger.order.pairing(before, stmt)
        if first is None or second is None or pairing is None:
            return None
        if not self._worth(first, second, before.count - 1):
            return None
        variable = before.variable
        guest = _at(second, stmt.variable, pairing)
        following = _at(first, variable, Affine(1, ((variable, 1),)))
        loop = replace(before, count=before.count - 1, body=(self.merger.call(following, guest),))
        return [_at(first, variable, Affine(0)), loop], _at(guest, variable, Affine(before.count - 1))

    def _worth(self, host: Call, guest: Call, times: int) -> bool:
        """Whether the guest's messages have enough of the host's work to hide behind."""
        m = self.merger
        if not (times and m.may_merge(host.procedure) and m.may_merge(guest.procedure)):
            return False
        return times * min(m.room(host.procedure), m.messages(guest.procedure)) >= self.least


def _at(stmt: Call, variable: str, value: Affine) -> Call:
    refs = (replace(r, index=tuple(substituted(i, {variable: value}) for i in r.index)) for r in stmt.args)
    return replace(stmt, args=tuple(refs))


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
    call = only_call(loop)
    assert call is not None
    later = _at(call, loop.variable, Affine(1, ((loop.variable, 1),)))
    rest: Body = [replace(loop, count=loop.count - 1, body=(later,))] if loop.count > 1 else []
    return _at(call, loop.variable, Affine(0)), rest
