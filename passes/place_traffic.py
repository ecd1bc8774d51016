"""How much crosses each axis in a step: what placement weighs its hops by."""

from __future__ import annotations

from wscc.ir.module import Module, Op, calls
from wscc.passes.partition_streams import moving
from wscc.passes.reshard import Reshard, received_elements


def axis_traffic(module: Module) -> dict[str, float]:
    """Bytes that a die receives per step and axis, bandwidth-optimal collectives assumed."""
    total = {axis: 0.0 for axis in module.sizes}
    for call, times in calls(module.step):
        for op in module.procedure(call.procedure).ops:
            if op.is_reshard:
                axis = str(op.attr("axis"))
                total[axis] += times * _reshard_bytes(op, module.sizes)
            elif op.stream is not None:
                total[op.stream.axis] += times * _stream_bytes(op, module.sizes)
    return total


def _reshard_bytes(op: Op, sizes: dict[str, int]) -> float:
    value = op.results[0]
    assert value.type.layout is not None
    step = Reshard(op.kind, str(op.attr("axis")), value.type.layout)
    return received_elements(step, value.type.shape, sizes) * value.type.dtype.size


def _stream_bytes(op: Op, sizes: dict[str, int]) -> float:
    """What moves is a shard at rest on every die; each receives all others once."""
    assert op.stream is not None
    others = sizes[op.stream.axis] - 1
    total = 0.0
    for value in moving(op):
        shard = 1
        for n in value.type.local_shape(sizes):
            shard *= n
        total += others * shard * value.type.dtype.size
    return total
