"""The registry of passes, and the default pipeline of each optimization level.

Both are in the order in which a module passes through them; a new pass is one line in each place below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wscc.ir.module import Module
from wscc.passes.base import Pass
from wscc.passes.choices import DEFAULT, ROUTINGS, Choices
from wscc.passes.differentiate import Differentiate
from wscc.passes.form_phases import FormPhases
from wscc.passes.fuse import Fuse
from wscc.passes.hoist_casts import HoistCasts
from wscc.passes.lower_collectives import LowerCollectives
from wscc.passes.overlap_calls import OverlapCalls
from wscc.passes.pad import Pad
from wscc.passes.partition import Partition
from wscc.passes.place import Place
from wscc.passes.plan_memory import PlanMemory
from wscc.passes.promote import Promote
from wscc.passes.route import Route
from wscc.passes.schedule import Schedule
from wscc.passes.spread_messages import SpreadMessages
from wscc.passes.stages import Stages
from wscc.passes.stagger import Stagger

PASSES: Final[dict[str, type[Pass]]] = {
    p.name: p
    for p in (
        Differentiate,
        Pad,
        Partition,
        Stages,
        HoistCasts,
        Fuse,
        Place,
        LowerCollectives,
        Promote,
        FormPhases,
        Route,
        Stagger,
        Schedule,
        SpreadMessages,
        OverlapCalls,
        PlanMemory,
    )
}


def default_passes(
    level: int, choices: Choices = DEFAULT, seconds: Callable[[Module], float] | None = None
) -> list[Pass]:
    """The pipeline of optimization level `level` (0 to 3), with the options that `choices` sets.

    `-O0` has no compute copies, no fusion and no overlap, for debugging; `-O1` and above have all of them. `-O2` adds
    copies in SRAM and routes around congested links. `-O3` is `-O2` for a strategy that `wscc.search` selected.
    `seconds`: those of the step of a lowered module, to rehearse reshards with.
    """
    local_rewrites: list[Pass] = [HoistCasts(), Fuse()] if level > 0 else []
    promotion: list[Pass] = [Promote()] if level > 1 else []
    overlap: list[Pass] = [SpreadMessages(), OverlapCalls()] if level > 0 else []
    return [
        Differentiate(),
        Pad(),
        Partition(),
        Stages(choices.call_order),
        *local_rewrites,
        Place(choices.mapper),
        LowerCollectives(choices.allgather, seconds),
        *promotion,
        FormPhases(),
        Route(
            adaptive=(choices.routing or ROUTINGS[level > 1]) == "adaptive",
            max_iter=choices.max_iter,
            enough=choices.enough,
        ),
        Schedule(overlap=level > 0),
        *overlap,
        PlanMemory(),
    ]
