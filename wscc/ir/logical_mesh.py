"""The logical mesh as arithmetic on die indices: coordinates, groups along an axis, blocks of a layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from wscc.ir.per_die import NOBODY, Ints, per_die


@dataclass(frozen=True)
class LogicalMesh:
    """Dies are numbered row-major over `axes`, first axis major."""

    axes: tuple[tuple[str, int], ...]

    @cached_property
    def count(self) -> int:
        return prod(n for _, n in self.axes)

    @cached_property
    def sizes(self) -> dict[str, int]:
        return dict(self.axes)

    @cached_property
    def strides(self) -> dict[str, int]:
        """How far apart two dies are that differ by one along the axis."""
        names = [a for a, _ in self.axes]
        return {a: prod(n for _, n in self.axes[i + 1 :]) for i, a in enumerate(names)}

    def coordinates(self, axis: str) -> list[int]:
        """By die, its position along the axis."""
        return self._coordinates[axis]

    @cached_property
    def _coordinates(self) -> dict[str, list[int]]:
        return {axis: [i // self.strides[axis] % size for i in range(self.count)] for axis, size in self.axes}

    def by_position(self, axis: str, values: Sequence[int]) -> Ints:
        """A value for each position along the axis, as a value for each die."""
        return per_die(map(values.__getitem__, self.coordinates(axis)))

    def peers(self, axis: str, targets: Sequence[int]) -> Ints:
        """By die, the die of its group at position `targets[own position]` (`NOBODY` stays)."""
        stride = self.strides[axis]
        return per_die(
            NOBODY if targets[p] == NOBODY else i + (targets[p] - p) * stride
            for i, p in enumerate(self.coordinates(axis))
        )

    def block(self, axes: Sequence[str]) -> list[int]:
        """By die, the index of its block of a dimension split by `axes`, major first."""
        index = [0] * self.count
        for a in axes:
            size, at = self.sizes[a], self.coordinates(a)
            index = [i * size + p for i, p in zip(index, at, strict=True)]
        return index

    def groups(self, axis: str) -> list[list[int]]:
        """The dies of each group along the axis, in order of position."""
        stride, size = self.strides[axis], self.sizes[axis]
        return [
            [first + k * stride for k in range(size)]
            for first, p in enumerate(self.coordinates(axis))
            if p == 0
        ]


def mask(mesh: LogicalMesh, axis: str, positions: Sequence[bool]) -> Ints:
    """1 on dies whose position along the axis is chosen."""
    return mesh.by_position(axis, [int(p) for p in positions])
