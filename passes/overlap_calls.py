"""Let calls that wait for messages run beside calls that work, by merging the two."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from wscc.ir.module import Module, Stage, Step, calls
from wscc.passes.base import Fact, Pass
from wscc.passes.overlap_calls_step import Merger, StepWriter


@dataclass(frozen=True, slots=True)
class OverlapCalls(Pass):
    """Merge calls that mostly wait for messages with calls that work, where one may run beside the other.

    A gradient is completed by a call behind the loop over micro-batches. Its messages wait for nothing but the last
    backward work on its layer, so the last micro-batch is taken out of the loop, and in it the completion of a layer
    becomes part of the backward work on the next one, as one procedure: the messages of the one are on their way while
    the other works. Nothing is in flight between calls. Iterations that nothing follows stay alone or join the next
    call that works.

    The order of all calls that touch the same elements stays, and what each computes. A merged procedure has to hide a
    fixed part of the step's work, so that what is small stays as it is.

    Before: loop mb < 8 { .. loop l < 12 { @block.bwd(11 - l) } }; loop l < 12 { @complete(l) }
    After:  loop mb < 7 { .. }; ..; @block.bwd(11); loop l < 11 { @block.bwd.complete(10 - l, 11 - l) }; @complete(0)
    """

    name: ClassVar[str] = "overlap_calls"
    requires: ClassVar[frozenset[Fact]] = frozenset({Fact.SCHEDULED})

    def run(self, module: Module) -> Module:
        merger = Merger(module)
        step: Step = tuple(
            replace(s, body=tuple(StepWriter.of(merger, s.body).overlapped(list(s.body))))
            for s in module.step
            if isinstance(s, Stage)
        )
        if not step:
            (body,) = module.steps()
            step = tuple(StepWriter.of(merger, body).overlapped(list(body)))
        if not merger.made:
            return module
        before = {c.procedure for c, _ in calls(module.step)}
        after = {c.procedure for c, _ in calls(step)}
        kept = [
            p
            for p in merger.procedures.values()
            if p.name in after or p.name not in before | merger.made.keys()
        ]
        return module.with_(step=step, procedures=tuple(kept))
