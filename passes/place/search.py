"""The search on one island: candidates of several kinds, the cheapest of which are improved.

Boxes on a lattice for all axes, or the inner ones (`boxes`); rings or paths from whole boxes and grown
ones; rings or paths that are all grown, or found by CP-SAT (`regions`). Regions are assigned to coordinates
(`assign`) and exchanged while that lowers the price. On small wafers CP-SAT takes the best as a hint, and
improves it or proves it best.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from wscc.machine.topology import Topology
from wscc.machine.wafer import Wafer
from wscc.passes.place.assign import Assigned, Regions, assign, exchange, in_order, outer_axes
from wscc.passes.place.boxes import boxes
from wscc.passes.place.describe import describe
from wscc.passes.place.grow import RegionSpec
from wscc.passes.place.hops import Hops, Price
from wscc.passes.place.regions import find_regions, obstacle, partly_tiled
from wscc.passes.place.types import (
    GroupKind,
    IntArray,
    Placement,
    Shape,
    axis_groups,
    dies_of,
    kind_of,
    opened,
)

if TYPE_CHECKING:
    from wscc.passes.place.cpsat_whole import Joint


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the search. Times are CP-SAT's deterministic time, about seconds of one fast core.

    `joint_time` is for improving a placement, if at most `joint_dies` dies are used of at most twice as many;
    `search_time` is for finding a placement at all; `tries` are the orders in which regions are grown; `improved`
    candidates are annealed.
    """

    joint_dies: int = 16
    joint_time: float = 0.02
    search_time: float = 1.5
    tries: int = 32
    improved: int = 3


NORMAL: Final = Limits()
_LATTICE: Final = Limits(joint_dies=0, search_time=0.0, tries=4, improved=1)

# Booleans of a model of the whole placement.
_MAX_JOINT = 4_096
# How much longer CP-SAT may improve a placement that is not a tiling.
_LOOSE_FACTOR = 4
# The longest groups that are grown as rings or paths although they need not be.
_MAX_SOFT = 128
NOT_FOUND = "none found within the search limit"


@dataclass(frozen=True, slots=True)
class Answer:
    """The physical die of each logical one. `optimal`: none has less traffic x hops."""

    dies: IntArray
    method: str
    price: float
    optimal: bool = False


