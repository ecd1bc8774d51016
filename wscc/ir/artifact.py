"""The manifest: what a host must know of a compiled program, and nothing of how it came about."""

from __future__ import annotations

from dataclasses import dataclass

from wscc.ir.module import Init, Kind
from wscc.ir.train import Train
from wscc.ir.types import TensorType


@dataclass(frozen=True, slots=True)
class HostTensor:
    """An array that the host may fill or read: `prod(extents)` elements of `type` (with its layout), element
    i of each die at `address + i * stride` bytes; the die's slice follows from the layout and its coordinates."""

    name: str
    kind: Kind
    type: TensorType
    extents: tuple[int, ...]
    address: int
    stride: int
    init: Init


@dataclass(frozen=True, slots=True)
class Manifest:
    """`axes`: the logical mesh, first axis major. `rows`, `columns`, `dead_links` describe the wafer."""

    name: str
    axes: tuple[tuple[str, int], ...]
    rows: int
    columns: int
    dead_dies: tuple[int, ...]
    dead_links: tuple[tuple[int, int], ...]
    tensors: tuple[HostTensor, ...]
    train: Train
    data_file: str
