"""How each op becomes instructions on views: the lowering table.

A lowering gets the op's operand and result views as they lie on a die (one chunk of them inside a stream).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wscc.ir.ops import OPS
from wscc.ir.views import arranged, indexed, repeated
from wscc.passes.lower_collectives.attention import attention, attention_bwd, rope
from wscc.passes.lower_collectives.gemm import gemm
from wscc.passes.lower_collectives.site import Masked, Site
from wscc.passes.lower_collectives.tiles import pieces

Lowering = Callable[[Site], None]


def _direct(opcode: str, indexed_factor: str = "") -> Lowering:
    """One instruction with the op's own operands and attributes; `start` of one factor where it is indexed."""

    def lower(s: Site) -> None:
        attrs = s.attrs()
        if indexed_factor:
            attrs["start"] = s.start(indexed_factor)
        parts = [s.temporary(j) for j in range(len(s.writes))]
        s.kernel(opcode, parts, s.reads, **attrs)
        for j, part in enumerate(parts):
            s.settle(j, part)

    return lower


def _indexed_by_last(opcode: str) -> Lowering:
    """Like `_direct`, for the ops of cross entropy: columns of the vocabulary are the indexed factor."""

    def lower(s: Site) -> None:
        (factor,) = s.rule.indexed
        _direct(opcode, factor)(s)

    return lower


def _elementwise(opcode: str) -> Lowering:
    """Operands repeat along factors that only the result has."""

    def lower(s: Site) -> None:
        out = s.rule.outs[0]
        reads = [repeated(v, t, out, s.writes[0].shape) for v, t in zip(s.reads, s.rule.ins, strict=True)]
        s.kernel(opcode, s.writes, reads)

    return _in_pieces(lower)


def _in_pieces(lower: Lowering) -> Lowering:
    """For kernels that take as long as their operands, which can come from the slow memory while others work."""

    def lower_pieces(s: Site) -> None:
        for piece in pieces(s):
            lower(piece)

    return lower_pieces


def one_instruction(opcode: str) -> Lowering:
    """One instruction, with the op's own operands and attributes, on pieces of them."""
    return _in_pieces(_direct(opcode))


def _matmul(s: Site) -> None:
    (ta, tb), (tc,) = s.rule.ins, s.rule.outs
    with_mask = Masked(s)
    gemm(with_mask.build, s.reads[0], ta, s.reads[1], tb, s.writes[0], tc, accumulate=s.more[0])
    with_mask.close()


def _matmul_add(s: Site) -> None:
    (ta, tb, td), (tc,) = s.rule.ins, s.rule.outs
    assert not s.more[0], "a product that is added is never summed by chunks"
    gemm(s.build, s.reads[0], ta, s.reads[1], tb, s.writes[0], tc)
    added = repeated(s.reads[2], td, tc, s.writes[0].shape)
    s.build.kernel("add", s.writes, [s.writes[0], added])


def _sum(s: Site) -> None:
    (term,), (out,) = s.rule.ins, s.rule.outs
    order = [f for f in term if f not in out] + [f for f in out]
    view = arranged(s.reads[0], [term.index(f) for f in order])
    axes = ",".join(str(i) for i in range(len(term) - len(out)))
    s.kernel("sum", s.writes, [view], axes=axes, accumulate=s.more[0])


def _partial_sum(s: Site) -> None:
    out, first = s.writes[0], s.reads[0]
    for i, other in enumerate(s.reads[1:]):
        s.kernel("add", [out], [first if i == 0 else out, other])


def _stack(s: Site) -> None:
    dim = s.op.attr("dim")
    assert isinstance(dim, int)
    for i, view in enumerate(s.reads):
        place = indexed(s.writes[0], dim, i)
        if place != view:
            s.kernel("copy", [place], [view])


def _embedding(s: Site) -> None:
    part = s.temporary(0)
    s.kernel("gather", [part], s.reads, start=s.start(s.rule.ins[1][0]))
    s.settle(0, part)


def _embedding_bwd(s: Site) -> None:
    s.kernel("scatter_add", s.writes, s.reads, start=s.start(s.rule.outs[0][0]), accumulate=s.more[0])


def _cast(s: Site) -> None:
    s.kernel("cast", s.writes, s.reads)


def _fill(s: Site) -> None:
    s.kernel("fill", s.writes, [], value=s.op.attr("value"))


OWN: Final[dict[str, Lowering]] = {
    "matmul": _matmul,
    "matmul_add": _matmul_add,
    "sum": _sum,
    "add": _elementwise("add"),
    "sub": _elementwise("sub"),
    "mul": _elementwise("mul"),
    "div": _elementwise("div"),
    "scale": _direct("scale"),
    "cast": _cast,
    "partial_sum": _partial_sum,
    "stack": _stack,
    "fill": _fill,
    "rope": rope,
    "embedding": _embedding,
    "embedding_bwd": _embedding_bwd,
    "attention": attention,
    "attention_bwd": attention_bwd,
    "rowmax": _indexed_by_last("rowmax"),
    "sumexp": _indexed_by_last("sumexp"),
    "sumexp_bwd": _indexed_by_last("sumexp_bwd"),
    "pick": _indexed_by_last("pick"),
    "pick_bwd": _indexed_by_last("pick_bwd"),
    "adamw": _direct("adamw"),
    "sgd": _direct("sgd"),
}

# An op that has no lowering of its own is the instruction of its name.
KERNELS: Final[dict[str, Lowering]] = {
    name: OWN.get(name) or one_instruction(name) for name, row in OPS.items() if not row.view
}