class Search:
    """One island, one strategy, its ring axes as closed rings or as paths."""

    def __init__(self, topology: Topology, shape: Shape, closed: bool, limits: Limits, seed: int) -> None:
        self.rings = [i for i, a in enumerate(shape) if a.ring and a.size > 1]
        self.shape = tuple(shape) if closed or not self.rings else opened(shape)
        self.topology, self.closed, self.limits, self.seed = topology, closed, limits, seed
        self.price = Price(Hops(topology), self.shape)
        self.reason = ""

    def answer(self) -> Answer | str:
        """The best placement candidates, or the reason why there is none."""
        candidates = sorted(self._candidates(), key=lambda a: a.price)
        if not candidates:
            return self._crossed() if len(self.rings) > 1 and not self.reason else self.reason
        better = [self._exchanged(a) for a in candidates[: self.limits.improved]] or candidates[:1]
        best = min(better, key=lambda a: a.price)
        return self._improve(Answer(best.dies, best.regions.method, best.price))

    def describe(self, answer: Answer, open_reason: str) -> Placement:
        """`open_reason` says why there are no closed rings."""
        return describe(
            self.topology, self.shape, self.price, answer.dies, answer.method,
            optimal=answer.optimal, open_reason=open_reason,
        )  # fmt: skip

    # -- candidates -------------------------------------------------------------------------------------

    def _candidates(self) -> Iterator[Assigned]:
        for regions in self._regions():
            candidate = assign(self.topology, self.shape, regions, self.closed, self.price)
            yield candidate
            if (order := self._on_lattice(regions)) is not None:
                candidate = in_order(self.shape, regions, order, self.closed, self.price)
                yield candidate
            if candidate.price <= self.price.least:
                return

    def _on_lattice(self, regions: Regions) -> list[int] | None:
        """An order of regions on a lattice, by placing the outer axes on its cells; None where that does not apply."""
        outer = [replace(a, ring=False) for a in outer_axes(self.shape, regions)]
        if regions.cells is None or not regions.inner or dies_of(outer) == 1:
            return None
        corner = regions.cells.min(0)
        cells = {(r, c): i for i, (r, c) in enumerate((regions.cells - corner).tolist())}
        rows, cols = (int(n) + 1 for n in regions.cells.max(0) - corner)
        dead = frozenset((r, c) for r in range(rows) for c in range(cols)) - set(cells)
        lattice = Topology.mesh(Wafer("lattice", rows, cols, dead_dies=dead))
        if len(lattice.islands[0]) < dies_of(outer):
            return None
        answer = Search(lattice.part(lattice.islands[0]), outer, False, _LATTICE, self.seed).answer()
        assert not isinstance(answer, str), "single dies always have a place"
        return [cells[lattice.coordinate(d)] for d in answer.dies.tolist()]

    def _regions(self) -> Iterator[Regions]:
        tiled = False
        if self.topology.grid is not None:
            for regions in boxes(self.topology, self.shape, self.closed, self._is_valid):
                tiled = tiled or regions.method == "tile"
                yield regions
        if tiled:
            return
        if len(self.rings) > 1:
            self.reason = next(
                (r for axis in self.rings if (r := obstacle(self.topology, self._spec(axis)))), ""
            )
            return
        axis = self.rings[0] if self.rings else self._heaviest()
        if self.rings or self.shape[axis].size <= _MAX_SOFT:
            yield from self._walks(axis, must=bool(self.rings))

    def _walks(self, axis: int, *, must: bool) -> Iterator[Regions]:
        """Rings or paths for the groups of one axis."""
        spec = self._spec(axis)
        partly = 0
        for walks in partly_tiled(self.topology, spec, self._is_valid, seed=self.seed):
            partly += 1
            yield Regions((axis,), np.array(walks), "boxes", turned=True)
        limit = self.limits.search_time if must and not partly else 0.0
        regions = find_regions(self.topology, spec, seed=self.seed, tries=self.limits.tries, limit=limit)
        if regions.walks is not None:
            yield Regions((axis,), np.array(regions.walks), regions.method, turned=True)
        self.reason = regions.reason

    def _heaviest(self) -> int:
        """The axis with most traffic, for which rings or paths save most."""
        return max((a.weight if a.size > 1 else 0.0, i) for i, a in enumerate(self.shape))[1]

    def _spec(self, axis: int) -> RegionSpec:
        size = self.shape[axis].size
        return RegionSpec(size, dies_of(self.shape) // size, self.closed)

    def _is_valid(self, shape: Shape, dies: IntArray) -> bool:
        """Whether the groups of ring axes are rings (or paths, unless `closed`): dead links can break a box."""
        allowed = (GroupKind.RING,) if self.closed else (GroupKind.RING, GroupKind.PATH)
        return all(
            kind_of(self.topology, dies[group].tolist()) in allowed
            for i, axis in enumerate(shape)
            if axis.ring and axis.size > 1
            for group in axis_groups(shape, i)
        )

    def _crossed(self) -> Answer | str:
        """A placement of several ring axes, whose groups cross, by the model of the whole; or the reason for none."""
        if dies_of(self.shape) * len(self.topology.live) > _MAX_JOINT or not self.limits.search_time:
            return NOT_FOUND
        solution = self._joint(None, self.limits.search_time)
        if solution.dies is not None:
            return self._improve(Answer(solution.dies, "cpsat", self.price.of(solution.dies)))
        return "there are none" if solution.proven else NOT_FOUND

    # -- improving --------------------------------------------------------------------------------------

    def _exchanged(self, candidate: Assigned) -> Assigned:
        return exchange(self.shape, candidate, self.closed, self.price, seed=self.seed)

    def _improve(self, answer: Answer) -> Answer:
        if answer.price <= self.price.least:
            return replace(answer, optimal=True)
        used, live = dies_of(self.shape), len(self.topology.live)
        if used > self.limits.joint_dies or live > 2 * self.limits.joint_dies:
            return answer
        factor = 1 if answer.method == "tile" else _LOOSE_FACTOR
        solution = self._joint(answer.dies, self.limits.joint_time * factor)
        if solution.dies is None:
            return answer
        if (price := self.price.of(solution.dies)) < answer.price:
            return Answer(solution.dies, "cpsat", price, solution.proven)
        return replace(answer, method="cpsat", optimal=True) if solution.proven else answer

    def _joint(self, hint: IntArray | None, limit: float) -> Joint:
        # CP-SAT takes half a second to import, and most placements do without it.
        from wscc.passes.place.cpsat_whole import joint

        return joint(self.topology, self.shape, self.closed, hint, seed=self.seed, limit=limit)
