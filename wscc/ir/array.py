"""Arrays: what lives through a step."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from math import prod

from wscc.diagnostics import NO_SPAN, Span
from wscc.ir.types import TensorType


class Kind(StrEnum):
    """What an array is for; memory is reported by it."""

    PARAM = "param"
    COMPUTE_COPY = "compute_copy"  # a parameter in the type of computation, converted once a step
    GRAD = "grad"
    STATE = "state"
    INPUT = "input"
    CARRIED = "carried"
    RESIDUAL = "residual"  # saved by a forward procedure for the backward one
    SCALAR = "scalar"


@dataclass(frozen=True, slots=True)
class Init:
    """How the host fills an array before the first step: `zeros`, `ones`, or `normal` with a deviation."""

    kind: str = "zeros"
    std: float = 0.0


class Role(StrEnum):
    """What an array is to another one."""

    GRADIENT = "gradient"
    MOMENT = "moment"  # what an optimizer keeps for a parameter
    PARTIAL = "partial"  # its sum, not yet complete
    COPY = "copy"  # the parameter in the type of computation


@dataclass(frozen=True, slots=True)
class Relation:
    """The array is the `role` of `array`; where stages hold pieces of that one, `array` is the name of the whole."""

    role: Role
    array: str


@dataclass(frozen=True, slots=True)
class Array:
    """`prod(extents)` elements of one tensor type; `storage` names the array whose bytes it shares.

    Where stages are cut, an array may lie on one `stage` only (-1: on all). It may hold for the host the
    elements of the array `of` from `first` on; several that hold the same element hold replicas of it. What it is
    to another array its `relation` says, and never its name.
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
    span: Span = field(default=NO_SPAN, compare=False, repr=False)

    @property
    def count(self) -> int:
        return prod(self.extents)

    def is_a(self, role: Role) -> bool:
        return self.relation is not None and self.relation.role is role
