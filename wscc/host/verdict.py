"""The verdict on a program: each step compared with what one device makes of the same weights, in the same types.

A step is judged by itself, from the weights, moments and data that the program had before it. So its limits do not
grow with the steps, and what AdamW makes of a gradient that is rounding noise is no fault. Three comparisons:

1.  Loss and gradients, each tensor by the 2-norm of its distance from f64. Within 1e-10 (f64), 1e-6 or 1e-5 (f32) of
    its size, by the type of computation, it is right. Else it must be within 4 s, where s^2 is the mean square of the
    distances of draws: of one device in the types of the file, with rounding noise (`wscc.reference.noise`). A program
    and one device are two draws of one distribution. The ratio of two has no bound, where one is near 0 by chance; s
    never is. Noise of +-u has about twice the deviation of rounding, so that 4 s are 8 of its own. 4 draws decide clear
    cases, 32 the others. To the loss, a single number, s adds what first order says of it: the square of twice
    `loss_deviation`.
2.  Weights and moments, element by element, from the program's own gradients: a bound (`wscc.reference.update`).
3.  Where gradients are summed in a type that is wider than what they are computed from, and losses: whether they were
    rounded to a narrower one (`wscc.host.granularity`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import hypot, isfinite
from typing import Final

import numpy as np

from wscc.host.compare import Tensors, difference_norm, over, scales
from wscc.host.granularity import LongNumbers, bits
from wscc.ir.train import Train
from wscc.ir.types import DType

DEVIATIONS: Final = 4.0
DRAWS: Final = (4, 32)  # of noise: for clear cases, for the others
# By the type of computation, relative errors of loss and gradients that are right whatever the noise.
FLOORS: Final = {DType.F64: (1e-10, 1e-10), DType.F32: (1e-6, 1e-5), DType.BF16: (1e-6, 1e-5)}


@dataclass(frozen=True, slots=True)
class Check:
    """The verdict. `dtype` is the type of computation, `types` names all three.

    Errors are the largest of any step, relative to the size of the tensor. `worst` names what is furthest beyond (or
    nearest to) its limit, `worst_of_limit` is its error over that.
    """

    ok: bool
    dtype: DType
    loss_rel_err: float
    grad_rel_err: float
    weight_rel_err: float
    worst: str
    worst_of_limit: float = 0.0
    types: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Loss and gradients of one batch, each layer of a parameter by itself; `loss_deviation` as in `reference.Step`."""

    loss: float
    grads: Tensors
    loss_deviation: float = 0.0


Draw = Callable[[int], Evaluation]


@dataclass(slots=True)
class Judge:
    """What has been compared so far: `ratios` of errors to their limits, by name; the largest error of each kind."""

    train: Train
    ratios: dict[str, float] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=lambda: {"loss": 0.0, "gradient": 0.0, "weight": 0.0})
    losses: list[float] = field(default_factory=list)

    def check(self) -> Check:
        """The verdict on all that was compared."""
        self._losses_as_numbers()
        worst = max(self.ratios, key=lambda n: self.ratios[n], default="")
        limit = self.ratios.get(worst, 0.0)
        t = self.train
        same = t.compute is t.params is t.grads
        types = str(t.compute) if same else f"compute {t.compute}, params {t.params}, grads {t.grads}"
        e = self.errors
        return Check(
            bool(self.losses) and limit <= 1.0, t.compute, e["loss"], e["gradient"], e["weight"], worst, limit, types
        )  # fmt: skip

    # -- loss and gradients -----------------------------------------------------------------------------

    def evaluation(
        self, step: int, got: Evaluation, want: Evaluation, draw: Draw, own: Callable[[], Tensors]
    ) -> None:
        """Judge loss and gradients of a step by those in f64, `draw(i)` with noise, and `own()` in the file's types."""
        self.losses.append(got.loss)
        floors = FLOORS[self.train.compute]
        sizes = {"": abs(want.loss), **scales(want.grads)}
        limits = {n: size * floors[min(len(n), 1)] for n, size in sizes.items()}
        distances = _distances(got, want)
        noise = _Noise(want, draw)
        for draws in DRAWS:
            beyond = [n for n, limit in limits.items() if limit < distances[n] < float("inf")]
            limits |= {n: max(limits[n], DEVIATIONS * noise.deviation(n, draws)) for n in beyond}
        for name, distance in distances.items():
            kind = "gradient" if name else "loss"
            words = f"gradient of {name}" if name else "loss"
            self._note(
                kind, words, step, over(distance, sizes.get(name, 0.0)), over(distance, limits.get(name, 0.0))
            )
        if self.train.grads.precision > self.train.compute.precision:
            self._gradients_as_numbers(step, got.grads, own())

    def _note(self, kind: str, words: str, step: int, error: float, ratio: float) -> None:
        self.errors[kind] = max(self.errors[kind], error)
        self._at_least(f"{words} in step {step}", ratio)

    def _at_least(self, name: str, ratio: float) -> None:
        self.ratios[name] = max(self.ratios.get(name, 0.0), ratio if isfinite(ratio) else float("inf"))

    def _gradients_as_numbers(self, step: int, got: Tensors, own: Tensors) -> None:
        numbers = LongNumbers(self.train.grads)
        for name in got.keys() & own.keys():
            numbers.add(name, got[name], own[name])
        for name, dtype, ratio in numbers.verdicts():
            self._at_least(f"numbers of {dtype} in the gradient of {name} in step {step}", ratio)

    def _losses_as_numbers(self) -> None:
        """A loss is a number of f32 at least. One may be a number of bf16 by chance, of 2^-16; several are not."""
        found = sorted({x for x in self.losses if isfinite(x) and x != 0.0})
        if len(found) > 1 and self.train.compute is DType.BF16:
            short = np.count_nonzero(bits(np.array(found)) <= DType.BF16.precision)
            self.ratios["numbers of bf16 in the losses"] = 2.0 if short == len(found) else 0.0

    # -- weights and moments ----------------------------------------------------------------------------

    def update(self, step: int, name: str, error: float, excess: float) -> None:
        """Judge a weight or moment, as `name` says, by its relative error, and that of an element over its bound."""
        if name.startswith("weight"):
            self._note("weight", name, step, error, excess)
        else:
            self._at_least(f"{name} in step {step}", excess)


def _distances(got: Evaluation, want: Evaluation) -> dict[str, float]:
    """The distance of each gradient and, named "", of the loss; infinite for what is missing or too much."""
    found = {n: difference_norm(got.grads.get(n), want.grads.get(n)) for n in {**want.grads, **got.grads}}
    return {"": difference_norm(np.asarray(got.loss), np.asarray(want.loss)), **found}


@dataclass(slots=True)
class _Noise:
    """The distances of draws from `want`, made when they are asked for."""

    want: Evaluation
    draw: Draw
    squares: list[Mapping[str, float]] = field(default_factory=list)

    def deviation(self, name: str, draws: int) -> float:
        """The root of the mean square of the distances of so many draws."""
        while len(self.squares) < draws:
            found = _distances(self.draw(len(self.squares)), self.want)
            self.squares.append({n: d * d for n, d in found.items()})
        finite = [s[name] for s in self.squares if isfinite(s[name])]
        root = float(np.sqrt(np.mean(finite))) if finite else 0.0
        return root if name else hypot(root, 2 * self.want.loss_deviation)
