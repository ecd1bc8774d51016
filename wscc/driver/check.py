"""`run --check`: what the dies hold after each step, and what one device makes of what they held before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wscc.host.compare import by_layer, difference_norm, norm_of, over
from wscc.host.verdict import Check, Evaluation, Judge
from wscc.ir.array import Kind
from wscc.ir.module import Module
from wscc.ir.ops import OPS
from wscc.ir.types import DType
from wscc.reference.noise import Noise
from wscc.reference.optimizer import global_norm
from wscc.reference.training import Step, evaluate
from wscc.reference.update import Update

Tensors = dict[str, NDArray[Any]]
Arrays = tuple[NDArray[Any], ...]
MOMENTS = ("first moment", "second moment")


@dataclass(frozen=True, slots=True, eq=False)
class StepResult:
    """What a program holds after a step: gradients before clipping, weights, and the moments of each weight, by the
    name of the parameter, as whole arrays in their own types."""

    loss: float
    grads: Tensors
    weights: Tensors
    moments: dict[str, Arrays]


class Checker:
    """Judges the steps of a program one after the other; `weights` are those before the first."""

    def __init__(self, graph: Module, weights: Tensors) -> None:
        self.graph = graph
        self.extents = {a.name: a.extents for a in graph.arrays if a.kind is Kind.PARAM}
        self.judge = Judge(graph.train)
        self.weights = weights
        self.moments: dict[str, Arrays] = {}
        self.steps = 0

    def check(self) -> Check:
        """The verdict on the steps so far."""
        return self.judge.check()

    def step(self, inputs: Tensors, got: StepResult) -> None:
        """Judge the next step, which the program took on `inputs`."""
        with np.errstate(all="ignore"):  # a program that diverges is judged, too
            self._evaluation(inputs, got)
            self._updates(got)
        self.steps += 1
        self.weights, self.moments = got.weights, got.moments

    def _evaluation(self, inputs: Tensors, got: StepResult) -> None:
        def alone(dtype: DType | None, noise: Noise | None = None) -> Evaluation:
            return self._apart(evaluate(self.graph, self.weights, inputs, dtype, noise))

        def draw(i: int) -> Evaluation:
            return alone(None, Noise.of(self.graph, self.steps, i))

        def own() -> Tensors:
            return dict(alone(None).grads)

        mine = Evaluation(got.loss, by_layer(got.grads, self.extents))
        self.judge.evaluation(self.steps + 1, mine, alone(DType.F64), draw, own)

    def _apart(self, step: Step) -> Evaluation:
        return Evaluation(step.loss, by_layer(step.grads, self.extents), step.loss_deviation)

    def _updates(self, got: StepResult) -> None:
        norm, elements = global_norm(got.grads), sum(g.size for g in got.grads.values())
        update = Update(self.graph.train, self.steps + 1, norm, elements)
        for name, before in self.weights.items():
            after, grad = got.weights.get(name), got.grads.get(name)
            if after is None or after.shape != before.shape or after.dtype != before.dtype:
                self.judge.update(self.steps + 1, f"weight {name}", float("inf"), float("inf"))
            elif grad is None:
                same = 0.0 if np.array_equal(after, before) else float("inf")
                self.judge.update(self.steps + 1, f"weight {name}", same, same)
            elif len(got.moments.get(name, ())) != len(OPS[self.graph.train.optimizer.kind].moments or ()):
                self.judge.update(self.steps + 1, f"moments of {name}", float("inf"), float("inf"))
            else:
                old = self.moments.get(name) or tuple(np.zeros_like(m) for m in got.moments.get(name, ()))
                self._updated(update, name, (before, *old), grad, (after, *got.moments.get(name, ())))

    def _updated(
        self,
        update: Update,
        name: str,
        old: Arrays,
        grad: NDArray[Any],
        new: Arrays,
    ) -> None:
        """Judge a weight and its moments, layer by layer."""
        rates = self.graph.rates_of(self.graph.array(name))
        for index in np.ndindex(self.extents[name]):
            bounds = update.of(rates, old[0][index], tuple(m[index] for m in old[1:]), grad[index])
            layer = f"{name}[{','.join(map(str, index))}]" if index else name
            for what, bound, array in zip(("weight", *MOMENTS), bounds, new, strict=False):
                error = over(difference_norm(array[index], bound.value), norm_of(bound.value))
                self.judge.update(self.steps + 1, f"{what} {layer}", error, bound.excess(array[index]))
