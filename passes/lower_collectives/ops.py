"""Lowerings of the ops to instructions on views: the table `LOWERINGS`.

A lowering gets an instance of its op: views of operands and results on a die, or on one chunk of a stream.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod
from typing import Final

from wscc.ir.op import Op
from wscc.ir.ops import OPS
from wscc.ir.per_die import Ints, plus, times
from wscc.ir.views import View, arranged, indexed, repeated, sliced
from wscc.passes.lower_collectives.attention import attention, attention_bwd, rope
from wscc.passes.lower_collectives.gemm import gemm
from wscc.passes.lower_collectives.graphs import block_of, of_edges, of_weighed_edges, spmm
from wscc.passes.lower_collectives.op_instance import Masked, OpInstance
from wscc.passes.lower_collectives.tiles import pieces

Lowering = Callable[[OpInstance], None]


def _direct(opcode: str, indexed_factor: str = "") -> Lowering:
    """The lowering to one instruction with the op's operands and attributes, and `start` of a factor that it
    indexes."""

    def lower(s: OpInstance) -> None:
        attrs = s.attrs()
        if indexed_factor:
            attrs["start"] = s.start(indexed_factor)
        parts = [s.temporary(j) for j in range(len(s.writes))]
        s.kernel(opcode, parts, s.reads, **attrs)
        for j, part in enumerate(parts):
            s.settle(j, part)

    return lower


def _indexed_by_last(opcode: str) -> Lowering:
    """The lowering `_direct` of an op of cross entropy, which indexes the columns of the vocabulary."""

    def lower(s: OpInstance) -> None:
        (factor,) = s.rule.indexed
        _direct(opcode, factor)(s)

    return lower


def _elementwise(opcode: str) -> Lowering:
    """The lowering of an elementwise op, whose operands repeat along factors that only the result has."""

    def lower(s: OpInstance) -> None:
        out = s.rule.outs[0]
        reads = [repeated(v, t, out, s.writes[0].shape) for v, t in zip(s.reads, s.rule.ins, strict=True)]
        s.kernel(opcode, s.writes, reads)

    return _in_pieces(lower)


def _in_pieces(lower: Lowering) -> Lowering:
    """The lowering in pieces that fit the fast memory: copies of their operands hide behind work of other kernels."""

    def lower_pieces(s: OpInstance) -> None:
        for piece in pieces(s):
            lower(piece)

    return lower_pieces


def one_instruction(opcode: str) -> Lowering:
    """The lowering to one instruction for each piece of an op, with the op's operands and attributes."""
    return _in_pieces(_direct(opcode))


def _slots(opcode: str) -> Lowering:
    """The lowering of an op that finds tokens in slots of experts, of which a die may have some."""

    def lower(s: OpInstance) -> None:
        parts = [s.temporary(j) for j in range(len(s.writes))]
        s.kernel(opcode, parts, s.reads, **s.attrs(), e_start=s.start("e"), c_start=s.start("c"))
        for j, part in enumerate(parts):
            s.settle(j, part)

    return _in_pieces(lower)


def _matmul(s: OpInstance) -> None:
    (ta, tb), (tc,) = s.rule.ins, s.rule.outs
    masked = Masked(s)
    gemm(masked.build, s.reads[0], ta, s.reads[1], tb, s.writes[0], tc, accumulate=s.accumulate[0])
    masked.close()


def _matmul_add(s: OpInstance) -> None:
    (ta, tb, td), (tc,) = s.rule.ins, s.rule.outs
    assert not s.accumulate[0], "a product that is added is never summed by chunks"
    gemm(s.build, s.reads[0], ta, s.reads[1], tb, s.writes[0], tc)
    added = repeated(s.reads[2], td, tc, s.writes[0].shape)
    s.build.kernel("add", s.writes, [s.writes[0], added])


def _sum(s: OpInstance) -> None:
    (term,), (out,) = s.rule.ins, s.rule.outs
    order = [f for f in term if f not in out] + [f for f in out]
    view = arranged(s.reads[0], [term.index(f) for f in order])
    axes = ",".join(str(i) for i in range(len(term) - len(out)))
    s.kernel("sum", s.writes, [view], axes=axes, accumulate=s.accumulate[0])


def _partial_sum(s: OpInstance) -> None:
    out, first = s.writes[0], s.reads[0]
    for i, other in enumerate(s.reads[1:]):
        s.kernel("add", [out], [first if i == 0 else out, other])


def _stack(s: OpInstance) -> None:
    dim = s.op.attr("dim")
    assert isinstance(dim, int)
    for i, view in enumerate(s.reads):
        part = indexed(s.writes[0], dim, i)
        if part != view:
            s.kernel("copy", [part], [view])


