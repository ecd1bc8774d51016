"""The sides of a rule of a derivative: forward values, and an emitter of backward ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from wscc.ir.builder import Builder
from wscc.ir.op import Attr, Op, Value
from wscc.ir.rule import Rule
from wscc.ir.types import DType

Grads = Sequence[Value | None]


class Tape(Protocol):
    """The interface through which a rule reads forward values and emits ops of the backward procedure."""

    builder: Builder

    def forward(self, value: Value) -> Value:
        """The forward value in the backward procedure: an argument, a residual, or recomputed."""

    def needs_grad(self, value: Value) -> bool: ...

    def grad_dtype(self, value: Value) -> DType:
        """Element type of the gradient of `value`: `Train.grads` for weights, else that of `value`."""


@dataclass(frozen=True, slots=True)
class Backward:
    """Emitter of the backward ops of one forward op."""

    tape: Tape
    op: Op
    origin: str

    def emit(
        self,
        kind: str,
        operands: Sequence[Value],
        ins: Sequence[tuple[str, ...]],
        outs: Sequence[tuple[str, ...]],
        dtypes: Sequence[DType],
        attrs: dict[str, Attr] | None = None,
    ) -> tuple[Value, ...]:
        """The results of a new op with terms `ins` and `outs`; its factors keep the marks of the forward rule."""
        rule = replace(self.op.rule, ins=tuple(ins), outs=tuple(outs))
        return self.tape.builder.emit(
            kind, operands, _with_own_marks(rule), sizes=self.op.sizes, dtypes=dtypes, attrs=attrs,
            hints=[f"d.{v.name}" for v in self.op.operands], origin=self.origin, span=self.op.span,
        )  # fmt: skip

    def sum_to(self, dy: Value, from_: tuple[str, ...], to: tuple[str, ...], dtype: DType) -> Value:
        """The sum of `dy` over the factors of `from_` that `to` lacks, in `dtype`: the gradient of a broadcast."""
        if from_ == to:
            return dy if dy.type.dtype is dtype else self.emit("cast", [dy], [from_], [to], [dtype])[0]
        return self.emit("sum", [dy], [from_], [to], [dtype])[0]

    def grad_dtypes(self) -> list[DType]:
        """The element types of the gradients of all operands."""
        return [self.tape.grad_dtype(v) for v in self.op.operands]

    def before_sum(self, i: int, dy: Value) -> DType:
        """The element type of the gradient of operand i as large as the result: its own if nothing is to be summed."""
        rule = self.op.rule
        return self.tape.grad_dtype(self.op.operands[i]) if rule.ins[i] == rule.outs[0] else dy.type.dtype


def _with_own_marks(rule: Rule) -> Rule:
    factors = set(rule.factors)
    return replace(
        rule, whole=rule.whole & factors, streamed=rule.streamed & factors, indexed=rule.indexed & factors
    )


def result_gradient(dys: Grads) -> Value:
    """The gradient of the only result."""
    dy = dys[0]
    assert dy is not None
    return dy
