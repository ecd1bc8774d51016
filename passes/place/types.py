"""The input and output of placement: specs of axes, and placements.

A strategy is an ordered logical mesh; a logical die index is row-major over its axes, first axis major. A
*group* of an axis is the dies that differ only in that coordinate, listed by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from math import prod

import numpy as np
import numpy.typing as npt

from wscc.machine.topology import Topology

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AxisSpec:
    """One axis: its size, whether its groups must be rings or paths of neighbours, and its traffic.

    `weight` is the traffic of consecutive peers, in any unit that all axes share; the last and the first of a group
    of more than two exchange `closing` x `weight`.
    """

    name: str
    size: int
    ring: bool = False
    weight: float = 1.0
    closing: float = 1.0


Shape = Sequence[AxisSpec]


class GroupKind(StrEnum):
    """The kinds of a group, best first: `ring`, each one hop from the next and the last from the first
    (two neighbours are a ring: one exchange); `path`, the same without the closing hop; `near`, neither."""

    RING = "ring"
    PATH = "path"
    NEAR = "near"


@dataclass(frozen=True, slots=True)
class AxisPlacement:
    """The groups of one axis, in order of their first logical die.

    `kind` is the worst of them: one program serves all, so it may count on no more. `hops` is the sum over
    all pairs of consecutive peers, closing pairs included. `note` says why a ring axis is not of rings.
    """

    name: str
    kind: GroupKind
    groups: tuple[GroupKind, ...]
    hops: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Placement:
    """`dies[i]` is the physical die of logical index i. `method` names the method that found it: `tile` (one lattice),
    `boxes` (equal ones where the wafer is whole), `grow` (a heuristic), `cpsat`; else the mapper. `optimal`: no
    placement has less traffic x hops."""

    dies: tuple[int, ...]
    method: str
    axes: tuple[AxisPlacement, ...]
    optimal: bool = False

    @property
    def rings(self) -> int:
        """Groups of all axes, of at least two dies, that are closed rings of neighbours."""
        return self._count(GroupKind.RING)

    @property
    def paths(self) -> int:
        """Groups of all axes, of at least two dies, that are open paths."""
        return self._count(GroupKind.PATH)

    def _count(self, kind: GroupKind) -> int:
        return sum(a.groups.count(kind) for a in self.axes if len(a.groups) < len(self.dies))

    def axis(self, name: str) -> AxisPlacement:
        return next(a for a in self.axes if a.name == name)


def dies_of(shape: Shape) -> int:
    """The number of dies that the strategy uses."""
    return prod(a.size for a in shape)


def axis_groups(shape: Shape, axis: int) -> IntArray:
    """Logical dies of each group of one axis: [groups, size]."""
    sizes = [a.size for a in shape]
    logical = np.arange(prod(sizes)).reshape(sizes)
    return np.moveaxis(logical, axis, -1).reshape(-1, sizes[axis])


def axis_pairs(shape: Shape, axis: int) -> IntArray:
    """Consecutive peers of all groups of one axis, closing pairs included (two: one pair): [pairs, 2]."""
    groups = axis_groups(shape, axis)
    if shape[axis].size == 1:
        return np.empty((0, 2), np.int64)
    if shape[axis].size == 2:
        return groups
    return np.stack([groups, np.roll(groups, -1, axis=1)], axis=-1).reshape(-1, 2)


def closing_pairs(shape: Shape, axis: int) -> IntArray:
    """The last and the first die of each group of more than two: [groups, 2]."""
    if shape[axis].size <= 2:
        return np.empty((0, 2), np.int64)
    return axis_groups(shape, axis)[:, [-1, 0]]


def least_hops(axis: AxisSpec, *, two_colours: bool = True) -> float:
    """The least hops of one group over its consecutive pairs, the closing one by its share.

    With `two_colours`, as on a mesh, no circuit has an odd length, so one pair of an odd group is two hops apart."""
    if axis.size <= 2:
        return axis.size - 1
    odd = min(axis.closing, 1.0) if axis.size % 2 and two_colours else 0.0
    return axis.size - 1 + axis.closing + odd


def opened(shape: Shape) -> tuple[AxisSpec, ...]:
    """The shape when the groups of its ring axes are paths: nothing goes from their last die to the first."""
    return tuple(replace(a, closing=0.0) if a.ring else a for a in shape)


def kind_of(topology: Topology, group: Sequence[int]) -> GroupKind:
    """The kind of a group of dies in this order."""
    if not all(topology.are_adjacent(a, b) for a, b in pairwise(group)):
        return GroupKind.NEAR
    if len(group) <= 2 or topology.are_adjacent(group[-1], group[0]):
        return GroupKind.RING
    return GroupKind.PATH
