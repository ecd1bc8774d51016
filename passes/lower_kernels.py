"""How each op becomes instructions on views: the lowering table.

An entry gets the op's operand and result views as they lie on a die (one chunk of them inside a stream). A test
holds the table total over `OPS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from wscc.ir.fabric import Ints, Kernel, KernelAttr, View
from wscc.ir.module import Op
from wscc.ir.rule import Rule
from wscc.ir.types import DType
from wscc.passes.lower_context import FabricBuilder, arranged, indexed, repeated
from wscc.passes.lower_gemm import gemm


@dataclass(frozen=True, slots=True)
class Site:
    """One lowering of an op: on its whole local operands, or on one chunk of a stream.

    `start(f)` is the global coordinate of the first index of factor f here, by die. `more` says, by result,
    that this is a further chunk: add to (or merge with) what is there. `where` masks dies that sit out.
    """

    build: FabricBuilder
    op: Op
    reads: tuple[View, ...]
    writes: tuple[View, ...]
    start: Callable[[str], Ints]
    more: tuple[bool, ...]
    where: Ints = 1

    @property
    def rule(self) -> Rule:
        assert self.op.rule is not None
        return self.op.rule

    def kernel(self, opcode: str, writes: Sequence[View], reads: Sequence[View], **attrs: KernelAttr) -> None:
        self.build.kernel(opcode, writes, reads, attrs, self.where)

    def size(self, factor: str) -> int:
        """Local size of a factor."""
        for view, term in (
            *zip(self.reads, self.rule.ins, strict=False),
            *zip(self.writes, self.rule.outs, strict=True),
        ):
            if factor in term:
                return view.shape[term.index(factor)]
        raise KeyError(factor)

    def attrs(self) -> dict[str, KernelAttr]:
        return dict(self.op.attrs)

    def temporary(self, j: int) -> View:
        """Where to compute result j: itself, or a local that is added to it afterwards."""
        if not self.more[j]:
            return self.writes[j]
        return self.build.buffer(
            f"{self.op.results[j].name}.part", self.writes[j].shape, self.writes[j].dtype
        )

    def settle(self, j: int, part: View) -> None:
        """Add a temporary to its result."""
        if self.more[j]:
            self.kernel("add", [self.writes[j]], [self.writes[j], part])


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

    return lower


def _matmul(s: Site) -> None:
    (ta, tb), (tc,) = s.rule.ins, s.rule.outs
    with_mask = _Masked(s)
    gemm(with_mask.build, s.reads[0], ta, s.reads[1], tb, s.writes[0], tc, accumulate=s.more[0])
    with_mask.close()


def _matmul_add(s: Site) -> None:
    (ta, tb, td), (tc,) = s.rule.ins, s.rule.outs
    assert not s.more[0], "a product that is added is never summed by chunks"
    gemm(s.build, s.reads[0], ta, s.reads[1], tb, s.writes[0], tc)
    added = repeated(s.reads[2], td, tc, s.writes[0].shape)
    s.build.kernel("add", s.writes, [s.writes[0], added])


class _Masked:
    """Lets a multi-instruction lowering build freely, then masks what it built."""

    def __init__(self, s: Site) -> None:
        self.build = s.build
        self._first = len(s.build.body)
        self._where = s.where

    def close(self) -> None:
        if self._where == 1:
            return
        for i in range(self._first, len(self.build.body)):
            stmt = self.build.body[i]
            assert isinstance(stmt, Kernel)
            self.build.body[i] = replace(stmt, where=self._where)


def _sum(s: Site) -> None:
    (term,), (out,) = s.rule.ins, s.rule.outs
    order = [f for f in term if f not in out] + [f for f in out]
    view = arranged(s.reads[0], [term.index(f) for f in order])
    axes = ",".join(str(i) for i in range(len(term) - len(out)))
    s.kernel("sum", s.writes, [view], axes=axes, accumulate=s.more[0])


def _gsum(s: Site) -> None:
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


@dataclass(frozen=True, slots=True)
class _Attention:
    """Terms of one attention op, by role; scores are [b, h.., q, k]."""

    q: tuple[str, ...]
    k: tuple[str, ...]
    scores: tuple[str, ...]
    stats: tuple[str, ...]

    @classmethod
    def of(cls, rule: Rule) -> _Attention:
        q, k = rule.ins[0], rule.ins[1]
        heads = q[2:-1]
        return cls(q, k, (q[0], *heads, q[1], k[1]), (q[0], *heads, q[1]))


def _scores(s: Site, t: _Attention) -> View:
    sizes = dict(zip(t.q, s.reads[0].shape, strict=True)) | {t.k[1]: s.reads[1].shape[1]}
    stats = DType.F64 if s.reads[0].dtype is DType.F64 else DType.F32
    out = s.build.buffer(f"{s.op.results[0].name}.scores", [sizes[f] for f in t.scores], stats)
    scale = s.op.attr("scale")
    assert isinstance(scale, float)
    gemm(s.build, s.reads[0], t.q, s.reads[1], t.k, out, t.scores, scale=scale)
    return out


def _heads_first(view: View, term: tuple[str, ...], t: _Attention) -> View:
    """Statistics `b q h..` read as `b h.. q`, like rows of the scores."""
    return arranged(view, [term.index(f) for f in t.stats])


def _masking(s: Site, t: _Attention) -> dict[str, KernelAttr]:
    causal = s.op.attr("causal")
    return {"causal": causal, "q_start": s.start(t.q[1]), "k_start": s.start(t.k[1])}


def _attention(s: Site) -> None:
    """Scores, masked softmax, weighted values; a further chunk of keys is merged by its log-sum-exp."""
    masked = _Masked(s)
    t = _Attention.of(s.rule)
    scores = _scores(s, t)
    out, lse = s.temporary(0), s.temporary(1)
    s.build.kernel("softmax", [scores, _heads_first(lse, s.rule.outs[1], t)], [scores], _masking(s, t))
    gemm(s.build, scores, t.scores, s.reads[2], t.k, out, t.q)
    if s.more[0]:
        o, total = s.writes
        s.build.kernel("merge", [o, total], [o, total, out, lse])
    masked.close()


def _attention_bwd(s: Site) -> None:
    """Probabilities again from the log-sum-exp; dS = P (dP - rowsum(dO O)) scale."""
    masked = _Masked(s)
    t = _Attention.of(s.rule)
    q, k, v, out, lse, do = s.reads
    dq, dk, dv = s.writes
    scale = s.op.attr("scale")
    assert isinstance(scale, float)
    probs = _scores(s, t)
    s.build.kernel("probs", [probs], [probs, _heads_first(lse, s.rule.ins[4], t)], _masking(s, t))
    gemm(s.build, probs, t.scores, do, t.q, dv, t.k, accumulate=s.more[2])
    grad = s.build.buffer(f"{s.op.results[0].name}.dscores", probs.shape, probs.dtype)
    gemm(s.build, do, t.q, v, t.k, grad, t.scores)
    delta = s.build.buffer(f"{s.op.results[0].name}.delta", lse.shape, lse.dtype)
    s.build.kernel("rowdot", [delta], [do, out])
    s.build.kernel(
        "softmax_bwd", [grad], [probs, grad, _heads_first(delta, s.rule.ins[4], t)], {"scale": scale}
    )
    gemm(s.build, grad, t.scores, k, t.k, dq, t.q, accumulate=s.more[0])
    gemm(s.build, grad, t.scores, q, t.q, dk, t.k, accumulate=s.more[1])
    masked.close()


def _rope(s: Site) -> None:
    s.kernel("rope", s.writes, s.reads, **s.attrs(), start=s.start(s.rule.ins[0][1]))


def _cast(s: Site) -> None:
    s.kernel("cast", s.writes, s.reads)


def _fill(s: Site) -> None:
    s.kernel("fill", s.writes, [], value=s.op.attr("value"))


KERNELS: Final[dict[str, Lowering]] = {
    "matmul": _matmul,
    "matmul_add": _matmul_add,
    "sum": _sum,
    "add": _elementwise("add"),
    "sub": _elementwise("sub"),
    "mul": _elementwise("mul"),
    "div": _elementwise("div"),
    "scale": _direct("scale"),
    "cast": _cast,
    "gsum": _gsum,
    "stack": _stack,
    "fill": _fill,
    "rope": _rope,
    "embedding": _embedding,
    "embedding_bwd": _embedding_bwd,
    "attention": _attention,
    "attention_bwd": _attention_bwd,
    "rowmax": _indexed_by_last("rowmax"),
    "sumexp": _indexed_by_last("sumexp"),
    "sumexp_bwd": _indexed_by_last("sumexp_bwd"),
    "pick": _indexed_by_last("pick"),
    "pick_bwd": _indexed_by_last("pick_bwd"),
    **{
        name: _direct(name)
        for name in (
            "gelu", "gelu_bwd", "gelu_erf", "gelu_erf_bwd", "relu", "relu_bwd", "swiglu", "swiglu_bwd", "layernorm",
            "layernorm_bwd", "rmsnorm", "rmsnorm_bwd", "nll", "nll_bwd", "mean", "mean_bwd", "count", "sqsum",
            "tick", "adamw", "sgd",
        )
    },
}  # fmt: skip

# Views: they name part of a buffer and emit nothing.
VIEWS: Final = frozenset({"split"})