def _expand(s: OpInstance) -> None:
    (term,), (out,) = s.rule.ins, s.rule.outs
    s.kernel("copy", s.writes, [repeated(s.reads[0], term, out, s.writes[0].shape)])


def _concat(s: OpInstance) -> None:
    dim, (out,) = int(s.op.attr("dim")), s.rule.outs
    start = 0
    for view, term in zip(s.reads, s.rule.ins, strict=True):
        part = sliced(s.writes[0], dim, start, view.shape[_own(term, out)])
        onto = tuple(next(f for f in term if f not in out) if d == dim else f for d, f in enumerate(out))
        s.kernel("copy", [part], [repeated(view, term, onto, part.shape)])
        start += part.shape[dim]
    if rest := s.writes[0].shape[dim] - start:
        s.kernel("fill", [sliced(s.writes[0], dim, start, rest)], [], value=0.0)


def _own(term: tuple[str, ...], whole: tuple[str, ...]) -> int:
    """The place of the factor of a part that the whole lacks."""
    return next(i for i, f in enumerate(term) if f not in whole)


def part_view(op: Op, i: int, whole: View) -> View:
    """Result `i` of an op that costs nothing, as a part of its operand."""
    dim = int(op.attr("dim"))
    if op.kind == "split":
        return indexed(whole, dim, i)
    sizes = [v.type.shape[dim] for v in op.results]
    return sliced(whole, dim, sum(sizes[:i]), sizes[i])


def _embedding(s: OpInstance) -> None:
    part = s.temporary(0)
    s.kernel("gather", [part], s.reads, start=s.start(s.rule.ins[1][0]))
    s.settle(0, part)


def _embedding_bwd(s: OpInstance) -> None:
    s.kernel("scatter_add", s.writes, s.reads, start=s.start(s.rule.outs[0][0]), accumulate=s.accumulate[0])


def _dropout(s: OpInstance) -> None:
    """One instruction for each run of coordinates; the place of an element in its sequence counts the whole op's."""
    factors = s.rule.ins[0][1:]
    strides = {f: prod(s.op.sizes[g] for g in factors[i + 1 :]) for i, f in enumerate(factors)}
    part = s.temporary(0)
    for runs in product(*map(s.runs, factors)):
        start: Ints = 0
        x, y = s.reads[0], part
        for dim, (factor, run) in enumerate(zip(factors, runs, strict=True), 1):
            start = plus(start, times(run.start, strides[factor]))
            if run.size != y.shape[dim]:
                x, y = (sliced(v, dim, run.local, run.size) for v in (x, y))
        text = ",".join(str(n) for n in strides.values())
        s.kernel("dropout", [y], [x, s.reads[1]], **s.attrs(), start=start, strides=text)
    s.settle(0, part)


def _cast(s: OpInstance) -> None:
    s.kernel("cast", s.writes, s.reads)


def _fill(s: OpInstance) -> None:
    s.kernel("fill", s.writes, [], value=s.op.attr("value"))


SPECIAL: Final[dict[str, Lowering]] = {
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
    "expand": _expand,
    "concat": _concat,
    "fill": _fill,
    "dropout": _dropout,
    "rope": rope,
    "embedding": _embedding,
    "embedding_bwd": _embedding_bwd,
    "attention": attention,
    "attention_bwd": attention_bwd,
    "rowmax": _indexed_by_last("rowmax"),
    "sumexp": _indexed_by_last("sumexp"),
    "sumexp_bwd": _indexed_by_last("sumexp_bwd"),
    "rowsum": _indexed_by_last("rowsum"),
    "rowsum_bwd": _indexed_by_last("rowsum_bwd"),
    "pick": _indexed_by_last("pick"),
    "pick_bwd": _indexed_by_last("pick_bwd"),
    "dispatch": _slots("dispatch"),
    "dispatch_bwd": _slots("dispatch_bwd"),
    "combine": _slots("combine"),
    "combine_bwd": _slots("combine_bwd"),
    "spmm": spmm,
    "spmm_bwd": spmm,
    **dict.fromkeys(("edge_attention", "edge_attention_bwd", "edge_max", "edge_max_bwd"), of_edges),
    **dict.fromkeys(("edge_sum", "edge_sum_bwd"), of_weighed_edges),
    "adamw": _direct("adamw"),
    "sgd": _direct("sgd"),
}

# An op without a special lowering is the instruction of its name.
LOWERINGS: Final[dict[str, Lowering]] = {
    name: SPECIAL.get(name) or one_instruction(name) for name, row in OPS.items() if not row.view
}

# Of ops that may have nothing to do on a chunk of a stream, a mask of the dies on which they have.
HAVE_WORK: Final[dict[str, Callable[[OpInstance], Ints]]] = {
    "spmm": lambda s: block_of(s).where,
    "spmm_bwd": lambda s: block_of(s).where,
}
