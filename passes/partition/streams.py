"""Streaming is a lowering: `all_gather + op` or `op + reduce_scatter` on a streaming axis becomes one loop of
the op over chunks of one factor, while what was gathered or scattered travels from neighbour to neighbour."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wscc.analysis.uses import producers, users
from wscc.ir.module import Procedure
from wscc.ir.op import Op, Stream
from wscc.strategy import policy

STREAMABLE = ("matmul", "attention", "attention_bwd", "embedding", "embedding_bwd")


@dataclass(frozen=True, slots=True)
class _Candidate:
    axis: str
    factor: str
    out: bool
    position: int
    reshard: Op

    @property
    def travels(self) -> int:
        """Elements of the value when whole: what the loop moves."""
        value = self.reshard.operands[0] if self.out else self.reshard.results[0]
        return value.type.elements


def fuse_streams(procedure: Procedure) -> Procedure:
    """Fold reshards into the ops they serve. The op then reads the shard itself and writes the shard itself."""
    maker, reading = producers(procedure.ops), users(procedure.ops)
    returned = {o.value.name for o in procedure.outputs}
    folded: set[int] = set()
    body: list[Op] = []
    for op in procedure.ops:
        found = _candidates(op, maker, reading, returned) if op.kind in STREAMABLE else []
        mine = _best(found)
        folded |= {id(c.reshard) for c in mine}
        body.append(_streamed(op, mine) if mine else op)
    return replace(procedure, body=tuple(op for op in body if id(op) not in folded))


def _candidates(
    op: Op, maker: dict[str, Op], reading: dict[str, list[Op]], returned: set[str]
) -> list[_Candidate]:
    assert op.rule is not None
    found = []
    for i, (value, term) in enumerate(zip(op.operands, op.rule.ins, strict=True)):
        made = maker.get(value.name)
        if made and made.kind == "all_gather" and _streams(made) and len(reading[value.name]) == 1:
            found.append(_Candidate(_axis(made), term[_dim(made)], False, i, made))
    for j, (value, term) in enumerate(zip(op.results, op.rule.outs, strict=True)):
        after = reading.get(value.name, [])
        alone = len(after) == 1 and value.name not in returned
        if alone and after[0].kind == "reduce_scatter" and _streams(after[0]):
            found.append(_Candidate(_axis(after[0]), term[_dim(after[0])], True, j, after[0]))
    whole = op.rule.whole - op.rule.streamed
    return [c for c in found if c.factor not in whole and _keeps_replicas_equal(op, c)]


def _keeps_replicas_equal(op: Op, c: _Candidate) -> bool:
    """Dies take chunks in an order of their own, so a result that is added up chunk by chunk differs in its
    last bit from die to die: it must not be a replica along the axis."""
    assert op.rule is not None
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
            results[c.position] = c.reshard.results[0]
        else:
            operands[c.position] = c.reshard.operands[0]
    stream = Stream(
        mine[0].axis,
        mine[0].factor,
        tuple(sorted(c.position for c in mine if not c.out)),
        tuple(sorted(c.position for c in mine if c.out)),
    )
    return replace(op, operands=tuple(operands), results=tuple(results), stream=stream)


def _axis(reshard: Op) -> str:
    return str(reshard.attr("axis"))


def _dim(reshard: Op) -> int:
    return int(reshard.attr("dim"))


def _streams(reshard: Op) -> bool:
    return policy(_axis(reshard)).stream
