"""Overlap of calls that wait for messages with calls that work, by merging the two."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from wscc.analysis.memory.fits import locals_fit
from wscc.ir.module import Module
from wscc.ir.step import Call, Loop, Stage, Step, calls
from wscc.passes.base import Fact, Pass
from wscc.passes.overlap_calls.merger import Merger
from wscc.passes.overlap_calls.step_writer import StepWriter


@dataclass(frozen=True, slots=True)
class OverlapCalls(Pass):
    """Merge calls that mostly wait for messages with calls that work, where the two are independent.

    A gradient is completed by a call behind the loop over micro-batches. Its messages depend on nothing but the last
    backward work on its layer, so the last micro-batch is peeled off the loop, and in it the completion of a layer
    is merged with the backward work on the next one (software pipelining): the messages of the one are in flight while
    the other works. Nothing is in flight between calls. Iterations that nothing follows stay alone or join the next
    call that works.

    Calls that access the same elements keep their order, and each computes what it did. A merged procedure is one more
    to store, so it has to hide `worth` thousandths of the time of its stage, by an estimate. Nothing is merged where
    memory does not suffice for the locals of both. Within a call that waits and is not merged, independent components
    (the gradients of several parameters) are interleaved, as far as links have room for their messages.

    Before: loop mb < 8 { .. loop l < 12 { @block.bwd(11 - l) } }; loop l < 12 { @complete(l) }
    After:  loop mb < 7 { .. }; ..; @block.bwd(11); loop l < 11 { @block.bwd.complete(10 - l, 11 - l) }; @complete(0)
    """

    name: ClassVar[str] = "overlap_calls"
    requires: ClassVar[frozenset[Fact]] = frozenset({Fact.SCHEDULED})

    worth: int = 2

    def run(self, module: Module) -> Module:
        merger = Merger(module)
        step: Step = tuple(
            replace(s, body=self._overlapped(merger, s.body)) if isinstance(s, Stage) else s
            for s in module.step
        )
        if module.stages == 1 and not any(isinstance(s, Stage) for s in step):
            step = self._overlapped(merger, module.steps()[0])
        before = {c.procedure for c, _ in calls(module.step)}
        after = {c.procedure for c, _ in calls(step)}
        uncalled = {p.name for p in module.procedures} - before
        names = (n for n in merger.procedures if n in after or n in uncalled)
        procedures = tuple(map(merger.interleaved, names))
        new = [p for p in procedures if p not in module.procedures]
        return module.with_(step=step, procedures=procedures) if new and locals_fit(module, new) else module

    def _overlapped(self, merger: Merger, body: tuple[Call | Loop, ...]) -> tuple[Call | Loop, ...]:
        return tuple(StepWriter.of(merger, body, self.worth / 1000).overlapped(list(body)))
