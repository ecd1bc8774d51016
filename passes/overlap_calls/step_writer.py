"""Rewriting of a step so that calls that mostly wait for messages run while other calls work."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from wscc.ir.step import Affine, Call, Loop, calls, substituted
from wscc.passes.overlap_calls.call_dependences import CallDependences, only_call
from wscc.passes.overlap_calls.components import Components

Body = list[Call | Loop]


class Merges(Protocol):
    """What a writer asks of procedures: of those of a program (`Merger`), or of estimates (`wscc.search.overlaps`)."""

    @property
    def dependences(self) -> CallDependences: ...
    def work(self, procedure: str) -> float: ...
    def messages(self, procedure: str) -> float: ...
    def link_idle(self, procedure: str) -> float: ...
    def components(self, procedure: str) -> Components: ...
    def saving(self, procedure: str, removed: Components) -> float: ...
    def may_merge(self, procedure: str) -> bool: ...
    def call(self, first: Call, second: Call) -> Call: ...
    def restricted(self, call: Call, selected: Components) -> Call: ...


@dataclass(slots=True)
class StepWriter:
    """Rewrites the step of one stage; each merge hides at least `threshold` seconds of messages."""

    merger: Merges
    threshold: float

    @staticmethod
    def of(merger: Merges, body: tuple[Call | Loop, ...], fraction: float) -> StepWriter:
        """The writer whose threshold is this fraction of the seconds of all work and messages of the stage."""
        all_calls = ((times, call.procedure) for call, times in calls(body))
        total = sum(n * (merger.work(p) + merger.messages(p)) for n, p in all_calls)
        return StepWriter(merger, fraction * total)

    def overlapped(self, body: Body) -> Body:
        """The step with calls that have messages merged into earlier ones that work: first calls in loops, which need
        whole loops to hide behind."""
        for kind in (Loop, Call):
            position = 0
            while position < len(body):
                remaining = len(body) - position - 1
                if isinstance(body[position], kind) and self._has_messages(body[position]):
                    body = self._merged_earlier(body, position) or body
                position = len(body) - remaining
        return body

    def _has_messages(self, stmt: Call | Loop) -> bool:
        call = only_call(stmt)
        return call is not None and self.merger.messages(call.procedure) > 0

    def _merged_earlier(self, body: Body, position: int) -> Body | None:
        """The statements with the one at `position` merged into earlier ones; None if that is impossible or does not
        pay."""
        stmt, conflict = body[position], self._last_conflict(body, position, body[position])
        if conflict < 0:
            return None
        before = body[conflict]
        if isinstance(before, Loop) and only_call(before) is None:
            peeled = [*body[:conflict], *_last_peeled(before), *body[conflict + 1 :]]
            return self._merged_earlier(peeled, position + len(peeled) - len(body))
        if isinstance(stmt, Call):
            return self._merged_by_component(body, position, stmt)
        pipelined = self._pipelined(before, stmt) if isinstance(before, Loop) else None
        if pipelined is None:
            return None
        loops, last = pipelined
        between = body[conflict + 1 : position]
        merged = self._hosted(last, between) or [last, *between]
        return [*body[:conflict], *loops, *merged, *body[position + 1 :]]

    def _last_conflict(self, body: Body, position: int, stmt: Call | Loop) -> int:
        """The last statement before `position` that conflicts with `stmt`, or -1."""
        earlier, dependences = range(position - 1, -1, -1), self.merger.dependences
        return next((i for i in earlier if dependences.arrays_conflict(body[i], stmt)), -1)

    def _merged_by_component(self, body: Body, position: int, call: Call) -> Body | None:
        """The result of `_merged_earlier` for a call, each set of components with the same last conflict by itself."""
        by_conflict: dict[int, Components] = {}
        for component in self.merger.components(call.procedure):
            conflict = self._last_conflict(body, position, self.merger.restricted(call, [component]))
            by_conflict.setdefault(conflict, []).append(component)
        remainder: Components = []
        for conflict, components in sorted(by_conflict.items(), reverse=True):
            merged = None
            if self.merger.saving(call.procedure, components) >= self.threshold:
                guest = call if len(by_conflict) == 1 else self.merger.restricted(call, components)
                merged = self._hosted(guest, body[conflict + 1 : position])
            if merged is None:
                remainder += components
            else:
                body = [*body[: conflict + 1], *merged, *body[position:]]
                position = conflict + 1 + len(merged)
        if len(remainder) == len(self.merger.components(call.procedure)):
            return None
        rest = [self.merger.restricted(call, remainder)] if remainder else []
        return [*body[:position], *rest, *body[position + 1 :]]

    def _hosted(self, call: Call, between: Body) -> Body | None:
        """The statements with the call merged into the first of them that has enough work; None if there is none."""
        for i, stmt in enumerate(between):
            host = only_call(stmt)
            if host is None or not self._pays(host, call, 1):
                continue
            first, others = (stmt, []) if isinstance(stmt, Call) else _first_peeled(stmt)
            if not self.merger.dependences.elements_conflict(first, call):
                return [*between[:i], self.merger.call(first, call), *others, *between[i + 1 :]]
        return None

    def _pipelined(self, before: Loop, stmt: Loop) -> tuple[Body, Call] | None:
        """Software pipelining: iterations of `stmt` merged into those of `before` that follow the one they depend on,
        and the call of the last iteration that is left over. None if that is impossible or does not pay."""
        first, second = only_call(before), only_call(stmt)
        pairing = self.merger.dependences.pairing(before, stmt)
        if first is None or second is None or pairing is None:
            return None
        if not self._pays(first, second, before.count - 1):
            return None
        variable = before.variable
        guest = _substituted(second, stmt.variable, pairing)
        following = _substituted(first, variable, Affine(1, ((variable, 1),)))
        loop = replace(before, count=before.count - 1, body=(self.merger.call(following, guest),))
        return [_substituted(first, variable, Affine(0)), loop], _substituted(
            guest, variable, Affine(before.count - 1)
        )

    def _pays(self, host: Call, guest: Call, times: int) -> bool:
        """Whether the host's work hides enough of the guest's messages, so many times."""
        m = self.merger
        if not (times and m.may_merge(host.procedure) and m.may_merge(guest.procedure)):
            return False
        return times * min(m.link_idle(host.procedure), m.messages(guest.procedure)) >= self.threshold


def _substituted(stmt: Call, variable: str, value: Affine) -> Call:
    """The call with a value for a loop variable."""
    refs = (replace(r, index=tuple(substituted(i, {variable: value}) for i in r.index)) for r in stmt.args)
    return replace(stmt, args=tuple(refs))


def _substituted_throughout(stmt: Call | Loop, variable: str, value: Affine) -> Call | Loop:
    if isinstance(stmt, Call):
        return _substituted(stmt, variable, value)
    return replace(stmt, body=tuple(_substituted_throughout(s, variable, value) for s in stmt.body))


def _last_peeled(loop: Loop) -> Body:
    """The loop with its last iteration peeled off behind it."""
    last = [_substituted_throughout(s, loop.variable, Affine(loop.count - 1)) for s in loop.body]
    return [*([replace(loop, count=loop.count - 1)] if loop.count > 1 else []), *last]


def _first_peeled(loop: Loop) -> tuple[Call, Body]:
    """The first iteration of a loop over one call, peeled off before the others."""
    call = only_call(loop)
    assert call is not None
    later = _substituted(call, loop.variable, Affine(1, ((loop.variable, 1),)))
    rest: Body = [replace(loop, count=loop.count - 1, body=(later,))] if loop.count > 1 else []
    return _substituted(call, loop.variable, Affine(0)), rest
