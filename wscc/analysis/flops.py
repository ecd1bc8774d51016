"""Floating-point operations: of kernels and steps, those that several dies repeat, that a first pass does and a second
again, and that a causal mask hides."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import prod
from typing import Final

from wscc.analysis.experts import occupied_shares
from wscc.analysis.op_axes import split_axes, working_axes
from wscc.ir.fabric import Kernel
from wscc.ir.module import Module, Procedure
from wscc.ir.naming import FORWARD
from wscc.ir.op import Op
from wscc.ir.step import calls
from wscc.ir.types import DType

# Of the five products of a gradient of attention, those of scores and of their gradients.
_FIRST_PASS: Final = Fraction(2, 5)


def gemm_flops(kernel: Kernel) -> int:
    """FLOPs of a `gemm` on one die, two for each multiply-add; 0 for other kernels, whose work is negligible."""
    if kernel.opcode != "gemm":
        return 0
    return 2 * prod(kernel.writes[0].shape) * kernel.reads[0].shape[-1]


def replicated_flops(sharded: Module) -> dict[str, int]:
    """FLOPs of a step that are done on more than one die, summed over the extra dies, by op (`procedure/result`).

    A strategy without an entry leaves no axis idle that could have split an op.
    """
    dies = sharded.dies_used // sharded.stages
    repeated: dict[str, int] = {}
    for call, times in calls(sharded.step):
        for op in sharded.procedure(call.procedure).ops:
            split = prod(sharded.sizes[a] for a in working_axes(op))
            if op.flops and split < dies:
                name = f"{call.procedure}/{op.results[0].name}"
                redundant = int(times * op.flops * computed_fraction(op, sharded)) * (dies - split) // split
                repeated[name] = repeated.get(name, 0) + redundant
    return repeated


def takes_first_pass(op: Op) -> bool:
    """Whether a gradient of attention whose keys come in chunks takes a pass over them for the sums of its rows first:
    two products more, which bf16 does without, since its roundings are larger than what they mend."""
    return op.kind == "attention_bwd" and op.operands[0].type.dtype is not DType.BF16


def computed_flops(op: Op, sharded: Module) -> Fraction:
    """FLOPs of an op that dies compute together, where each part is computed once: without those that a causal mask
    hides, with those of a first pass."""
    return op.flops * computed_fraction(op, sharded) + _first_pass_flops(op, sharded)


def _first_pass_flops(op: Op, sharded: Module) -> Fraction:
    if not takes_first_pass(op):
        return Fraction(0)
    streams_keys = op.stream is not None and op.stream.factor == op.rule.ins[1][1]
    # Keys that were gathered in zigzag are two runs of each shard.
    if not streams_keys and not sharded.zigzag:
        return Fraction(0)
    return _FIRST_PASS * op.flops * computed_fraction(op, sharded)


def repeated_flops(sharded: Module) -> int:
    """FLOPs of a step that dies do in a first pass and again in the second, summed over all dies."""
    dies = sharded.dies_used // sharded.stages
    return sum(
        int(times * _first_pass_flops(op, sharded)) * dies // prod(sharded.sizes[a] for a in working_axes(op))
        for call, times in calls(sharded.step)
        for op in sharded.procedure(call.procedure).ops
    )


def hidden_flops(sharded: Module) -> int:
    """FLOPs of attention in a step that no die computes, because a causal mask hides whole shards of keys."""
    return sum(
        int(times * op.flops * (1 - computed_fraction(op, sharded)))
        for call, times in calls(sharded.step)
        for op in sharded.procedure(call.procedure).ops
        if op.flops
    )


def hidden_model_flops(graph: Module, sharded: Module) -> int:
    """The part of the `model_flops` of a forward module that no die computes, because a causal mask hides whole shards
    of keys. `sharded` is the module that `partition` makes of it."""
    return 3 * sum(
        int(times * op.flops * (1 - computed_fraction(own, sharded)))
        for op, own, times in _forward_ops(graph, sharded)
    )


def padded_model_flops(graph: Module, padded: Module) -> int:
    """FLOPs that `model_flops` would have more if the pads of `padded`, made of a forward module, were the model's."""
    return 3 * sum(times * (own.flops - op.flops) for op, own, times in _forward_ops(graph, padded))


def _forward_ops(graph: Module, step: Module) -> Iterator[tuple[Op, Op, int]]:
    """Each op with FLOPs of a forward module, what became of it in `step`, and how often it runs in a step."""
    own = {(p.name, op.results[0].name): op for p in step.procedures for op in p.ops}
    for call, times in calls(graph.step):
        for op in graph.procedure(call.procedure).ops:
            key = call.procedure + FORWARD, op.results[0].name
            if op.flops and key in own:
                yield op, own[key], times


def computed_fraction(op: Op, sharded: Module) -> Fraction:
    """The fraction of an op's work that dies compute under a causal mask; 1 for an op without one.

    Of T shards of keys, query shard i sees the first i + 1: (T + 1) / 2T. In zigzag, two pieces of queries see two
    pieces of each other shard together, and three of their own: (2T + 1) / 4T. Fewer where a window ends before the
    first ones.
    """
    if not op.definition.positional or not op.attr("causal"):
        return Fraction(1)
    queries = split_axes(op, op.rule.ins[0][1])
    if queries and queries[0] in sharded.zigzag:
        return _seen(op, 2 * sharded.sizes[queries[0]])
    if op.stream is None or op.stream.factor != op.rule.ins[1][1]:
        return Fraction(1)
    return _seen(op, sharded.sizes[op.stream.axis])


def _seen(op: Op, pieces: int) -> Fraction:
    """The part of the pairs of pieces of a sequence in which some query sees some key."""
    size, window = op.sizes[op.rule.ins[1][1]] // pieces, int(dict(op.attrs).get("window", 0))
    # Of the last key of a piece, the first query `back` pieces later is (back - 1) size + 1 positions ahead.
    seen = [back for back in range(pieces) if not window or back == 0 or (back - 1) * size + 1 < window]
    return Fraction(sum(pieces - back for back in seen), pieces * pieces)


def model_flops(graph: Module) -> int:
    """FLOPs of contractions and attention in a training step of a forward module: those of the forward pass, and twice
    as many for the backward pass; neither recomputation nor work on slots of experts that stay empty counts."""
    return 3 * sum(times * _token_flops(graph.procedure(call.procedure)) for call, times in calls(graph.step))


def _token_flops(procedure: Procedure) -> int:
    shares = occupied_shares(procedure)
    of_ops = (op.flops * shares.get(op.results[0].name, 1) for op in procedure.ops)
    return int(sum(of_ops))
