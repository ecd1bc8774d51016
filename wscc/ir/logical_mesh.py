"""The logical mesh of dies: coordinates, groups along an axis and blocks of a layout, by arithmetic on die indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

from wscc.ir.per_die import NOBODY, Ints, per_die


@dataclass(frozen=True)
class LogicalMesh:
    """A mesh of (name, degree) axes; its dies are numbered row-major over them, first axis major."""

    axes: tuple[tuple[str, int], ...]

    @cached_property
    def count(self) -> int:
        """Number of dies."""
        return prod(n for _, n in self.axes)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Degree of each axis."""
        return dict(self.axes)

    @cached_property
    def strides(self) -> dict[str, int]:
        """Difference of the indices of two dies next to each other along the axis, by axis."""
        names = [a for a, _ in self.axes]
        return {a: prod(n for _, n in self.axes[i + 1 :]) for i, a in enumerate(names)}

    def coordinates(self, axis: str) -> list[int]:
        """Position of each die along the axis."""
        return self._coordinates[axis]

    @cached_property
    def _coordinates(self) -> dict[str, list[int]]:
        return {axis: [i // self.strides[axis] % size for i in range(self.count)] for axis, size in self.axes}

    def by_position(self, axis: str, values: Sequence[int]) -> Ints:
        """The value of each die, from one value for each position along the axis."""
        return _by_position(self, axis, tuple(values))

    def peers(self, axis: str, targets: Sequence[int]) -> Ints:
        """For each die, the die of its group at position `targets[own position]`; `NOBODY` where that is `NOBODY`."""
        return _peers(self, axis, tuple(targets))

    def block(self, axes: Sequence[str]) -> list[int]:
        """For each die, the index of its block of a dimension split by `axes`, major first."""
        index = [0] * self.count
        for a in axes:
            size, positions = self.sizes[a], self.coordinates(a)
            index = [i * size + p for i, p in zip(index, positions, strict=True)]
        return index

    def groups(self, axis: str) -> list[list[int]]:
        """The dies of each group along the axis, in order of position."""
        stride, size = self.strides[axis], self.sizes[axis]
        return [
            [first + k * stride for k in range(size)]
            for first, p in enumerate(self.coordinates(axis))
            if p == 0
        ]


# The rounds of each stream ask for the same few, and equal values that are one object are compared at once.
@lru_cache(maxsize=1024)
def _by_position(mesh: LogicalMesh, axis: str, values: tuple[int, ...]) -> Ints:
    return per_die(map(values.__getitem__, mesh.coordinates(axis)))


@lru_cache(maxsize=1024)
def _peers(mesh: LogicalMesh, axis: str, targets: tuple[int, ...]) -> Ints:
    stride = mesh.strides[axis]
    return per_die(
        NOBODY if targets[p] == NOBODY else i + (targets[p] - p) * stride
        for i, p in enumerate(mesh.coordinates(axis))
    )


def mask(mesh: LogicalMesh, axis: str, positions: Sequence[bool]) -> Ints:
    """1 on dies whose position along the axis is true in `positions`, else 0."""
    return mesh.by_position(axis, positions)
