"""The most layers that a pipeline stage has memory for, by the arrays that certainly rest on its dies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wscc.analysis.memory.stride import element_stride
from wscc.ir.array import Array, Kind, Role
from wscc.ir.module import Module
from wscc.ir.step import Call, Loop

Pair = tuple[Call | Loop, Call | Loop]


def most_layers(module: Module, pairs: Sequence[Pair], stages: int) -> list[int]:
    """By stage of plain 1F1B, the layers of a sharded module beyond which its dies are too small for certain.

    Counted are weights with their gradients and moments, and what `pp - s` micro-batches in flight on stage s keep of
    each layer, of a repeat whose layers need the least; not counted are locals, inputs and copies.
    """
    loops = [i for i, (f, _) in enumerate(pairs) if isinstance(f, Loop)]
    die = module.die
    layers = sum(f.count for f, _ in pairs if isinstance(f, Loop))
    before, after = pairs[: loops[0]], pairs[loops[-1] + 1 :]
    most = []
    for stage in range(stages):
        in_flight = min(stages - stage, module.train.microbatches)
        ends = [*(before if stage == 0 else ()), *(after if stage == stages - 1 else ())]
        fixed = _bytes(module, ends, in_flight)
        each = min(_bytes(module, [pairs[i]], in_flight) for i in loops)
        room = max(die.sram + die.hbm - fixed, 0)
        most.append(min(room // each, layers) if each else layers)
    return most


def _bytes(module: Module, pairs: Sequence[Pair], in_flight: int) -> int:
    """Bytes of an element of each array that the statements access, and of what belongs to it."""
    names = {ref.array for pair in pairs for stmt in pair for ref in _call(stmt).args}
    total = 0
    for array in (a for a in module.arrays if a.name in names and not a.storage):
        if array.kind is Kind.PARAM:
            total += sum(element_stride(module, a) for a in (array, *_belonging(module, array)))
        elif array.kind is Kind.RESIDUAL or (array.kind is Kind.CARRIED and not array.is_a(Role.GRADIENT)):
            total += in_flight * element_stride(module, array)
    return total


def _call(stmt: Call | Loop) -> Call:
    call = stmt if isinstance(stmt, Call) else stmt.body[0]
    assert isinstance(call, Call)
    return call


def _belonging(module: Module, param: Array) -> Iterator[Array]:
    """The gradient and the moments of a parameter. A tied table has moments on its first stage alone, which is not
    worth a distinction."""
    for a in module.arrays:
        if a.kind in (Kind.GRAD, Kind.STATE) and a.relation is not None and a.relation.array == param.name:
            yield a
