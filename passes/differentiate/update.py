"""Procedures of one segment's parameters: the squared norm of its gradients, and its optimizer step."""

from __future__ import annotations

from dataclasses import dataclass

from wscc.ir.array import Array, Kind
from wscc.ir.builder import Builder
from wscc.ir.module import Mode, Output, Procedure
from wscc.ir.op import Attr, Value
from wscc.ir.step import Affine, Call, Ref
from wscc.ir.train import Train
from wscc.ir.types import DType, TensorType


@dataclass(frozen=True, slots=True)
class Updates:
    """The procedures of one owner, and the optimizer state they need. Without a clip nobody asks for a norm."""

    owner: str
    params: tuple[Array, ...]
    state: tuple[Array, ...]
    procedures: tuple[Procedure, ...]

    def norm_calls(self, index: tuple[Affine, ...]) -> tuple[Call, ...]:
        if len(self.procedures) == 1:
            return ()
        grads = (Ref(f"{p.name}.grad", index) for p in self.params)
        return (Call(f"{self.owner}.norm", (*grads, Ref("norm2"))),)

    def update_call(self, index: tuple[Affine, ...]) -> Call:
        names = [n for p in self.params for n in (p.name, *_state_names(p, bool(self.state)))]
        outs = [Ref(n, index) for n in names]
        grads = [Ref(f"{p.name}.grad", index) for p in self.params]
        return Call(f"{self.owner}.update", (*outs, *grads, Ref("norm2"), Ref("t"), *outs))


def update_procedures(owner: str, params: list[Array], train: Train) -> Updates:
    """`owner.update(params, state, grads, norm2, t) -> params, state`, and `owner.norm(grads) -> add norm2` if
    gradients are clipped."""
    adam = train.optimizer.kind == "adamw"
    state = tuple(
        Array(n, TensorType(p.type.shape, train.grads), Kind.STATE, p.extents)
        for p in params
        for n in _state_names(p, adam)
    )
    norm = (_norm(owner, params, train),) if train.clip > 0 else ()
    return Updates(owner, tuple(params), state, (*norm, _update(owner, params, train, adam)))


def _state_names(param: Array, adam: bool) -> tuple[str, ...]:
    return (f"{param.name}.m", f"{param.name}.v") if adam else ()


def _term(array: Array) -> str:
    return " ".join(f"i{n}" for n in range(len(array.type.shape)))


def _grad(b: Builder, param: Array, train: Train) -> Value:
    return b.input(f"{param.name}.grad", TensorType(param.type.shape, train.grads))


def _norm(owner: str, params: list[Array], train: Train) -> Procedure:
    b = Builder()
    grads = [_grad(b, p, train) for p in params]
    squares = [
        b.one("sqsum", [g], f"{_term(p)} -> ", hints=[f"{p.name}.square"])
        for g, p in zip(grads, params, strict=True)
    ]
    total = squares[0]
    if len(squares) > 1:
        total = b.one("gsum", squares, f"{', ' * (len(squares) - 1)} -> ", hints=["squares"])
    return Procedure(f"{owner}.norm", tuple(grads), (Output(total, Mode.ADD),), tuple(b.ops))


def _update(owner: str, params: list[Array], train: Train, adam: bool) -> Procedure:
    b = Builder()
    held = [
        [b.input(p.name, p.type)]
        + [b.input(n, TensorType(p.type.shape, train.grads)) for n in _state_names(p, adam)]
        for p in params
    ]
    grads = [_grad(b, p, train) for p in params]
    norm2 = b.input("norm2", TensorType((), train.grads))
    t = b.input("t", TensorType((), DType.I32))
    outputs: list[Output] = []
    for param, values, grad in zip(params, held, grads, strict=True):
        term, n = _term(param), len(values)
        results = b.emit(
            train.optimizer.kind, [*values, grad, norm2, t],
            f"{', '.join([term] * (n + 1))}, , -> {', '.join([term] * n)}",
            dtypes=[v.type.dtype for v in values], attrs=_attrs(train, adam),
            hints=[f"{v.name}.next" for v in values],
        )  # fmt: skip
        outputs += map(Output, results)
    inputs = (*(v for values in held for v in values), *grads, norm2, t)
    return Procedure(f"{owner}.update", inputs, tuple(outputs), tuple(b.ops))


def _attrs(train: Train, adam: bool) -> dict[str, Attr]:
    o, s = train.optimizer, train.lr_schedule
    common: dict[str, Attr] = {"clip": train.clip, "warmup": s.warmup, "decay": s.decay, "floor": s.floor}
    if not adam:
        return {"lr": o.lr, **common}
    return {
        "lr": o.lr, "beta1": o.beta1, "beta2": o.beta2, "eps": o.eps, "weight_decay": o.weight_decay, **common
    }  # fmt: skip
