"""The norm and update procedures of a segment: the squared norm of its gradients, and its optimizer step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wscc.ir.array import Array, Kind, Relation, Role
from wscc.ir.builder import Builder
from wscc.ir.module import Mode, Output, Procedure
from wscc.ir.op import Attr
from wscc.ir.ops import OPS
from wscc.ir.step import Affine, Call, Ref
from wscc.ir.train import Train
from wscc.ir.types import DType, TensorType

# Of f32 gradients, squares overflow from 2e19 on.
SQUARED_NORM: Final = TensorType((), DType.F64)


@dataclass(frozen=True, slots=True)
class Weight:
    """A parameter with the names of its gradient and of its moments (the optimizer state)."""

    param: Array
    gradient: str
    moments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Updates:
    """The procedures of one owner, and the optimizer state that they update; without a clip there is no norm."""

    owner: str
    weights: tuple[Weight, ...]
    state: tuple[Array, ...]
    procedures: tuple[Procedure, ...]

    def norm_calls(self, index: tuple[Affine, ...]) -> tuple[Call, ...]:
        if len(self.procedures) == 1:
            return ()
        grads = (Ref(w.gradient, index) for w in self.weights)
        return (Call(f"{self.owner}.norm", (*grads, Ref("norm2"))),)

    def update_call(self, index: tuple[Affine, ...]) -> Call:
        outs = [Ref(n, index) for w in self.weights for n in (w.param.name, *w.moments)]
        grads = [Ref(w.gradient, index) for w in self.weights]
        return Call(f"{self.owner}.update", (*outs, *grads, Ref("norm2"), Ref("t"), *outs))


def moments_of(train: Train) -> tuple[str, ...]:
    """Names of the moments that the optimizer keeps for each weight."""
    return OPS[train.optimizer.kind].moments or ()


def update_procedures(owner: str, weights: list[Weight], train: Train) -> Updates:
    """The update and, where gradients are clipped, the norm procedure of the parameters `weights`.

    `owner.update(params, moments, grads, norm2, t) -> params, moments` and `owner.norm(grads) -> add norm2`, where
    `norm2` is the squared norm of all gradients and `t` the number of the step.
    """
    state = tuple(
        Array(
            n,
            _moment_type(w, train),
            Kind.STATE,
            w.param.extents,
            relation=Relation(Role.MOMENT, w.param.name),
        )
        for w in weights
        for n in w.moments
    )
    norm = (_norm(owner, weights, train),) if train.clip > 0 else ()
    return Updates(owner, tuple(weights), state, (*norm, _update(owner, weights, train)))


def _moment_type(weight: Weight, train: Train) -> TensorType:
    """The type of the gradient and of each moment of a weight."""
    return TensorType(weight.param.type.shape, train.grads)


def _term(array: Array) -> str:
    return " ".join(f"i{n}" for n in range(len(array.type.shape)))


def _norm(owner: str, weights: list[Weight], train: Train) -> Procedure:
    b = Builder()
    grads = [b.input(w.gradient, _moment_type(w, train)) for w in weights]
    squares = [
        b.one("sqsum", [g], f"{_term(w.param)} -> ", dtypes=[DType.F64], hints=[f"{w.param.name}.square"])
        for g, w in zip(grads, weights, strict=True)
    ]
    total = squares[0]
    if len(squares) > 1:
        total = b.one("partial_sum", squares, f"{', ' * (len(squares) - 1)} -> ", hints=["squares"])
    return Procedure(f"{owner}.norm", tuple(grads), (Output(total, Mode.ADD),), tuple(b.ops))


def _update(owner: str, weights: list[Weight], train: Train) -> Procedure:
    b = Builder()
    states = [
        [b.input(w.param.name, w.param.type), *(b.input(n, _moment_type(w, train)) for n in w.moments)]
        for w in weights
    ]
    grads = [b.input(w.gradient, _moment_type(w, train)) for w in weights]
    norm2 = b.input("norm2", SQUARED_NORM)
    t = b.input("t", TensorType((), DType.I32))
    outputs: list[Output] = []
    for weight, values, grad in zip(weights, states, grads, strict=True):
        term, n = _term(weight.param), len(values)
        results = b.emit(
            train.optimizer.kind, [*values, grad, norm2, t],
            f"{', '.join([term] * (n + 1))}, , -> {', '.join([term] * n)}",
            dtypes=[v.type.dtype for v in values], attrs=_attrs(train, weight.param),
            hints=[f"{v.name}.next" for v in values],
        )  # fmt: skip
        outputs += map(Output, results)
    inputs = (*(v for values in states for v in values), *grads, norm2, t)
    return Procedure(f"{owner}.update", inputs, tuple(outputs), tuple(b.ops))


def _attrs(train: Train, param: Array) -> dict[str, Attr]:
    """Attributes for every optimizer, of which an op takes those that it has."""
    optimizer, lr_schedule, rates = train.optimizer, train.lr_schedule, param.rates or train.rates
    return {
        "lr": rates.lr,
        "beta1": optimizer.beta1,
        "beta2": optimizer.beta2,
        "eps": optimizer.eps,
        "weight_decay": rates.weight_decay,
        "clip": train.clip,
        "warmup": lr_schedule.warmup,
        "decay": lr_schedule.decay,
        "floor": lr_schedule.floor,
    }
