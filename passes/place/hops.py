"""Hop counts between many pairs of dies at once, and the price of a placement (traffic x hops)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wscc.machine.topology import Topology
from wscc.passes.place.types import IntArray, Shape, axis_groups, axis_pairs, closing_pairs, least_hops

# Above this many live dies a full table of hops would take longer than placement may; damage is then ignored
# in the price (never in the rules).
TABLE_LIMIT = 1500


@dataclass(frozen=True)
class Hops:
    """Distances in hops within one island; a link between wafers counts for several (`Topology.lengths`)."""

    topology: Topology

    @cached_property
    def is_whole(self) -> bool:
        """Whether this is a mesh of links of one kind, with every die and link live, so that hops are row plus column
        distance."""
        return self.topology.is_whole_mesh and not self.topology.slow

    @cached_property
    def _table(self) -> IntArray:
        """Hops between live dies, by their position among them: most dies may be dead."""
        live = np.array(self.topology.live)
        return np.array([np.array(self.topology.lengths(die))[live] for die in self.topology.live])

    @cached_property
    def _position(self) -> IntArray:
        """By die, its position among the live ones."""
        position = np.zeros(self.topology.dies, np.int64)
        position[list(self.topology.live)] = np.arange(len(self.topology.live))
        return position

    def between(self, a: IntArray, b: IntArray) -> IntArray:
        """Hops from each of `a` to each of `b` (arrays that broadcast)."""
        topology = self.topology
        if topology.grid is not None and (self.is_whole or len(topology.live) > TABLE_LIMIT):
            cols = topology.grid[1]
            return np.asarray(np.abs(a // cols - b // cols) + np.abs(a % cols - b % cols), np.int64)
        return np.asarray(self._table[self._position[a], self._position[b]], np.int64)

    @cached_property
    def lookup(self) -> Callable[[int, int], int]:
        """A function of two dies that returns their hops, for loops over single dies."""
        if self.topology.grid is not None and (self.is_whole or len(self.topology.live) > TABLE_LIMIT):
            cols = self.topology.grid[1]
            coordinates = [divmod(d, cols) for d in range(self.topology.dies)]
            return lambda a, b: (
                abs(coordinates[a][0] - coordinates[b][0]) + abs(coordinates[a][1] - coordinates[b][1])
            )
        rows: list[list[int]] = self._table.tolist()
        position: list[int] = self._position.tolist()
        return lambda a, b: rows[position[a]][position[b]]


@dataclass(frozen=True)
class Price:
    """The price of placements: traffic x hops over all pairs of consecutive peers."""

    hops: Hops
    shape: Shape

    @cached_property
    def _pairs(self) -> list[IntArray]:
        return [axis_pairs(self.shape, i) for i in range(len(self.shape))]

    @cached_property
    def _closing(self) -> list[IntArray]:
        return [closing_pairs(self.shape, i) for i in range(len(self.shape))]

    def of(self, dies: IntArray) -> float:
        """The price of a placement; `dies` by logical index."""
        total = 0.0
        for axis, hops, closing in zip(self.shape, self.by_axis(dies), self._closing, strict=True):
            discount = (1 - axis.closing) * self._sum(closing, dies) if axis.closing != 1 else 0.0
            total += axis.weight * (hops - discount)
        return total

    def by_axis(self, dies: IntArray) -> list[int]:
        """Hops over all consecutive pairs of each axis, closing ones included."""
        return [self._sum(p, dies) for p in self._pairs]

    def _sum(self, pairs: IntArray, dies: IntArray) -> int:
        return int(self.hops.between(dies[pairs[:, 0]], dies[pairs[:, 1]]).sum())

    @cached_property
    def least(self) -> float:
        """A lower bound of the price of any placement: every pair is a hop apart at least."""
        groups = [len(axis_groups(self.shape, i)) for i in range(len(self.shape))]
        two = self.hops.topology.colours is not None
        return float(
            sum(
                a.weight * g * least_hops(a, two_colours=two) for a, g in zip(self.shape, groups, strict=True)
            )
        )
