"""The derivative of every differentiable op, as graph-level ops.

A rule takes the op and the gradients of its results (None: no output depends on the result) and returns one gradient
for each operand (None: not needed). Backward ops have the factor names of their forward op and name it as their
`origin`, so that `partition` splits them as their forward op and needs no search for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wscc.ir.op import Value
from wscc.passes.differentiate.expert_rules import combine, dispatch, of_logits, route
from wscc.passes.differentiate.graph_rules import of_edges, spmm
from wscc.passes.differentiate.tape import Backward, Grads, result_gradient

# ------------------------------------------------------------------------------------------------ the rules


def _matmul(b: Backward, dys: Grads) -> Grads:
    rule, (x, w) = b.op.rule, b.op.operands
    dy, out = result_gradient(dys), b.op.rule.outs[0]
    grads: list[Value | None] = [None, None]
    if b.tape.needs_grad(x):
        (grads[0],) = b.emit(
            "matmul", [dy, b.tape.forward(w)], [out, rule.ins[1]], [rule.ins[0]], [b.tape.grad_dtype(x)]
        )
    if b.tape.needs_grad(w):
        (grads[1],) = b.emit(
            "matmul", [b.tape.forward(x), dy], [rule.ins[0], out], [rule.ins[1]], [b.tape.grad_dtype(w)]
        )
    return grads


def _linear_pair(sign: float) -> Callable[[Backward, Grads], Grads]:
    def rule(b: Backward, dys: Grads) -> Grads:
        dy, out = result_gradient(dys), b.op.rule.outs[0]
        grads: list[Value | None] = []
        for i, (value, term, factor) in enumerate(
            zip(b.op.operands, b.op.rule.ins, (1.0, sign), strict=True)
        ):
            if not b.tape.needs_grad(value):
                grads.append(None)
                continue
            scaled = dy
            if factor != 1.0:
                (scaled,) = b.emit("scale", [dy], [out], [out], [b.before_sum(i, dy)], {"factor": factor})
            grads.append(b.sum_to(scaled, out, term, b.tape.grad_dtype(value)))
        return grads

    return rule


def _mul(b: Backward, dys: Grads) -> Grads:
    dy, rule = result_gradient(dys), b.op.rule
    out = rule.outs[0]
    grads: list[Value | None] = []
    for i, value in enumerate(b.op.operands):
        if not b.tape.needs_grad(value):
            grads.append(None)
            continue
        other = b.op.operands[1 - i]
        (full,) = b.emit(
            "mul", [dy, b.tape.forward(other)], [out, rule.ins[1 - i]], [out], [b.before_sum(i, dy)]
        )
        grads.append(b.sum_to(full, out, rule.ins[i], b.tape.grad_dtype(value)))
    return grads


def _div(b: Backward, dys: Grads) -> Grads:
    dy, rule, (x, y) = result_gradient(dys), b.op.rule, b.op.operands
    out = rule.outs[0]
    (by_y,) = b.emit("div", [dy, b.tape.forward(y)], [out, rule.ins[1]], [out], [b.before_sum(0, dy)])
    grads: list[Value | None] = [None, None]
    if b.tape.needs_grad(x):
        grads[0] = b.sum_to(by_y, out, rule.ins[0], b.tape.grad_dtype(x))
    if b.tape.needs_grad(y):
        quotient = b.tape.forward(b.op.results[0])
        dtype = b.before_sum(1, dy)
        (product,) = b.emit("mul", [by_y, quotient], [out, out], [out], [dtype])
        (negated,) = b.emit("scale", [product], [out], [out], [dtype], {"factor": -1.0})
        grads[1] = b.sum_to(negated, out, rule.ins[1], b.tape.grad_dtype(y))
    return grads


def _scale(b: Backward, dys: Grads) -> Grads:
    dy, term = result_gradient(dys), b.op.rule.ins[0]
    return b.emit("scale", [dy], [term], [term], b.grad_dtypes(), dict(b.op.attrs))


def _cast(b: Backward, dys: Grads) -> Grads:
    dy, term, x = result_gradient(dys), b.op.rule.ins[0], b.op.operands[0]
    if dy.type.dtype is b.tape.grad_dtype(x):
        return [dy]
    return b.emit("cast", [dy], [term], [term], [b.tape.grad_dtype(x)])


def _partial_sum(b: Backward, dys: Grads) -> Grads:
    return [result_gradient(dys)] * len(b.op.operands)


def _split(b: Backward, dys: Grads) -> Grads:
    (whole,), part = b.op.rule.ins, b.op.rule.outs[0]
    pieces = [
        dy if dy is not None else _zeros_like(b, v, part) for dy, v in zip(dys, b.op.results, strict=True)
    ]
    dtype = b.tape.grad_dtype(b.op.operands[0])
    return b.emit("stack", pieces, [part] * len(pieces), [whole], [dtype], dict(b.op.attrs))


def _stack(b: Backward, dys: Grads) -> Grads:
    dy, part = result_gradient(dys), b.op.rule.ins[0]
    n = len(b.op.operands)
    parts = b.emit("split", [dy], [b.op.rule.outs[0]], [part] * n, [dy.type.dtype] * n, dict(b.op.attrs))
    return [b.sum_to(g, part, part, dtype) for g, dtype in zip(parts, b.grad_dtypes(), strict=True)]


def _sum(b: Backward, dys: Grads) -> Grads:
    return b.emit("expand", [result_gradient(dys)], [b.op.rule.outs[0]], [b.op.rule.ins[0]], b.grad_dtypes())


def _cut(b: Backward, dys: Grads) -> Grads:
    (whole,), parts = b.op.rule.ins, b.op.rule.outs
    pieces = [
        dy if dy is not None else _zeros_like(b, v, part)
        for dy, v, part in zip(dys, b.op.results, parts, strict=True)
    ]
    return b.emit("concat", pieces, parts, [whole], b.grad_dtypes(), dict(b.op.attrs))


def _concat(b: Backward, dys: Grads) -> Grads:
    dy, whole = result_gradient(dys), b.op.rule.outs[0]
    dim = int(b.op.attr("dim"))
    # An operand repeats along what it lacks: its part of the gradient has all factors, and is summed.
    own = [next(f for f in term if f not in whole) for term in b.op.rule.ins]
    parts = [(*whole[:dim], f, *whole[dim + 1 :]) for f in own]
    pieces = b.emit("cut", [dy], [whole], parts, [dy.type.dtype] * len(parts), dict(b.op.attrs))
    return [
        b.sum_to(g, part, term, dtype)
        for g, part, term, dtype in zip(pieces, parts, b.op.rule.ins, b.grad_dtypes(), strict=True)
    ]


def _zeros_like(b: Backward, value: Value, term: tuple[str, ...]) -> Value:
    return b.emit("fill", [], [()], [term], [value.type.dtype], {"value": 0.0})[0]


def _pointwise(kind: str) -> Callable[[Backward, Grads], Grads]:
    """The rule of a pointwise op: the backward op `kind(operands, dy)` returns the gradient of every operand."""

    def rule(b: Backward, dys: Grads) -> Grads:
        term = b.op.rule.ins[0]
        xs = [b.tape.forward(v) for v in b.op.operands]
        n = len(xs)
        return b.emit(
            kind, [*xs, result_gradient(dys)], [term] * (n + 1), [term] * n, b.grad_dtypes(), dict(b.op.attrs)
        )

    return rule


def _norm(kind: str) -> Callable[[Backward, Grads], Grads]:
    """The rule of layernorm and rmsnorm: the backward op `kind` reads x, gain and dy, but not the bias."""

    def rule(b: Backward, dys: Grads) -> Grads:
        x, gain, *_ = b.op.operands
        terms = b.op.rule.ins
        return b.emit(
            kind, [b.tape.forward(x), b.tape.forward(gain), result_gradient(dys)], [terms[0], terms[1], terms[0]],
            terms, b.grad_dtypes(), dict(b.op.attrs),
        )  # fmt: skip

    return rule


def _rope(b: Backward, dys: Grads) -> Grads:
    dy, term = result_gradient(dys), b.op.rule.ins[0]
    sign = b.op.attr("sign")
    assert isinstance(sign, float)
    return b.emit("rope", [dy], [term], [term], b.grad_dtypes(), {**dict(b.op.attrs), "sign": -sign})


def _dropout(b: Backward, dys: Grads) -> Grads:
    """The same elements of the gradient are dropped, by the same keys."""
    key, rule = b.tape.forward(b.op.operands[1]), b.op.rule
    return [
        *b.emit(
            "dropout", [result_gradient(dys), key], rule.ins, rule.outs, b.grad_dtypes()[:1], dict(b.op.attrs)
        ),
        None,
    ]


def _embedding(b: Backward, dys: Grads) -> Grads:
    ids, table = b.op.operands
    rule = b.op.rule
    grad = b.emit(
        "embedding_bwd", [b.tape.forward(ids), result_gradient(dys)], [rule.ins[0], rule.outs[0]], [rule.ins[1]],
        [b.tape.grad_dtype(table)],
    )  # fmt: skip
    return [None, *grad]


def _attention(b: Backward, dys: Grads) -> Grads:
    """One backward op for q, k and v, since keys, values and their gradients travel together."""
    rule = b.op.rule
    tq, tk, tv = rule.ins
    operands = [*(b.tape.forward(x) for x in (*b.op.operands, *b.op.results)), result_gradient(dys)]
    return b.emit(
        "attention_bwd", operands, [tq, tk, tv, *rule.outs, tq], [tq, tk, tv],
        b.grad_dtypes(), dict(b.op.attrs),
    )  # fmt: skip


def _rowmax(b: Backward, dys: Grads) -> Grads:
    """No gradient: the loss does not depend on the shift that keeps its exponentials in range."""
    return [None]


def _sumexp(b: Backward, dys: Grads) -> Grads:
    x, m = b.op.operands
    rule = b.op.rule
    grad = b.emit(
        "sumexp_bwd", [b.tape.forward(x), b.tape.forward(m), result_gradient(dys)], [*rule.ins, rule.outs[0]],
        [rule.ins[0]], [x.type.dtype], dict(b.op.attrs),
    )  # fmt: skip
    return [*grad, None]


def _pick(b: Backward, dys: Grads) -> Grads:
    x, labels = b.op.operands
    rule = b.op.rule
    grad = b.emit(
        "pick_bwd", [b.tape.forward(labels), result_gradient(dys)], [rule.ins[1], rule.outs[0]], [rule.ins[0]],
        [x.type.dtype],
    )  # fmt: skip
    return [*grad, None]


def _nll(b: Backward, dys: Grads) -> Grads:
    _, z, p, labels = b.op.operands
    term = b.op.rule.ins[0]
    operands = [b.tape.forward(z), b.tape.forward(labels), result_gradient(dys)]
    dz, dp = b.emit("nll_bwd", operands, [term] * 3, [term] * 2, [z.type.dtype, p.type.dtype])
    return [None, dz, dp, None]


def _rowsum(b: Backward, dys: Grads) -> Grads:
    (term,), (out,) = b.op.rule.ins, b.op.rule.outs
    return b.emit(
        "rowsum_bwd", [result_gradient(dys)], [out], [term], [b.op.operands[0].type.dtype], dict(b.op.attrs)
    )


def _zloss(b: Backward, dys: Grads) -> Grads:
    """That of z alone: through the maximum nothing changes, as in `_rowmax`."""
    term, (_, z, _) = b.op.rule.ins[0], b.op.operands
    operands = [*(b.tape.forward(x) for x in b.op.operands), result_gradient(dys)]
    grad = b.emit("zloss_bwd", operands, [term] * 4, [term], [z.type.dtype], dict(b.op.attrs))
    return [None, *grad, None]


def _mean(b: Backward, dys: Grads) -> Grads:
    x, count = b.op.operands
    rule = b.op.rule
    grad = b.emit(
        "mean_bwd", [result_gradient(dys), b.tape.forward(count)], [(), ()], [rule.ins[0]], [x.type.dtype]
    )
    return [*grad, None]


DERIVATIVES: Final[dict[str, Callable[[Backward, Grads], Grads]]] = {
    "matmul": _matmul,
    "add": _linear_pair(1.0),
    "sub": _linear_pair(-1.0),
    "mul": _mul,
    "div": _div,
    "scale": _scale,
    "cast": _cast,
    "partial_sum": _partial_sum,
    "split": _split,
    "stack": _stack,
    "sum": _sum,
    "cut": _cut,
    "concat": _concat,
    "gelu": _pointwise("gelu_bwd"),
    "gelu_erf": _pointwise("gelu_erf_bwd"),
    "relu": _pointwise("relu_bwd"),
    "sigmoid": _pointwise("sigmoid_bwd"),
    "rsqrt": _pointwise("rsqrt_bwd"),
    "soft_cap": _pointwise("soft_cap_bwd"),
    "swiglu": _pointwise("swiglu_bwd"),
    "layernorm": _norm("layernorm_bwd"),
    "rmsnorm": _norm("rmsnorm_bwd"),
    "rope": _rope,
    "dropout": _dropout,
    "embedding": _embedding,
    "attention": _attention,
    "rowmax": _rowmax,
    "sumexp": _sumexp,
    "rowsum": _rowsum,
    "pick": _pick,
    "nll": _nll,
    "zloss": _zloss,
    "mean": _mean,
    "route": route,
    "dispatch": dispatch,
    "spmm": spmm,
    "edge_attention": of_edges,
    "edge_max": of_edges,
    "edge_sum": of_edges,
    "combine": combine,
    "balance": of_logits("balance_bwd"),
    "z_loss": of_logits("z_loss_bwd"),
}
