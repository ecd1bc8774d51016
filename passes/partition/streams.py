"""Collective matmul: reshards on a streaming axis fold into the op that they serve, which then has a `stream`.

`all_gather + op` or `op + reduce_scatter` becomes one loop of the op over chunks of one factor, during which the
gathered or scattered value travels from neighbour to neighbour.

Source: Wang et al., Overlap Communication with Dependent Computation via Decomposition, ASPLOS 2023.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeGuard

from wscc.analysis.uses import producers, users
from wscc.ir.module import Procedure
from wscc.ir.op import GraphStmt, Op, Reshard, Stream
from wscc.strategy import policy


@dataclass(frozen=True, slots=True)
class _Candidate:
    axis: str
    factor: str
    out: bool
    position: int
    reshard: Reshard

    @property
    def elements(self) -> int:
        """Elements of the whole value, which the loop moves."""
        value = self.reshard.operand if self.out else self.reshard.result
        return value.type.elements


def fuse_streams(procedure: Procedure) -> Procedure:
    """The procedure with reshards folded into the ops that they serve, which then read and write shards."""
    producer, readers = producers(procedure.statements), users(procedure.statements)
    returned = {o.value.name for o in procedure.outputs}
    folded: set[int] = set()
    body: list[GraphStmt] = []
    for op in procedure.statements:
        streamed: list[_Candidate] = []
        if isinstance(op, Op) and op.definition.streamable:
            streamed = _best(_candidates(op, producer, readers, returned))
            folded |= {id(c.reshard) for c in streamed}
            op = _streamed(op, streamed) if streamed else op
        body.append(op)
    return replace(procedure, body=tuple(op for op in body if id(op) not in folded))


def _candidates(
    op: Op, producer: dict[str, GraphStmt], readers: dict[str, list[GraphStmt]], returned: set[str]
) -> list[_Candidate]:
    candidates = []
    for i, (value, term) in enumerate(zip(op.operands, op.rule.ins, strict=True)):
        gather = producer.get(value.name)
        if _streams(gather, "all_gather") and len(readers[value.name]) == 1:
            candidates.append(_Candidate(gather.axis, term[gather.dim], False, i, gather))
    for j, (value, term) in enumerate(zip(op.results, op.rule.outs, strict=True)):
        value_readers = readers.get(value.name, [])
        scatter = value_readers[0] if len(value_readers) == 1 and value.name not in returned else None
        if _streams(scatter, "reduce_scatter"):
            candidates.append(_Candidate(scatter.axis, term[scatter.dim], True, j, scatter))
    whole = op.rule.whole - op.rule.streamed
    return [c for c in candidates if c.factor not in whole and _keeps_replicas_equal(op, c)]


def _keeps_replicas_equal(op: Op, c: _Candidate) -> bool:
    """Whether no result that is added up chunk by chunk is replicated along the axis of the stream.

    Every die takes the chunks in another order, so that its sum would differ in the last bit from those of the others.
    """
    for j, (value, term) in enumerate(zip(op.results, op.rule.outs, strict=True)):
        moves = c.out and j == c.position
        layout = value.type.layout
        split = layout is not None and (c.axis in layout.axes or layout.reduction_of(c.axis) is not None)
        if c.factor not in term and not moves and not split:
            return False
    return True


def _best(candidates: list[_Candidate]) -> list[_Candidate]:
    """The candidates of the (axis, factor) that moves most elements; an op streams along one axis only."""
    moved: dict[tuple[str, str], int] = {}
    for c in candidates:
        moved[c.axis, c.factor] = moved.get((c.axis, c.factor), 0) + c.elements
    if not moved:
        return []
    best = max(moved, key=lambda k: (moved[k], k))
    return [c for c in candidates if (c.axis, c.factor) == best]


def _streamed(op: Op, candidates: list[_Candidate]) -> Op:
    operands, results = list(op.operands), list(op.results)
    for c in candidates:
        if c.out:
            results[c.position] = c.reshard.result
        else:
            operands[c.position] = c.reshard.operand
    stream = Stream(
        candidates[0].axis,
        candidates[0].factor,
        tuple(sorted(c.position for c in candidates if not c.out)),
        tuple(sorted(c.position for c in candidates if c.out)),
    )
    return replace(op, operands=tuple(operands), results=tuple(results), stream=stream)


def _streams(stmt: GraphStmt | None, kind: str) -> TypeGuard[Reshard]:
    """Whether the statement is a reshard of the kind along an axis that streams."""
    return isinstance(stmt, Reshard) and stmt.kind == kind and policy(stmt.axis).stream
