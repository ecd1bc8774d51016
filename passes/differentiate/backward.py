"""The backward procedure of one segment, by reverse-mode differentiation, with its residuals and recomputed ops.

Source: Griewank and Walther, Evaluating Derivatives, 2nd edition, 2008, chapter 3 (the reverse mode).
"""

from __future__ import annotations

from dataclasses import dataclass

from wscc.analysis.uses import producers
from wscc.ir.builder import Builder
from wscc.ir.module import Mode, Output, Procedure
from wscc.ir.naming import BACKWARD, FORWARD
from wscc.ir.op import Op, Value
from wscc.ir.train import Train
from wscc.ir.types import DType
from wscc.passes.differentiate.rules import DERIVATIVES
from wscc.passes.differentiate.tape import Backward


@dataclass(frozen=True, slots=True)
class BackwardResult:
    """A backward procedure and its interface.

    `procedure` takes `reads` (arguments and residuals of the forward procedure, by name), then one gradient for each
    output in `seeds`; it returns `grads`, one for each input in `wrt` (with respect to). `residuals` are the forward
    values that the forward procedure must save for it.
    """

    procedure: Procedure
    residuals: tuple[Value, ...]
    reads: tuple[str, ...]
    seeds: tuple[str, ...]
    wrt: tuple[Value, ...]
    grads: tuple[Value, ...]


def backward_procedure(
    forward: Procedure, wrt: list[Value], params: set[str], train: Train
) -> BackwardResult:
    """The backward procedure of `forward` with respect to its inputs `wrt`; `params` names its parameters.

    The gradient of an output that is added up elsewhere (the loss) is 1; every other output's gradient is an input.
    """
    tape = _Tape(forward, wrt, params, train)
    seeds = [o.value for o in forward.outputs if o.mode is Mode.WRITE]
    for out in forward.outputs:
        tape.seed(out)
    for op in reversed(forward.ops):
        tape.differentiate(op)
    grads = tuple(tape.total(v) or tape.zeros(v) for v in wrt)
    # In the order of the forward procedure, so that the text of the module is stable.
    reads = [v for v in (*forward.inputs, *_results(forward)) if v.name in tape.arguments]
    residuals = tuple(v for v in reads if v not in forward.inputs)
    inputs = (*(tape.arguments[v.name] for v in reads), *(tape.seeds[v.name] for v in seeds))
    procedure = Procedure(
        f"{forward.name}{BACKWARD}", inputs, tuple(Output(g) for g in grads), tuple(tape.builder.ops)
    )
    return BackwardResult(
        procedure, residuals, tuple(v.name for v in reads), tuple(v.name for v in seeds), tuple(wrt), grads
    )


def _results(procedure: Procedure) -> list[Value]:
    return [v for op in procedure.ops for v in op.results]


