"""The pass that cuts the chain of segments into pipeline stages, each with its own step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from wscc.diagnostics import Source
from wscc.ir.module import Module
from wscc.passes.base import Fact, Pass
from wscc.passes.stages.cut import check_groups
from wscc.passes.stages.cutter import Cutter
from wscc.passes.stages.edited_order import with_call_order
from wscc.strategy import stage_axes


@dataclass(frozen=True, slots=True)
class Stages(Pass):
    """Give each pipeline stage its chunks of layers, its arrays and its own step.

    The order of forward and backward work is 1F1B (Narayanan et al., arXiv 2104.04473, section 2.2), held as loops over
    micro-batches. A value that a chunk passes to another stage crosses right after the slot that made it; two stages
    exchange all such values in one call that both make, and all stages make these calls in one order, so that they
    cannot deadlock. An array that is in flight has a slot for each micro-batch that may be in flight. A parameter that
    several stages use has a copy on each; its gradients, still partial sums, are added up on the stage that uses it
    first, which updates it and sends it to the others.

    Before: step { loop mb { @embed.fwd .. loop l { @block.fwd } .. @head.bwd .. loop l { @block.bwd } } }
    After:  step { stage 0 { .. loop mb { @embed.fwd .. @pass .. } .. } stage 1 { .. } }

    With a `call_order`, calls run in that order instead, and the exchanges and slots follow from it.

    Fails with W201 when there are fewer layers than stages, or micro-batches that interleaving cannot group; with
    W204 or W205 for a call order that is not of this program, or cannot be.
    """

    name: ClassVar[str] = "stages"
    requires: ClassVar[frozenset[Fact]] = frozenset({Fact.PARTITIONED})
    provides: ClassVar[frozenset[Fact]] = frozenset({Fact.STAGED})

    call_order: Source | None = None

    def run(self, module: Module) -> Module:
        axes = stage_axes(module.sizes)
        check_groups(module, axes)
        axis = axes[0] if axes else ""
        if (
            self.call_order is not None
            and (edited := with_call_order(self.call_order, module, axis)) is not None
        ):
            return edited
        return Cutter(module, axis).run() if axes else module
