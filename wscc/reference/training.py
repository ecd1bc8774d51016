"""Evaluation of one batch, and a few steps of training, on one device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import numpy as np

from wscc.ir.array import Kind
from wscc.ir.module import Module
from wscc.ir.types import DType
from wscc.reference.noise import Noise
from wscc.reference.optimizer import Optimizer, global_norm
from wscc.reference.semantics import Array, Precision
from wscc.reference.tape import Tape, Tensors

LOSS = "loss"


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """The results of one whole batch: loss, gradient of each parameter before clipping, their global 2-norm.

    A gradient has the shape of its array, [*extents, *type.shape]. `loss_deviation` is the standard deviation of the
    loss where each value is rounded once to the module's type, to first order: sqrt(sum (x dloss/dx u)^2 / 3).
    """

    loss: float
    grads: dict[str, Array]
    norm: float
    loss_deviation: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """The results of training: losses and gradient norms by step, the first step's gradients, the last weights."""

    losses: tuple[float, ...]
    norms: tuple[float, ...]
    first_grads: dict[str, Array]
    weights: dict[str, Array]


def evaluate(
    module: Module, params: Tensors, inputs: Tensors, dtype: DType | None = None, noise: Noise | None = None
) -> Step:
    """Loss and gradients of a forward module (before `differentiate`) on one batch, all its micro-batches.

    `params` and `inputs` have the shapes of their arrays, [*extents, *type.shape]. Every float is stored as `dtype`
    (f64 for a proof, else f32), or as the module says: bf16 is then computed in f32 and rounded after each op. `noise`
    moves every result as a rounding may.
    Raises `ValueError` if a parameter or input is missing or of another shape.
    """
    tape = Tape(module, params, inputs, Precision(dtype, noise))
    tape.run()
    grads = _assemble(module, tape)
    return Step(float(tape.read((LOSS, ()))), grads, global_norm(grads), sqrt(tape.rounding))


def _assemble(module: Module, tape: Tape) -> dict[str, Array]:
    """Gradients of array elements joined to whole arrays; parameters that no call reads have none."""
    by_element = tape.gradients(LOSS)
    out: dict[str, Array] = {}
    for array in module.arrays:
        if array.kind is Kind.PARAM and any(name == array.name for name, _ in by_element):
            dtype = tape.precision.of(module.train.grads)
            whole = np.zeros((*array.extents, *array.type.shape), dtype)
            for index in np.ndindex(array.extents):
                if (array.name, index) in by_element:
                    whole[index] = by_element[array.name, index]
            out[array.name] = whole
    return out


def train(
    module: Module,
    params: Tensors,
    batches: Callable[[int], Tensors],
    steps: int,
    dtype: DType | None = None,
) -> History:
    """Train for `steps` (at least 1) steps from `params` with the optimizer of `module.train`; `batches(i)` gives the
    inputs of step i, from 0. Shapes, `dtype` and errors are those of `evaluate`."""
    precision = Precision(dtype)
    optimizer = Optimizer.of(module, precision)
    weights = {
        a.name: precision.store(params[a.name], a.type.dtype) for a in module.arrays if a.kind is Kind.PARAM
    }
    history: list[Step] = []
    for i in range(steps):
        step = evaluate(module, weights, batches(i), dtype)
        weights = optimizer.update(weights, step.grads, step.norm)
        # Later gradients are not returned; to keep them would take steps x model of memory.
        history.append(step if i == 0 else Step(step.loss, {}, step.norm))
    return History(tuple(s.loss for s in history), tuple(s.norm for s in history), history[0].grads, weights)
