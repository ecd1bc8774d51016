"""The inputs of a model, and which integers its graph can do with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from wscc.ir.array import Array, Kind
from wscc.ir.module import Module, Procedure
from wscc.ir.op import Op
from wscc.ir.step import calls
from wscc.ir.types import DType

LABELS = "labels"  # the input that the loss counts


@dataclass(frozen=True, slots=True)
class Input:
    """An input array: `shape` is (sequences of one micro-batch, positions...), in `microbatches` micro-batches.

    Its integers number rows of a table or columns of logits, all below `below` (0: none is used so); where it
    `ignores`, `wscc.ir.ops.IGNORED` takes no part in the loss. Keys of random draws (`is_key`) are no data: the host
    makes them for each step, for each of `layers` if these differ.
    """

    name: str
    microbatches: int
    shape: tuple[int, ...]
    dtype: DType = DType.I32
    below: int = 0
    ignores: bool = False
    is_key: bool = False
    layers: tuple[int, ...] = ()

    @property
    def positions(self) -> int:
        """The number of elements of one sequence."""
        return prod(self.shape[1:])

    @property
    def batch(self) -> int:
        """The number of sequences of a step."""
        return self.microbatches * self.shape[0]


def inputs_of(graph: Module) -> tuple[Input, ...]:
    """The inputs of a graph-level module, with what the ops that read them allow."""
    return tuple(_input(graph, a) for a in graph.arrays if a.kind is Kind.INPUT)


def _input(graph: Module, a: Array) -> Input:
    uses = [*_uses(graph, a.name)]
    sizes = [size for procedure, op in uses for size in _indexed(procedure, op)]
    ignores = bool(uses) and all(op.definition.ignores for _, op in uses)
    is_key = any(op.definition.keys for _, op in uses)
    microbatches, *layers = a.extents
    return Input(
        a.name,
        microbatches,
        a.type.shape,
        a.type.dtype,
        min(sizes, default=0),
        ignores,
        is_key,
        tuple(layers),
    )


def _uses(graph: Module, name: str) -> Iterator[tuple[Procedure, Op]]:
    """Every op that takes integers from the input."""
    for call, _ in calls(graph.step):
        procedure = graph.procedure(call.procedure)
        bound = {v.name for v, ref in zip(procedure.inputs, call.args, strict=False) if ref.array == name}
        for op in procedure.ops:
            if any(op.operands[place].name in bound for place in op.definition.integers):
                yield procedure, op


def _indexed(procedure: Procedure, op: Op) -> Iterator[int]:
    """The size of every dimension that the op's integers index; pads, which are columns that another op of the same
    logits leaves out, apart."""
    if op.definition.positional:
        return
    sizes = op.sizes
    yield from (sizes[f] for f in op.rule.indexed)
    for other in procedure.ops:
        if "limit" in other.definition.attrs and other.operands[0] in op.operands:
            yield from filter(None, [int(other.attr("limit"))])