class _Tape:
    """The state of one reverse accumulation; implements `rules.Tape`."""

    def __init__(self, forward: Procedure, wrt: list[Value], params: set[str], train: Train) -> None:
        self.builder = Builder()
        self.arguments: dict[str, Value] = {}
        self.seeds: dict[str, Value] = {}
        self._forward = forward
        self._train = train
        self._producer = producers(forward.ops)
        self._recomputed: dict[str, Value] = {}
        self._grads: dict[str, list[Value]] = {}
        self._inputs = {v.name for v in forward.inputs}
        self._differentiable = _reachable(forward, {v.name for v in wrt})
        self._weights = _weights(forward, params)

    # -- the interface of derivative rules ---------------------------------------------------------------

    def needs_grad(self, value: Value) -> bool:
        return value.name in self._differentiable

    def grad_dtype(self, value: Value) -> DType:
        """`Train.grads` for weights, whose gradients are summed in that type from the start; else that of `value`."""
        return self._train.grads if value.name in self._weights else value.type.dtype

    def forward(self, value: Value) -> Value:
        if value.name in self._recomputed:
            return self._recomputed[value.name]
        if value.name in self._inputs or self._is_residual(value):
            if value.name not in self.arguments:
                self.arguments[value.name] = self.builder.input(value.name, value.type)
            return self.arguments[value.name]
        self._recompute(self._producer[value.name])
        return self._recomputed[value.name]

    def _is_residual(self, value: Value) -> bool:
        op = self._producer[value.name]
        # Views and conversions of weights cost nothing to recompute, in every mode.
        if op.definition.view or value.name in self._weights:
            return False
        mode = self._train.recompute
        return mode == "none" or (mode == "selective" and op.definition.heavy)

    def _recompute(self, op: Op) -> None:
        operands = [self.forward(v) for v in op.operands]
        results = self.builder.emit(
            op.kind, operands, op.rule, sizes=op.sizes, dtypes=[v.type.dtype for v in op.results],
            attrs=dict(op.attrs), hints=[f"{v.name}.again" for v in op.results],
            origin=_origin(self._forward, op), span=op.span,
        )  # fmt: skip
        self._recomputed.update(zip((v.name for v in op.results), results, strict=True))

    # -- accumulation -----------------------------------------------------------------------------------

    def seed(self, output: Output) -> None:
        value = output.value
        if output.mode is Mode.WRITE:
            grad = self.builder.input(f"d.{value.name}", value.type)
            self.seeds[value.name] = grad
        else:
            grad = self.builder.one(
                "fill", [], " -> ", dtypes=[value.type.dtype], attrs={"value": 1.0}, hints=["one"]
            )
        self._grads.setdefault(value.name, []).append(grad)

    def total(self, value: Value) -> Value | None:
        """The sum of the gradients recorded for `value`, as one op; None where there is none."""
        parts = self._grads.get(value.name, [])
        if len(parts) > 1:
            term = " ".join(f"i{n}" for n in range(len(value.type.shape)))
            rule = f"{', '.join([term] * len(parts))} -> {term}"
            total = self.builder.one(
                "partial_sum", parts, rule, dtypes=[parts[0].type.dtype], hints=[f"d.{value.name}.sum"],
                origin=f"{self._forward.name}{FORWARD}/{value.name}",
            )  # fmt: skip
            parts[:] = [total]
        return parts[0] if parts else None

    def zeros(self, value: Value) -> Value:
        """A gradient of zeros, for an input on which no output depends."""
        names = [f"i{n}" for n in range(len(value.type.shape))]
        return self.builder.one(
            "fill", [], f" -> {' '.join(names)}", sizes=dict(zip(names, value.type.shape, strict=True)),
            dtypes=[self.grad_dtype(value)], attrs={"value": 0.0}, hints=[f"d.{value.name}"],
        )  # fmt: skip

    def differentiate(self, op: Op) -> None:
        dys = [self.total(v) for v in op.results]
        if all(d is None for d in dys) or not any(self.needs_grad(v) for v in op.operands):
            return
        rule = Backward(self, op, _origin(self._forward, op))
        grads = DERIVATIVES[op.kind](rule, dys)
        for value, grad in zip(op.operands, grads, strict=True):
            if grad is not None and self.needs_grad(value):
                self._grads.setdefault(value.name, []).append(grad)


def _origin(forward: Procedure, op: Op) -> str:
    return f"{forward.name}{FORWARD}/{op.results[0].name}"


def _reachable(forward: Procedure, start: set[str]) -> set[str]:
    """Names of the values that depend on one of `start` through differentiable ops."""
    reached = set(start)
    for op in forward.ops:
        if op.definition.differentiable and any(v.name in reached for v in op.operands):
            reached |= {v.name for v in op.results if v.type.dtype.is_float}
    return reached


def _weights(forward: Procedure, params: set[str]) -> set[str]:
    """Names of the parameters and of values computed from parameters alone."""
    weights = set(params)
    for op in forward.ops:
        if op.operands and all(v.name in weights for v in op.operands):
            weights |= {v.name for v in op.results}
    return weights
