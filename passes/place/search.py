"""The search on one island: candidates of several kinds, the cheapest of which are improved.

Boxes on a lattice for all axes, or the inner ones (`place_boxes`); rings or paths from whole boxes and grown
ones; rings or paths that are all grown, or found by CP-SAT (`place_regions`). Regions are given to coordinates
(`place_assign`) and change places while that pays. On small wafers CP-SAT takes the best as a hint, and
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
from wscc.passes.place.grow import Ask
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
    """How hard to try. Times are CP-SAT's deterministic time, about seconds of one fast core.

    `joint_time` improves what is there, if at most `joint_dies` dies are used of at most twice as many;
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
        """The best placement found, or why there is none."""
        found = sorted(self._candidates(), key=lambda a: a.price)
        if not found:
            return self._crossed() if len(self.rings) > 1 and not self.reason else self.reason
        better = [self._exchanged(a) for a in found[: self.limits.improved]] or found[:1]
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
            found = assign(self.topology, self.shape, regions, self.closed, self.price)
            yield found
            if (order := self._on_lattice(regions)) is not None:
                found = in_order(self.shape, regions, order, self.closed, self.price)
                yield found
            if found.price <= self.price.least:
                return

    def _on_lattice(self, regions: Regions) -> list[int] | None:
        """An order of regions that lie on a lattice: a placement of the outer axes, with a cell for a die."""
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
            for made in boxes(self.topology, self.shape, self.closed, self._keeps):
                tiled = tiled or made.method == "tile"
                yield made
        if tiled:
            return
        if len(self.rings) > 1:
            self.reason = next(
                (r for axis in self.rings if (r := obstacle(self.topology, self._ask(axis)))), ""
            )
            return
        axis = self.rings[0] if self.rings else self._heaviest()
        if self.rings or self.shape[axis].size <= _MAX_SOFT:
            yield from self._walks(axis, must=bool(self.rings))

    def _walks(self, axis: int, *, must: bool) -> Iterator[Regions]:
        """Rings or paths for the groups of one axis."""
        ask = self._ask(axis)
        partly = 0
        for walks in partly_tiled(self.topology, ask, self._keeps, seed=self.seed):
            partly += 1
            yield Regions((axis,), np.array(walks), "boxes", turned=True)
        limit = self.limits.search_time if must and not partly else 0.0
        found = find_regions(self.topology, ask, seed=self.seed, tries=self.limits.tries, limit=limit)
        if found.walks is not None:
            yield Regions((axis,), np.array(found.walks), found.method, turned=True)
        self.reason = found.reason

    def _heaviest(self) -> int:
        """The axis with most traffic, which does well to have rings or paths."""
        return max((a.weight if a.size > 1 else 0.0, i) for i, a in enumerate(self.shape))[1]

    def _ask(self, axis: int) -> Ask:
        size = self.shape[axis].size
        return Ask(size, dies_of(self.shape) // size, self.closed)

    def _keeps(self, shape: Shape, dies: IntArray) -> bool:
        """Whether ring axes have what they must: dead links alone can break a box."""
        allowed = (GroupKind.RING,) if self.closed else (GroupKind.RING, GroupKind.PATH)
        return all(
            kind_of(self.topology, dies[group].tolist()) in allowed
            for i, axis in enumerate(shape)
            if axis.ring and axis.size > 1
            for group in axis_groups(shape, i)
        )

    def _crossed(self) -> Answer | str:
        """Several ring axes, whose groups cross: only the model of the whole placement can say."""
        if dies_of(self.shape) * len(self.topology.live) > _MAX_JOINT or not self.limits.search_time:
            return NOT_FOUND
        found = self._joint(None, self.limits.search_time)
        if found.dies is not None:
            return self._improve(Answer(found.dies, "cpsat", self.price.of(found.dies)))
        return "there are none" if found.proven else NOT_FOUND

    # -- improving --------------------------------------------------------------------------------------

    def _exchanged(self, found: Assigned) -> Assigned:
        return exchange(self.shape, found, self.closed, self.price, seed=self.seed)

    def _improve(self, answer: Answer) -> Answer:
        if answer.price <= self.price.least:
            return replace(answer, optimal=True)
        used, live = dies_of(self.shape), len(self.topology.live)
        if used > self.limits.joint_dies or live > 2 * self.limits.joint_dies:
            return answer
        factor = 1 if answer.method == "tile" else _LOOSE_FACTOR
        better = self._joint(answer.dies, self.limits.joint_time * factor)
        if better.dies is None:
            return answer
        if (price := self.price.of(better.dies)) < answer.price:
            return Answer(better.dies, "cpsat", price, better.proven)
        return replace(answer, method="cpsat", optimal=True) if better.proven else answer

    def _joint(self, hint: IntArray | None, limit: float) -> Joint:
        # CP-SAT takes half a second to import, and most placements do without it.
        from wscc.passes.place.cpsat_whole import joint

        return joint(self.topology, self.shape, self.closed, hint, seed=self.seed, limit=limit)
