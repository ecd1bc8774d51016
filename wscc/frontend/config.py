"""The training configuration: the settings of `train` with every default filled in."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from wscc.diagnostics import NO_SPAN, Span
from wscc.ir.train import LrSchedule, Optimizer
from wscc.ir.types import DType
from wscc.strategy import POLICIES

AXES = tuple(POLICIES)
DTYPE_ROLES = ("compute", "params", "grads")


@dataclass(frozen=True, slots=True)
class DTypes:
    """Element types of arithmetic, of stored weights (and the optimizer's state), and of gradients."""

    compute: DType = DType.F32
    params: DType = DType.F32
    grads: DType = DType.F32


@dataclass(frozen=True, slots=True)
class Group:
    """The numbers of the parameters that `pattern` fits; None: that of the optimizer. In a pattern, `*` is any text and
    `?` any character."""

    pattern: str
    lr: float | None = None
    weight_decay: float | None = None
    span: Span = field(default=NO_SPAN, compare=False, repr=False)

    def fits(self, name: str) -> bool:
        """Whether a parameter of this name is in the group."""
        return fnmatchcase(name, self.pattern.replace("[", "[[]"))


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """`batch` sequences a step, in calls of `microbatch` sequences for each dp replica.

    `strategy` has the degrees above 1 in the order written; `data` is relative to the source file (empty:
    tokens come from the seed); `clip` 0 means none; `stages`, `zero`, `interleave`, `validation_rows` and
    `validation_percent` are those of `wscc.ir.train.Train`. `decay` says which parameters decay, `all` or `matrices`,
    and `groups` have numbers of the optimizer for some of them. `batch` is a multiple of `dp * microbatch`.
    """

    batch: int
    microbatch: int
    optimizer: Optimizer
    decay: str = "all"
    groups: tuple[Group, ...] = ()
    strategy: dict[str, int] = field(default_factory=dict)
    lr_schedule: LrSchedule = field(default_factory=LrSchedule)
    clip: float = 0.0
    data: str = ""
    validation_rows: int = 0
    validation_percent: float = 0.0
    dtypes: DTypes = DTypes()
    recompute: str = "none"
    stages: tuple[int, ...] = ()
    zero: int = 0
    interleave: int = 1
    seed: int = 0
    strategy_span: Span = field(default=NO_SPAN, compare=False, repr=False)
    stages_span: Span = field(default=NO_SPAN, compare=False, repr=False)

    def degree(self, axis: str) -> int:
        """The degree of an axis; 1 if the strategy does not name it."""
        return self.strategy.get(axis, 1)

    @property
    def calls(self) -> int:
        """Micro-batches of a step: as few as `microbatch` sequences for each replica and call allow."""
        return -(-self.batch // (self.microbatch * self.degree("dp")))
