"""Derivative rules with one thing wrong: a factor, a sign, a lost term, another operand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tests.models import gpt, llama
from tests.mutations.harness import Setting
from tests.mutations.zoo import zoo
from wscc.ir.module import Value
from wscc.passes.derivatives import DERIVATIVES, Backward, Grads

Rule = Callable[[Backward, Grads], Grads]
RIGHT = dict(DERIVATIVES)

GPT, LLAMA, ZOO = Setting(family=gpt), Setting(family=llama), Setting(family=zoo)
HOME = {
    **dict.fromkeys(("split", "gelu", "layernorm", "attention"), GPT),
    **dict.fromkeys(("swiglu", "rope"), LLAMA),
}
# Operands that a gradient reaches, by kind; an op of one operand has that one.
OPERANDS = {
    **dict.fromkeys(("matmul", "add", "sub", "mul", "div", "gsum", "stack", "swiglu", "rmsnorm"), (0, 1)),
    **dict.fromkeys(("layernorm", "attention"), (0, 1, 2)),
    "embedding": (1,),
    "nll": (1, 2),
    "rowmax": (),
}


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """`rule` in place of that of `kind`; all show on one die."""

    kind: str
    mistake: str
    rule: Rule

    @property
    def setting(self) -> Setting:
        return HOME.get(self.kind, ZOO)

    def __str__(self) -> str:
        return f"{self.kind}: {self.mistake}"


def scaled(kind: str, operand: int, factor: float) -> Rule:
    """The gradient of one operand times a factor."""

    def rule(b: Backward, dys: Grads) -> Grads:
        grads = list(RIGHT[kind](b, dys))
        grad = grads[operand]
        if grad is not None:
            grads[operand] = times(b, grad, factor)
        return grads

    return rule


def times(b: Backward, value: Value, factor: float) -> Value:
    term = " ".join(f"i{n}" for n in range(len(value.type.shape)))
    return b.tape.builder.one("scale", [value], f"{term} -> {term}", attrs={"factor": factor})


def lost(kind: str, operand: int) -> Rule:
    """No gradient for one operand."""

    def rule(b: Backward, dys: Grads) -> Grads:
        grads = list(RIGHT[kind](b, dys))
        grads[operand] = None
        return grads

    return rule


def reordered(kind: str, order: Sequence[int]) -> Rule:
    """Gradients given to the wrong operands."""

    def rule(b: Backward, dys: Grads) -> Grads:
        grads = RIGHT[kind](b, dys)
        return [grads[i] for i in order]

    return rule


def reading(kind: str, change: Callable[[Backward], Sequence[Value]]) -> Rule:
    """The rule as if the op had other operands."""

    def rule(b: Backward, dys: Grads) -> Grads:
        return RIGHT[kind](Backward(b.tape, replace(b.op, operands=tuple(change(b))), b.origin), dys)

    return rule


def with_attr(kind: str, **attrs: float) -> Rule:
    def rule(b: Backward, dys: Grads) -> Grads:
        changed = tuple((k, attrs.get(k, v)) for k, v in b.op.attrs)
        return RIGHT[kind](Backward(b.tape, replace(b.op, attrs=changed), b.origin), dys)

    return rule


def mul_by_itself(b: Backward, dys: Grads) -> Grads:
    """x y has the slope x in x."""
    x, y = b.op.operands
    return RIGHT["mul"](Backward(b.tape, replace(b.op, operands=(y, x)), b.origin), dys) if x.type == y.type else (
        RIGHT["mul"](b, dys)
    )  # fmt: skip


def nll_through_the_shift(b: Backward, dys: Grads) -> Grads:
    """The shift gets its gradient from here, and the sum of exponentials takes none back."""
    return [dys[0], *RIGHT["nll"](b, dys)[1:]]


def rowmax_as_softmax(b: Backward, dys: Grads) -> Grads:
    x, m = b.op.operands[0], b.op.results[0]
    assert b.op.rule is not None
    term, (rows,) = b.op.rule.ins[0], b.op.rule.outs
    dy = dys[0]
    assert dy is not None
    return b.emit(
        "sumexp_bwd", [b.tape.forward(x), b.tape.forward(m), dy], [term, rows, rows], [term], [x.type.dtype],
        dict(b.op.attrs),
    )  # fmt: skip


BROKEN = (
    *(
        BrokenRule(kind, f"a thousandth too much for operand {i}", scaled(kind, i, 1.001))
        for kind in DERIVATIVES
        for i in OPERANDS.get(kind, (0,))
    ),
    *(
        BrokenRule(kind, f"none for operand {i}", lost(kind, i))
        for kind, operands in OPERANDS.items()
        for i in operands
    ),
    BrokenRule("sub", "as a sum", RIGHT["add"]),
    BrokenRule("mul", "by itself", mul_by_itself),
    BrokenRule("div", "as a product", RIGHT["mul"]),
    BrokenRule("scale", "unscaled", with_attr("scale", factor=1.0)),
    BrokenRule("stack", "backwards", reordered("stack", (1, 0))),
    BrokenRule("split", "backwards", lambda b, dys: RIGHT["split"](b, list(reversed(dys)))),
    BrokenRule("gelu", "of its result", reading("gelu", lambda b: b.op.results)),
    BrokenRule("gelu_erf", "of its result", reading("gelu_erf", lambda b: b.op.results)),
    BrokenRule("gelu_erf", "of the tanh form", lambda b, dys: RIGHT["gelu"](b, dys)),
    BrokenRule("swiglu", "operands exchanged", reading("swiglu", lambda b: b.op.operands[::-1])),
    BrokenRule("swiglu", "gradients exchanged", reordered("swiglu", (1, 0))),
    BrokenRule("rope", "turned on", with_attr("rope", sign=-1.0)),
    BrokenRule("layernorm", "gain and bias exchanged", reordered("layernorm", (0, 2, 1))),
    BrokenRule("layernorm", "another eps", with_attr("layernorm", eps=1e-6)),
    BrokenRule("rmsnorm", "another eps", with_attr("rmsnorm", eps=1e-6)),
    BrokenRule("attention", "keys and values exchanged", reordered("attention", (0, 2, 1))),
    BrokenRule("attention", "sees the future", with_attr("attention", causal=False)),
    BrokenRule("attention", "unscaled", with_attr("attention", scale=1.0)),
    BrokenRule("nll", "gradients exchanged", reordered("nll", (0, 2, 1, 3))),
)
