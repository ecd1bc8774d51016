"""The derivatives of the ops of a mixture of experts, as `rules` has those of all others."""

from __future__ import annotations

from collections.abc import Callable

from wscc.passes.differentiate.tape import Backward, Grads, result_gradient


def route(b: Backward, dys: Grads) -> Grads:
    """Of the gates alone: slots and counts are numbers of tokens, which a small step does not change."""
    (x,), (_, slots, *_) = b.op.operands, b.op.results
    terms = b.op.rule.ins[0], b.op.rule.outs[1], b.op.rule.outs[0]
    operands = [b.tape.forward(x), b.tape.forward(slots), result_gradient(dys)]
    return b.emit("route_bwd", operands, terms, terms[:1], b.grad_dtypes(), dict(b.op.attrs))


def dispatch(b: Backward, dys: Grads) -> Grads:
    x, slots = b.op.operands
    rule, operands = b.op.rule, [result_gradient(dys), b.tape.forward(slots)]
    dtypes = [b.tape.grad_dtype(x)]
    grad = b.emit(
        "dispatch_bwd", operands, [rule.outs[0], rule.ins[1]], rule.ins[:1], dtypes, dict(b.op.attrs)
    )
    return [*grad, None]


def combine(b: Backward, dys: Grads) -> Grads:
    gates, _, y = b.op.operands
    rule = b.op.rule
    dgates, dy = b.emit(
        "combine_bwd", [*map(b.tape.forward, b.op.operands), result_gradient(dys)], [*rule.ins, *rule.outs],
        [rule.ins[0], rule.ins[2]], [b.tape.grad_dtype(gates), b.tape.grad_dtype(y)], dict(b.op.attrs),
    )  # fmt: skip
    return [dgates, None, dy]


def of_logits(kind: str) -> Callable[[Backward, Grads], Grads]:
    """The rule of an op from logits to a number: `kind` reads both."""

    def rule(b: Backward, dys: Grads) -> Grads:
        (x,), (term,) = b.op.operands, b.op.rule.ins
        operands = [b.tape.forward(x), result_gradient(dys)]
        return b.emit(kind, operands, [term, ()], [term], b.grad_dtypes(), dict(b.op.attrs))

    return rule
