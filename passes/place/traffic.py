"""Traffic of each axis in a step, the weight of its hops in placement."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from wscc.analysis.reshard_steps import Reshard, moving, received_elements
from wscc.ir.module import Module
from wscc.ir.op import Op, Value
from wscc.ir.ops import STAGE_MOVES
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
            for op in module.procedure(call.procedure).ops:
                if op.kind in STAGE_MOVES:
                    _add_move(total[str(op.attr("axis"))], op, times, stage, module)
                elif op.is_reshard:
                    axis = str(op.attr("axis"))
                    _add_ring(total[axis], times * _reshard_bytes(op, module.sizes) / module.stages)
                elif op.stream is not None:
                    axis = op.stream.axis
                    _add_ring(total[axis], times * _stream_bytes(op, module.sizes) / module.stages)
    return total


def _add_ring(traffic: Traffic, received: float) -> None:
    traffic.pair += received
    traffic.closing += received


def _add_move(traffic: Traffic, op: Op, times: int, stage: int, module: Module) -> None:
    """Add a move from stage to stage: counted at its source, for every pair that it passes."""
    size = _shard_bytes(op.results[0], module.sizes)
    last = module.stages - 1
    if op.kind == "stage_sum":
        _add_ring(traffic, times * size / module.stages)
        return
    source, target = op.attr("source"), op.attr("target")
    assert isinstance(source, int)
    assert isinstance(target, int)
    if stage == source and abs(source - target) == last > 1:
        traffic.closing += times * size
    elif stage == source:
        traffic.pair += times * size * abs(source - target) / last


def _reshard_bytes(op: Op, sizes: dict[str, int]) -> float:
    value = op.results[0]
    assert value.type.layout is not None
    step = Reshard(op.kind, str(op.attr("axis")), value.type.layout)
    return received_elements(step, value.type.shape, sizes) * value.type.dtype.size


def _stream_bytes(op: Op, sizes: dict[str, int]) -> float:
    """Bytes that each die receives: the stored shards of all others, once."""
    assert op.stream is not None
    others = sizes[op.stream.axis] - 1
    return sum(others * float(_shard_bytes(value, sizes)) for value in moving(op))


def _shard_bytes(value: Value, sizes: dict[str, int]) -> int:
    return prod(value.type.local_shape(sizes)) * value.type.dtype.size
