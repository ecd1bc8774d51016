"""Streaming is a lowering: `all_gather + op` or `op + reduce_scatter` on a streaming axis becomes one loop of
the op over chunks of one factor, while what was gathered or scattered travels from neighbour to neighbour."""

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
    def travels(self) -> int:
        """Elements of the value when whole: what the loop moves."""
        value = self.reshard.operand if self.out else self.reshard.result
        return value.type.elements


def fuse_streams(procedure: Procedure) -> Procedure:
    """Fold reshards into the ops they serve. The op then reads the shard itself and writes the shard itself."""
    maker, reading = producers(procedure.statements), users(procedure.statements)
    returned = {o.value.name for o in procedure.outputs}
    folded: set[int] = set()
    body: list[GraphStmt] = []
    for op in procedure.statements:
        mine: list[_Candidate] = []
        if isinstance(op, Op) and op.definition.streamable:
            mine = _best(_candidates(op, maker, reading, returned))
            folded |= {id(c.reshard) for c in mine}
            op = _streamed(op, mine) if mine else op
        body.append(op)
    return replace(procedure, body=tuple(op for op in body if id(op) not in folded))


def _candidates(
    op: Op, maker: dict[str, GraphStmt], reading: dict[str, list[GraphStmt]], returned: set[str]
) -> list[_Candidate]:
    found = []
    for i, (value, term) in enumerate(zip(op.operands, op.rule.ins, strict=True)):
        made = maker.get(value.name)
        if _streams(made, "all_gather") and len(reading[value.name]) == 1:
            found.append(_Candidate(made.axis, term[made.dim], False, i, made))
    for j, (value, term) in enumerate(zip(op.results, op.rule.outs, strict=True)):
        after = reading.get(value.name, [])
        user = after[0] if len(after) == 1 and value.name not in returned else None
        if _streams(user, "reduce_scatter"):
            found.append(_Candidate(user.axis, term[user.dim], True, j, user))
    whole = op.rule.whole - op.rule.streamed
    return [c for c in found if c.factor not in whole and _keeps_replicas_equal(op, c)]


def _keeps_replicas_equal(op: Op, c: _Candidate) -> bool:
    """Dies take chunks in an order of their own, so a result that is added up chunk by chunk differs in its
    last bit from die to die: it must not be a replica along the axis."""
    for j, (value, term) in enumerate(zip(op.results, op.rule.outs, strict=True)):
        moves = c.out and j == c.position
        layout = value.type.layout
        split = layout is not None and (c.axis in layout.axes or layout.reduction_of(c.axis) is not None)
        if c.factor not in term and not moves and not split:
            return False
    return True


def _best(found: list[_Candidate]) -> list[_Candidate]:
    """All candidates of the (axis, factor) that moves most; an op streams along one axis only."""
    moved: dict[tuple[str, str], int] = {}
    for c in found:
        moved[c.axis, c.factor] = moved.get((c.axis, c.factor), 0) + c.travels
    if not moved:
        return []
    chosen = max(moved, key=lambda k: (moved[k], k))
    return [c for c in found if (c.axis, c.factor) == chosen]


def _streamed(op: Op, mine: list[_Candidate]) -> Op:
    operands, results = list(op.operands), list(op.results)
    for c in mine:
        if c.out:
            results[c.position] = c.reshard.result
        else:
            operands[c.position] = c.reshard.operand
    stream = Stream(
        mine[0].axis,
        mine[0].factor,
        tuple(sorted(c.position for c in mine if not c.out)),
        tuple(sorted(c.position for c in mine if c.out)),
    )
    return replace(op, operands=tuple(operands), results=tuple(results), stream=stream)


def _streams(stmt: GraphStmt | None, kind: str) -> TypeGuard[Reshard]:
    """Whether the statement is a reshard of the kind along an axis that streams."""
    return isinstance(stmt, Reshard) and stmt.kind == kind and policy(stmt.axis).stream
