"""The settings of training: the `train` section of a `.wsl`, elaborated. Plain facts with the limits of each number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from wscc.diagnostics.limits import MAX_COUNT, Limits
from wscc.ir.ops import OPTIMIZERS
from wscc.ir.types import DType

RECOMPUTE = ("none", "selective", "full")
ZERO = (0, 1, 3)
FLOATS = (DType.F64, DType.F32, DType.BF16)

# Beyond a million, a learning rate or decay is a slip of the keyboard.
Rate = Annotated[float, Limits(least=0, most=10**6, below=True)]
Share = Annotated[float, Limits(least=0, most=1, below=True)]
Positive = Annotated[int, Limits(least=1, most=MAX_COUNT)]
Count = Annotated[int, Limits(least=0, most=MAX_COUNT)]
Float = Annotated[DType, Limits(choices=FLOATS)]


@dataclass(frozen=True, slots=True)
class Optimizer:
    """The settings of an optimizer; `kind` is `adamw`, or `sgd`, which uses only `lr`."""

    kind: Annotated[str, Limits(choices=OPTIMIZERS)] = "adamw"
    lr: Rate = 1e-3
    beta1: Share = 0.9
    beta2: Share = 0.95
    # At 0, a gradient of 0 would be divided by its own size.
    eps: Annotated[float, Limits(least=0, above=True, most=10**6, below=True)] = 1e-8
    weight_decay: Rate = 0.0


@dataclass(frozen=True, slots=True)
class Rates:
    """What the optimizer uses for one parameter in place of its own `lr` and `weight_decay`; with `lr` 0, the parameter
    stays as it is, to the last bit."""

    lr: Rate
    weight_decay: Rate


@dataclass(frozen=True, slots=True)
class LrSchedule:
    """lr x min(1, step / warmup), step from 1; then, if `decay` > 0, a half cosine from 1 down to `floor`,
    reached at step `decay`."""

    warmup: Count = 0
    decay: Count = 0
    floor: Share = 0.0

    def disagreements(self) -> Iterator[tuple[str, str]]:
        """Fields that do not agree with others, each with why not."""
        if self.decay and self.decay <= self.warmup:
            yield (
                "decay",
                f"the cosine ends at step {self.decay}, before the warm-up does (step {self.warmup})",
            )


@dataclass(frozen=True, slots=True)
class Train:
    """The settings of a training step: `batch` sequences in `microbatches` calls of each procedure of the model.

    `clip` bounds the norm of the gradients; 0 means no clipping. `zero` (Rajbhandari et al., arXiv 1910.02054) is
    what replicas (`wscc.strategy.holds_replicas`) share out: nothing (0), the optimizer's state (1), or weights and
    gradients too (3). Each pipeline stage holds `interleave` chunks of layers: chunk c, on stage c mod pp, has
    `stages[c]` layers; where `stages` is empty, the chunks take equal time. `data` is a file, of which the last
    `validation_rows` rows, or `validation_percent` of them, are not trained on (both 0: all are).
    """

    batch: Positive
    microbatches: Positive
    optimizer: Optimizer = Optimizer()
    lr_schedule: LrSchedule = LrSchedule()
    clip: Annotated[float, Limits(least=0)] = 0.0
    compute: Float = DType.F32
    params: Float = DType.F32
    grads: Float = DType.F32
    recompute: Annotated[str, Limits(choices=RECOMPUTE)] = "none"
    zero: Annotated[int, Limits(choices=ZERO)] = 0
    interleave: Positive = 1
    stages: tuple[Count, ...] = ()
    data: str = ""
    validation_rows: Count = 0
    validation_percent: Annotated[float, Limits(least=0, most=100, below=True)] = 0.0
    seed: Count = 0

    @property
    def rates(self) -> Rates:
        """The rates of a parameter that has none of its own."""
        return Rates(self.optimizer.lr, self.optimizer.weight_decay)

    def disagreements(self) -> Iterator[tuple[str, str]]:
        """Fields that do not agree with others, each with why not."""
        if self.batch % self.microbatches:
            yield "batch", f"{self.batch} sequences are no whole number for {self.microbatches} micro-batches"
