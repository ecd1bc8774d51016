"""Traffic of each axis in a step, the weight of its hops in placement."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from wscc.analysis.reshard_steps import ReshardStep, moving_values, received_elements
from wscc.ir.module import Module
from wscc.ir.op import Op, Reshard, Value
from wscc.ir.step import calls


@dataclass(slots=True)
class Traffic:
    """Bytes of a step that a pair of consecutive peers of a group exchanges, both ways together: `pair` for one pair on
    average, `closing` for the last with the first."""

    pair: float = 0.0
    closing: float = 0.0


def axis_traffic(module: Module) -> dict[str, Traffic]:
    """The traffic of each axis. A collective counts as a ring of the least traffic, in which each die receives as much
    as a pair exchanges; calls of stages are averaged over the stages."""
    total = {axis: Traffic() for axis in module.sizes}
    for stage, step in enumerate(module.steps()):
        for call, times in calls(step):
            for op in module.procedure(call.procedure).statements:
                match op:
                    case Reshard(kind="permute"):
                        _add_permute(total[op.axis], op, times, stage, module)
                    case Reshard(kind="stage_sum"):
                        size = _shard_bytes(op.result, module.sizes)
                        _add_ring(total[op.axis], times * size / module.stages)
                    case Reshard():
                        received = _reshard_bytes(op, module.sizes)
                        _add_ring(total[op.axis], times * received / module.stages)
                    case Op() if op.stream is not None:
                        received = _stream_bytes(op, module.sizes)
                        _add_ring(total[op.stream.axis], times * received / module.stages)
    return total


def _add_ring(traffic: Traffic, received: float) -> None:
    traffic.pair += received
    traffic.closing += received


def _add_permute(traffic: Traffic, op: Reshard, times: int, stage: int, module: Module) -> None:
    """Add a move from stage to stage: counted at its source, for every pair that it passes."""
    size = _shard_bytes(op.result, module.sizes)
    distance, last = abs(op.source - op.target), module.stages - 1
    if stage == op.source and distance == last > 1:
        traffic.closing += times * size
    elif stage == op.source:
        traffic.pair += times * size * distance / last


def _reshard_bytes(op: Reshard, sizes: dict[str, int]) -> float:
    value = op.result
    assert value.type.layout is not None
    step = ReshardStep(op.kind, op.axis, value.type.layout)
    return received_elements(step, value.type.shape, sizes) * value.type.dtype.size


def _stream_bytes(op: Op, sizes: dict[str, int]) -> float:
    """Bytes that each die receives: the stored shards of all others, once."""
    assert op.stream is not None
    others = sizes[op.stream.axis] - 1
    return sum(others * float(_shard_bytes(value, sizes)) for value in moving_values(op))


def _shard_bytes(value: Value, sizes: dict[str, int]) -> int:
    return prod(value.type.local_shape(sizes)) * value.type.dtype.size
