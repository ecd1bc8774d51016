"""Seconds of a step from the load alone, for comparing wafers: no queues, no latency, nothing overlaps."""

from __future__ import annotations

from fractions import Fraction
from math import prod
from typing import Final

from wscc.analysis.link_loads import phase_loads
from wscc.driver.report import seen, working_axes
from wscc.ir.module import Module
from wscc.ir.op import Op
from wscc.ir.step import calls

MODEL: Final = (
    "load model: of each call, FLOPs per die over peak, plus bytes of the most loaded link of each phase over its "
    "bandwidth; nothing overlaps; the slowest stage sets the pace, (m v + p - 1) / (m v) for filling the pipeline"
)


def step_seconds(sharded: Module, routed: Module) -> float:
    """`sharded` is the module that was placed, `routed` the same after `route`."""
    wafer, train = routed.machine, routed.train
    moving: dict[str, int] = {}
    for load in phase_loads(routed):
        procedure = load.name.rsplit("/", 1)[0]
        moving[procedure] = moving.get(procedure, 0) + load.max_link_bytes
    computing = {p.name: sum(_die_flops(op, sharded) for op in p.ops) for p in sharded.procedures}
    slowest = max(
        sum(
            times * (float(computing[c.procedure]) / wafer.die.peak + moving.get(c.procedure, 0) / wafer.link.bandwidth)
            for c, times in calls(step)
        )
        for step in routed.steps()
    )  # fmt: skip
    slots = train.microbatches * (train.interleave if routed.stages > 1 else 1)
    return slowest * (slots + routed.stages - 1) / slots


def _die_flops(op: Op, sharded: Module) -> Fraction:
    if not op.flops:
        return Fraction(0)
    return op.flops * seen(op, sharded) / prod(sharded.sizes[a] for a in working_axes(op))
