"""The choice of zigzag order for sequences that an axis splits.

In that order all dies have equal work under a causal mask (`wscc.ir.zigzag`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil, prod

from wscc.analysis.op_axes import split_axes
from wscc.analysis.sequence_dims import Positions, SequenceDims, cuts_sequence, sequence_factors
from wscc.analysis.uses import users
from wscc.ir.array import Array, Kind
from wscc.ir.module import Module, Procedure
from wscc.ir.op import GraphStmt, Op, Reshard
from wscc.ir.zigzag import fits
from wscc.strategy import SEQUENCE, policy


def with_zigzag_order(module: Module) -> Module:
    """The sharded module, in which arrays name the dimensions that lie in zigzag order.

    They are the sequences that are split by an axis along which that makes causal streams of keys take less time, if no
    op but attention gathers sequences along it: every other op would see the order.
    """
    streams = [a for a in module.sizes if policy(a).stream and SEQUENCE in policy(a).seed]
    sequences = SequenceDims.of(module) if streams else None
    for axis in streams:
        if sequences and _is_legal(module, axis, sequences) and _pays(module, axis):
            return module.with_(arrays=tuple(_ordered(a, axis, sequences) for a in module.arrays))
    return module


def _ordered(array: Array, axis: str, sequences: SequenceDims) -> Array:
    split = _split(array)
    return replace(array, zigzag=tuple(d for d in sorted(sequences.arrays[array.name]) if axis in split[d]))


def _split(array: Array) -> tuple[tuple[str, ...], ...]:
    """The axes that split each dimension of an array."""
    return array.type.layout.dims if array.type.layout else ()


def _is_legal(module: Module, axis: str, sequences: SequenceDims) -> bool:
    """Whether zigzag order along the axis is legal: it splits all inputs, is the first to split whatever sequence it
    splits, and only attention sees the order."""
    inputs = [
        _split(a)[SEQUENCE] for a in module.arrays if a.kind is Kind.INPUT and len(a.type.shape) > SEQUENCE
    ]
    split = [_split(a)[d] for a in module.arrays for d in sequences.arrays[a.name]]
    if not all(axis in axes for axes in inputs) or any(axis in axes[1:] for axes in split):
        return False
    return all(_keeps_order(p, axis, module.sizes, sequences.values[p.name]) for p in module.procedures)


def _keeps_order(procedure: Procedure, axis: str, sizes: dict[str, int], positions: Positions) -> bool:
    """Whether only ops that know positions see several shards of a sequence at once."""
    readers = users(procedure.statements)
    return all(
        _reshard_keeps_order(stmt, axis, positions, readers.get(stmt.result.name, []))
        if isinstance(stmt, Reshard)
        else _op_keeps_order(stmt, axis, sizes, positions)
        for stmt in procedure.statements
    )


def _reshard_keeps_order(reshard: Reshard, axis: str, positions: Positions, readers: list[GraphStmt]) -> bool:
    for_attention = reshard.kind == "all_gather" and all(map(_is_attention, readers))
    return for_attention or reshard.axis != axis or not cuts_sequence(reshard, positions)


def _op_keeps_order(op: Op, axis: str, sizes: dict[str, int], positions: Positions) -> bool:
    stream = op.stream
    streams_positions = stream and stream.axis == axis and stream.factor in sequence_factors(op, positions)
    if streams_positions and not _is_attention(op):
        return False
    return not op.definition.positional or _whole_pieces(op, axis, sizes)


def _is_attention(stmt: GraphStmt) -> bool:
    return isinstance(stmt, Op) and stmt.definition.positional and stmt.definition.heavy


def _whole_pieces(op: Op, axis: str, sizes: dict[str, int]) -> bool:
    """Whether the shard of each sequence of the op consists of whole zigzag pieces."""
    for factor in _sequences(op):
        axes = split_axes(op, factor)
        if axes and axes[0] != axis:
            return False
        inner = prod(sizes[a] for a in axes[1:])
        if not fits(op.sizes[factor], sizes[axis], inner):
            return False
    return True


def _sequences(op: Op) -> set[str]:
    """Factors that are positions: the second of each operand with more than two."""
    return {term[1] for term in op.rule.ins if len(term) > 2}


def _pays(module: Module, axis: str) -> bool:
    """Whether zigzag order takes less time in total over all causal streams.

    Of T dies the last multiplies T pairs of whole shards without it, and 2T + 1 pairs of pieces half as long with it;
    each side of a pair is rounded up to the tile.
    """
    shards, tile = module.sizes[axis], module.die.tile
    saved_tiles = 0
    for size in _causal_streams(module, axis):
        ordered, zigzag = (ceil(n / tile) ** 2 for n in (size // shards, size // (2 * shards)))
        saved_tiles += shards * ordered - (2 * shards + 1) * zigzag
    return saved_tiles > 0


def _causal_streams(module: Module, axis: str) -> Iterator[int]:
    """The length of each sequence of keys that streams along the axis under a causal mask."""
    for procedure in module.procedures:
        for op in procedure.ops:
            if op.stream is not None and op.stream.axis == axis and _is_attention(op) and op.attr("causal"):
                yield op.sizes[op.stream.factor]
