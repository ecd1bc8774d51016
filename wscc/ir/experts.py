"""Constructors of a mixture of experts (Shazeer et al., arXiv 1701.06538; GShard, arXiv 2006.16668).

A router gives each token of a sequence its `k` experts. An expert has `capacity` slots for the tokens of one sequence,
which it takes in order of position: so what it drops depends on the sequence alone, on no split of the batch, and on no
later token. Tokens in their slots are [experts, batch, slots, width].
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from wscc.diagnostics import NO_SPAN, Span
from wscc.ir.builder import Builder, ShapeMismatch, WrongOption
from wscc.ir.construct import leading, rank_of
from wscc.ir.op import Op, Value
from wscc.ir.types import DType


def router(b: Builder, x: Value, w: Value, *, span: Span = NO_SPAN) -> Value:
    """`x @ w`, the logits of `w` [d, experts], in the type of statistics: what decides is never rounded to bf16."""
    if rank_of(x) != 3 or rank_of(w) != 2:
        raise ShapeMismatch(
            f"`router` takes x [batch, seq, d] and weight [d, experts], not {list(x.type.shape)} and "
            f"{list(w.type.shape)}"
        )
    dtype = _statistics(x)
    return b.one("matmul", [x, w], "b s k, k e -> b s e", dtypes=[dtype], hints=["router"], span=span)


def _statistics(x: Value) -> DType:
    return DType.F64 if x.type.dtype is DType.F64 else DType.F32


def slots_of(factor: float | None, seq: int, k: int, experts: int) -> int:
    """Slots of an expert for a sequence: `factor` times as many as even choices would fill, rounded up; never more than
    there are tokens, and so many without a `factor`: none is dropped then."""
    if factor is None:
        return seq
    return min(seq, ceil(Fraction(repr(factor)) * seq * k / experts))


def route(
    b: Builder,
    logits: Value,
    *,
    k: float = 1,
    capacity: float | None = None,
    renormalise: bool = False,
    span: Span = NO_SPAN,
) -> tuple[Value, Value, Value, Value]:
    """Gates and slots [batch, seq, k] of the k largest of softmax(logits [batch, seq, experts]), of equals the lower
    expert; and of each expert, the tokens that chose it and those that it dropped. `capacity`: the factor of
    `slots_of`. `renormalise`: the gates of a token are divided by their sum."""
    _, seq, experts = _logits("route", logits)
    count = _choices("route", k, experts)
    if capacity is not None and not capacity > 0:
        raise WrongOption(f"the `capacity` of `route` is above 0, not {capacity:g}", "capacity", 1.25)
    gates, slots, chosen, dropped = b.emit(
        "route",
        [logits],
        "b s! e! -> b s! k!, b s! k!, e!, e!",
        sizes={"k": count},
        dtypes=[_statistics(logits), DType.I32, _statistics(logits), _statistics(logits)],
        attrs={"capacity": slots_of(capacity, seq, count, experts), "renormalise": renormalise},
        hints=["gates", "slots", "chosen", "dropped"],
        span=span,
    )
    return gates, slots, chosen, dropped


def _logits(name: str, x: Value) -> tuple[int, int, int]:
    if rank_of(x) != 3:
        raise ShapeMismatch(f"`{name}` takes logits [batch, seq, experts], not {list(x.type.shape)}")
    batch, seq, experts = x.type.shape
    return batch, seq, experts


def _choices(name: str, k: float, experts: int) -> int:
    if k != int(k) or not 1 <= k <= experts:
        message = f"the `k` of `{name}` is a number of experts, 1 to {experts}, not {k:g}"
        raise WrongOption(message, "k", min(max(k // 1, 1), experts))
    return int(k)


def _router_of(b: Builder, name: str, slots: Value) -> Op:
    """The `route` that made the slots."""
    for op in b.ops:
        if op.kind == "route" and op.results[1] == slots:
            return op
    raise ShapeMismatch(f"`{name}` takes the slots that `route` gives, and `{slots.name}` are none")


def dispatch(b: Builder, x: Value, slots: Value, *, span: Span = NO_SPAN) -> Value:
    """The tokens of x [batch, seq, d] in their slots, [experts, batch, slots, d]; zeros in empty slots."""
    op = _router_of(b, "dispatch", slots)
    return b.one(
        "dispatch",
        [x, slots],
        "b s! d, b s! k! -> e@ b c@ d",
        sizes={"e": op.sizes["e"], "c": int(op.attr("capacity"))},
        attrs={"capacity": op.attr("capacity")},
        hints=["tokens"],
        span=span,
    )


def experts(b: Builder, x: Value, w: Value, *, span: Span = NO_SPAN) -> Value:
    """The product of each expert: `e b c k, e k n -> e b c n`."""
    if rank_of(x) < 3 or rank_of(w) != 3:
        raise ShapeMismatch(
            f"`experts` takes x [experts, .., k] and weight [experts, k, n], not {list(x.type.shape)} and "
            f"{list(w.type.shape)}"
        )
    rows = " ".join(leading(rank_of(x) - 2))
    return b.one("matmul", [x, w], f"e {rows} k, e k n -> e {rows} n", hints=["experts"], span=span)


def combine(b: Builder, y: Value, gates: Value, slots: Value, *, span: Span = NO_SPAN) -> Value:
    """For each token the sum of its gates times its rows of y [experts, batch, slots, d]; a dropped choice adds 0."""
    op = _router_of(b, "combine", slots)
    rule = "b s! k!, b s! k!, e@ b c@ d -> b s! d"
    expected = (op.sizes["e"], op.sizes["b"], int(op.attr("capacity")))
    if y.type.shape[:3] != expected or rank_of(y) != 4:
        raise ShapeMismatch(
            f"`combine` takes y [experts, batch, slots, d] = [{', '.join(map(str, expected))}, d], not "
            f"{list(y.type.shape)}"
        )
    return b.one(
        "combine",
        [gates, slots, y],
        rule,
        attrs={"capacity": op.attr("capacity")},
        dtypes=[y.type.dtype],
        hints=["combine"],
        span=span,
    )


def balance(b: Builder, logits: Value, *, k: float = 1, sequences: int, span: Span = NO_SPAN) -> Value:
    """The loss of uneven choices, the mean over the `sequences` of a step: experts times the sum of an expert's share
    of choices times its mean probability, 1 where both are even (Fedus et al., arXiv 2101.03961, equation 4)."""
    _, _, experts = _logits("balance", logits)
    attrs = {"k": _choices("balance", k, experts), "scale": 1 / sequences}
    return b.one(
        "balance",
        [logits],
        "b s! e! -> ",
        dtypes=[_statistics(logits)],
        attrs=attrs,
        hints=["balance"],
        span=span,
    )


def z_loss(b: Builder, logits: Value, *, sequences: int, span: Span = NO_SPAN) -> Value:
    """The mean over all tokens of a step of the square of log sum exp of their logits (Zoph et al., arXiv 2202.08906,
    equation 5)."""
    _, seq, _ = _logits("z_loss", logits)
    attrs = {"scale": 1 / (sequences * seq)}
    return b.one(
        "z_loss",
        [logits],
        "b s e! -> ",
        dtypes=[_statistics(logits)],
        attrs=attrs,
        hints=["z_loss"],
        span=span,
    )
