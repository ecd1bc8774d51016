"""The manifest of a compiled program: the logical mesh, the wafer, and the arrays that a host fills and reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from wscc.ir.array import Init, Kind, Relation, Role
from wscc.ir.train import Train
from wscc.ir.types import TensorType
from wscc.machine.wafer import OPEN, Hub, Network, Torus

# Marks a field that files leave out where it has its default.
LEFT_OUT: Final[Mapping[str, bool]] = {"left_out": True}


@dataclass(frozen=True, slots=True)
class HostPart:
    """Elements from `first` on, `count` of them, on the dies of `stage` (-1: on all): element `first + i` of
    each die at `address + i * stride` bytes."""

    stage: int
    first: int
    count: int
    address: int
    stride: int


@dataclass(frozen=True, slots=True)
class HostTensor:
    """An array that the host may fill or read: `prod(extents)` elements of `type` (with its layout), in parts.

    The slice of a die follows from the layout and its coordinates. Parts that hold the same element hold
    replicas of it. The dimensions of `zigzag` lie in that order (`wscc.ir.zigzag`) along their first axis.
    `unpadded` is its shape without pads (`wscc.ir.array.Array`), which hold `filler`; empty: it has none."""

    name: str
    kind: Kind
    type: TensorType
    extents: tuple[int, ...]
    init: Init
    parts: tuple[HostPart, ...]
    relation: Relation | None = None
    zigzag: tuple[int, ...] = ()
    unpadded: tuple[int, ...] = ()
    filler: int = field(default=0, metadata=LEFT_OUT)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an element for the host: without pads."""
        return self.unpadded or self.type.shape

    def is_a(self, role: Role) -> bool:
        return self.relation is not None and self.relation.role is role


@dataclass(frozen=True, slots=True)
class Manifest:
    """`axes`: the logical mesh, first axis major; `stages` equal blocks of its dies are pipeline stages.
    `rows`, `columns`, `torus` and `dead_links` describe the wafer; edges of wafers of a system without a port count as
    dead links. A mesh that is no torus leaves that out, and one of two dimensions its `planes`, whose `rows` are those
    of all (`wscc.machine.fold`). `hub` is there where rows are nodes of
    dies that are joined all to all, and `network` where there are several."""

    name: str
    axes: tuple[tuple[str, int], ...]
    stages: int
    rows: int
    columns: int
    dead_dies: tuple[int, ...]
    dead_links: tuple[tuple[int, int], ...]
    tensors: tuple[HostTensor, ...]
    train: Train
    data_file: str
    torus: Torus = field(default=OPEN, metadata=LEFT_OUT)
    planes: int = field(default=0, metadata=LEFT_OUT)
    hub: Hub | None = field(default=None, metadata=LEFT_OUT)
    network: Network | None = field(default=None, metadata=LEFT_OUT)

    def related(self, role: Role) -> dict[str, str]:
        """By the name of an array, that of its gradient or incomplete sum."""
        return {t.relation.array: t.name for t in self.tensors if t.relation and t.relation.role is role}
