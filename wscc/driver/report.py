"""report.json: what a compiled program costs and how it lies, as one stable object."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fractions import Fraction
from math import prod
from typing import Any

from wscc.analysis.index_ranges import split_axes
from wscc.analysis.link_loads import PhaseLoad, ProcedureLoad
from wscc.analysis.memory.report import memory_report
from wscc.analysis.repeated_casts import repeated_casts
from wscc.driver.pipeline import Timings
from wscc.driver.storage import storage_report
from wscc.ir.array import Kind
from wscc.ir.module import Module
from wscc.ir.op import Op
from wscc.ir.step import calls
from wscc.ir.streams.program import Streams
from wscc.passes.place.types import Placement


@dataclass(frozen=True, slots=True)
class Loads:
    """What links carry: in each phase, in each procedure, and summed over links in a step."""

    phases: tuple[PhaseLoad, ...]
    procedures: tuple[ProcedureLoad, ...]
    traffic_bytes: int


def build_report(
    graph: Module, sharded: Module, planned: Module, place: Placement, loads: Loads, streams: Streams,
    timings: Timings, *, hoisting: bool,
) -> dict[str, Any]:  # fmt: skip
    """`graph` is the forward module; `sharded` the partitioned one; `hoisting` whether `hoist_casts` has run."""
    memory = memory_report(planned)
    return {
        "strategy": dict(graph.axes),
        "dies_used": graph.dies_used,
        "compile_seconds": timings.report(),
        "params": parameters(graph),
        "flops_per_step": model_flops(graph),
        "memory": {
            "peak_bytes_per_die_max": memory.peak,
            "peak_bytes_per_die": [
                n for n in memory.stages for _ in range(graph.dies_used // planned.stages)
            ],
            "live_peak_bytes": memory.live_peak,
            "by_category": memory.by_category,
            "capacity": memory.capacity,
        },
        "storage": storage_report(planned),
        "weights_converted": weights_converted(sharded, planned, hoisting=hoisting),
        "placement": {
            "method": place.method,
            "rings": place.rings,
            "paths": place.paths,
            "axes": {a.name: {"lies": a.kind, "hops": a.hops, "note": a.note} for a in place.axes},
        },
        "phases": [asdict(p) for p in loads.phases],
        "procedures": [asdict(p) for p in loads.procedures],
        "replicated_flops": replicated_flops(sharded),
        "hidden_flops": hidden_flops(sharded),
        "sequence_order": "zigzag" if sharded.zigzag else "contiguous",
        "traffic_bytes": loads.traffic_bytes,
        "instructions": sum(len(c.body) for p in streams.programs for c in p.procedures),
    }


def weights_converted(sharded: Module, planned: Module, *, hoisting: bool) -> str:
    """How often weights are converted to the type of computation."""
    if any(a.kind is Kind.WORKING for a in planned.arrays):
        return "once a step"
    if not repeated_casts(sharded):
        return "never twice"
    return "at each use: working copies do not fit" if hoisting else "at each use"


def replicated_flops(sharded: Module) -> dict[str, int]:
    """By op, the FLOPs of a step that dies repeat after one another, summed over dies: no axis that could
    have split the op is idle in a strategy without an entry here."""
    dies = sharded.dies_used // sharded.stages
    repeated: dict[str, int] = {}
    for call, times in calls(sharded.step):
        for op in sharded.procedure(call.procedure).ops:
            split = prod(sharded.sizes[a] for a in working_axes(op))
            if op.flops and split < dies:
                name = f"{call.procedure}/{op.results[0].name}"
                extra = int(times * op.flops * seen(op, sharded)) * (dies - split) // split
                repeated[name] = repeated.get(name, 0) + extra
    return repeated


def hidden_flops(sharded: Module) -> int:
    """FLOPs of attention in a step that no die computes, because a causal mask hides whole shards of keys."""
    return sum(
        int(times * op.flops * (1 - seen(op, sharded)))
        for call, times in calls(sharded.step)
        for op in sharded.procedure(call.procedure).ops
        if op.flops
    )


def hidden_model_flops(sharded: Module) -> int:
    """What of `model_flops` no die computes, because a causal mask hides whole shards of keys."""
    return 3 * sum(
        int(times * op.flops * (1 - seen(op, sharded)))
        for call, times in calls(sharded.step)
        for op in sharded.procedure(call.procedure).ops
        if op.flops and not op.origin
    )


def seen(op: Op, sharded: Module) -> Fraction:
    """The share of an op's work that is done: of T shards of keys, query shard i sees the first i + 1, in zigzag
    two pieces of each shard for every two pieces of queries, but one in its own."""
    if not op.definition.positional or not op.attr("causal"):
        return Fraction(1)
    queries = split_axes(op, op.rule.ins[0][1])
    if queries and queries[0] in sharded.zigzag:
        shards = sharded.sizes[queries[0]]
        return Fraction(2 * shards + 1, 4 * shards)
    if op.stream is None or op.stream.factor != op.rule.ins[1][1]:
        return Fraction(1)
    shards = sharded.sizes[op.stream.axis]
    return Fraction(shards + 1, 2 * shards)


def working_axes(op: Op) -> set[str]:
    """Axes along which dies do different parts of the op: those that split a result, or leave it partial."""
    axes: set[str] = set()
    for value in op.results:
        if value.type.layout is not None:
            axes |= {*value.type.layout.axes, *(a for a, _ in value.type.layout.partial)}
    return axes


def parameters(graph: Module) -> int:
    """Elements of all parameters; a tied one counts once."""
    return sum(prod((*a.extents, *a.type.shape)) for a in graph.arrays if a.kind is Kind.PARAM)


def model_flops(graph: Module) -> int:
    """FLOPs of contractions and attention in a training step of a forward module: forward, and twice that
    backward; recomputation does not count."""
    forward = sum(
        times * op.flops for call, times in calls(graph.step) for op in graph.procedure(call.procedure).ops
    )
    return 3 * forward
