"""The derivatives of the ops of graph networks, as `rules` has those of all others."""

from __future__ import annotations

from wscc.passes.differentiate.tape import Backward, Grads, result_gradient


def spmm(b: Backward, dys: Grads) -> Grads:
    edges, x = b.op.operands
    if not b.tape.needs_grad(x):
        return [None, None]
    rule, operands = b.op.rule, [b.tape.forward(edges), result_gradient(dys)]
    dtypes = [b.tape.grad_dtype(x)]
    grad = b.emit("spmm_bwd", operands, [rule.ins[0], rule.outs[0]], rule.ins[1:], dtypes, dict(b.op.attrs))
    return [None, *grad]


def of_edges(b: Backward, dys: Grads) -> Grads:
    """The gradients of all operands behind the edges, by one op that takes what the forward op took."""
    rule, (_, *floats) = b.op.rule, b.op.operands
    operands = [*map(b.tape.forward, b.op.operands), result_gradient(dys)]
    dtypes = [b.tape.grad_dtype(v) for v in floats]
    terms = [*rule.ins, *rule.outs]
    return [None, *b.emit(f"{b.op.kind}_bwd", operands, terms, rule.ins[1:], dtypes, dict(b.op.attrs))]
