"""The settings of training: the `train` section of a `.wsl`, elaborated. Plain facts, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass

from wscc.ir.types import DType


@dataclass(frozen=True, slots=True)
class Optimizer:
    """The settings of an optimizer; `kind` is `adamw`, or `sgd`, which uses only `lr`."""

    kind: str = "adamw"
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.0


@dataclass(frozen=True, slots=True)
class LrSchedule:
    """lr x min(1, step / warmup), step from 1; then, if `decay` > 0, a half cosine from 1 down to `floor`,
    reached at step `decay`."""

    warmup: int = 0
    decay: int = 0
    floor: float = 0.0


@dataclass(frozen=True, slots=True)
class Train:
    """The settings of a training step: `batch` sequences in `microbatches` calls of each procedure of the model.

    `clip` bounds the norm of the gradients; 0 means no clipping. `zero` (Rajbhandari et al., arXiv 1910.02054) is
    what replicas share out: nothing (0), the optimizer's state (1), or weights and gradients too (3). Each pipeline
    stage holds `interleave` chunks of layers. `data` is a file, of which the last `validation_rows` rows, or
    `validation_percent` of them, are not trained on (both 0: all are).
    """

    batch: int
    microbatches: int
    optimizer: Optimizer = Optimizer()
    lr_schedule: LrSchedule = LrSchedule()
    clip: float = 0.0
    compute: DType = DType.F32
    params: DType = DType.F32
    grads: DType = DType.F32
    recompute: str = "none"
    zero: int = 0
    interleave: int = 1
    data: str = ""
    validation_rows: int = 0
    validation_percent: float = 0.0
    seed: int = 0
