"""Whether sequences split by an axis lie in zigzag order, so that every die sees as much of a causal mask."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, prod

from wscc.analysis.op_axes import split_axes
from wscc.analysis.sequence_dims import Positions, SequenceDims, cuts_sequence, sequence_factors
from wscc.analysis.uses import users
from wscc.ir.array import Kind
from wscc.ir.module import Module, Procedure
from wscc.ir.op import GraphStmt, Op, Reshard
from wscc.ir.zigzag import fits
from wscc.strategy import SEQUENCE, policy


def with_order(module: Module) -> Module:
    """The sharded module with the order of its sequences chosen by cost: zigzag where a causal stream of keys
    takes less time so, and where nothing but attention ever gathers a sequence (or it would show its order)."""
    streams = [a for a in module.sizes if policy(a).stream and SEQUENCE in policy(a).seed]
    sequences = SequenceDims.of(module) if streams else None
    return module.with_(
        zigzag=tuple(a for a in streams if sequences and _possible(module, a, sequences) and _pays(module, a))
    )


def _possible(module: Module, axis: str, sequences: SequenceDims) -> bool:
    """Parameters with positions lie as they are used, or not in that order at all."""
    inputs = [a.type.layout for a in module.arrays if a.kind is Kind.INPUT]
    leads = all(lay is not None and lay.dims[SEQUENCE][:1] == (axis,) for lay in inputs)
    if not leads or (sequences.weights and policy(axis).store != "used"):
        return False
    return all(_keeps_order(p, axis, module.sizes, sequences.values[p.name]) for p in module.procedures)


def _keeps_order(procedure: Procedure, axis: str, sizes: dict[str, int], positions: Positions) -> bool:
    """Whether only ops that ask for positions see several shards of a sequence at once."""
    reading = users(procedure.statements)
    return all(
        _reshard_keeps_order(stmt, axis, positions, reading.get(stmt.result.name, []))
        if isinstance(stmt, Reshard)
        else _op_keeps_order(stmt, axis, sizes, positions)
        for stmt in procedure.statements
    )


def _reshard_keeps_order(reshard: Reshard, axis: str, positions: Positions, readers: list[GraphStmt]) -> bool:
    attended = reshard.kind == "all_gather" and all(map(_attends, readers))
    return attended or reshard.axis != axis or not cuts_sequence(reshard, positions)


def _op_keeps_order(op: Op, axis: str, sizes: dict[str, int], positions: Positions) -> bool:
    s = op.stream
    if s is not None and s.axis == axis and s.factor in sequence_factors(op, positions) and not _attends(op):
        return False
    return not op.definition.positional or _whole_pieces(op, axis, sizes)


def _attends(stmt: GraphStmt) -> bool:
    return isinstance(stmt, Op) and stmt.definition.positional and stmt.definition.heavy


def _whole_pieces(op: Op, axis: str, sizes: dict[str, int]) -> bool:
    """Whether what a die has of each sequence of the op is a few runs of positions."""
    for factor in _sequences(op):
        axes = split_axes(op, factor)
        if axes and axes[0] != axis:
            return False
        inner = prod(sizes[a] for a in axes[1:])
        if not fits(op.sizes[factor], sizes[axis], inner):
            return False
    return True


def _sequences(op: Op) -> set[str]:
    """The factors that are positions: the second of each operand that has several."""
    return {term[1] for term in op.rule.ins if len(term) > 2}


def _pays(module: Module, axis: str) -> bool:
    """The last die of T sees T whole shards in order, and 2T + 1 pairs of pieces half as long in zigzag; what a
    die multiplies is rounded up to its tile."""
    shards, tile = module.sizes[axis], module.machine.die.tile
    gains = 0
    for size in _causal_streams(module, axis):
        plain, paired = (ceil(n / tile) ** 2 for n in (size // shards, size // (2 * shards)))
        gains += shards * plain - (2 * shards + 1) * paired
    return gains > 0


def _causal_streams(module: Module, axis: str) -> Iterator[int]:
    """The length of each sequence of keys that streams round the axis under a causal mask."""
    for procedure in module.procedures:
        for op in procedure.ops:
            if op.stream is not None and op.stream.axis == axis and _attends(op) and op.attr("causal"):
                yield op.sizes[op.stream.factor]
