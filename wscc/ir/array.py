"""Arrays, the tensors that live through a step: weights, gradients, optimizer state, residuals, inputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from math import prod

from wscc.diagnostics import NO_SPAN, Span
from wscc.ir.train import Rates
from wscc.ir.types import TensorType


class Kind(StrEnum):
    """The purpose of an array; reports add up memory by it."""

    PARAM = "param"
    COMPUTE_COPY = "compute_copy"  # a parameter in the type of computation, converted once a step
    GRAD = "grad"
    STATE = "state"
    INPUT = "input"
    EDGES = "edges"  # pairs of nodes, known before compilation; when lowered, the blocks that each die has of them
    CARRIED = "carried"  # loop-carried: from one segment, or layer, to the next
    RESIDUAL = "residual"  # saved by a forward procedure for the backward one
    SCALAR = "scalar"
    STATISTIC = "statistic"  # added up over a step for who looks on; nothing depends on it


@dataclass(frozen=True, slots=True)
class Init:
    """The values that the host fills an array with before the first step: `zeros`, `ones`, or `normal` with standard
    deviation `std`."""

    kind: str = "zeros"
    std: float = 0.0


class Role(StrEnum):
    """The relation of an array to another one."""

    GRADIENT = "gradient"
    MOMENT = "moment"  # optimizer state of a parameter
    PARTIAL = "partial"  # its pending sum, all-reduced later
    COPY = "copy"  # its compute copy


@dataclass(frozen=True, slots=True)
class Relation:
    """The array is the `role` of `array`; where stages hold parts of that one, `array` is the name of the whole."""

    role: Role
    array: str


@dataclass(frozen=True, slots=True)
class Array:
    """`prod(extents)` elements of one tensor type; `storage` names the array whose bytes it shares.

    With pipeline stages, an array may be on one `stage` only (-1: on all). It may hold for the host the
    elements of the array `of` from `first` on; several that hold the same element hold replicas of it. Its
    `relation` says what it is to another array; its name never does. A parameter may have `rates` of its own, which
    the optimizer uses for it. The dimensions of `zigzag` are positions of a sequence that lie in zigzag order
    (`wscc.ir.zigzag`) along the first axis that splits them; all other dimensions lie as they are.
    `unpadded` is the shape that the model gives it, where that of `type` is larger: beyond it are pads, which hold
    zeros (of an input, `filler`) and which the host never sees. An array that is `handed` is one element that a call
    writes for the next one to read: it lies in the fast memory, among the locals of procedures, which have its bytes
    while it holds no value.
    """

    name: str
    type: TensorType
    kind: Kind
    extents: tuple[int, ...] = ()
    init: Init = Init()
    storage: str = ""
    stage: int = -1
    of: str = ""
    first: int = 0
    relation: Relation | None = None
    rates: Rates | None = None
    zigzag: tuple[int, ...] = ()
    unpadded: tuple[int, ...] = ()
    handed: bool = False
    filler: int = 0
    span: Span = field(default=NO_SPAN, compare=False, repr=False)

    @property
    def count(self) -> int:
        """Number of elements, each a tensor of `type`."""
        return prod(self.extents)

    def is_a(self, role: Role) -> bool:
        """Whether the array has this role for another one."""
        return self.relation is not None and self.relation.role is role
