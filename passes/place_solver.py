"""Which physical die serves which logical one.

Whole wafers, and wafers with a whole part that is large enough, get a lattice of equal rectangles; elsewhere
rings (or paths) are grown, or found by CP-SAT, and then assigned. On small wafers CP-SAT takes the result as
a hint and improves it or proves it best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from wscc.machine.topology import Topology, mesh_topology
from wscc.machine.wafer import Wafer
from wscc.passes.place_assign import assign
from wscc.passes.place_check import check_placement
from wscc.passes.place_describe import describe
from wscc.passes.place_grow import Ask
from wscc.passes.place_hops import Hops, Price
from wscc.passes.place_refuse import no_place, too_many
from wscc.passes.place_regions import find_regions, obstacle
from wscc.passes.place_simple import SIMPLE, place_simply, to_and_fro
from wscc.passes.place_tiles import best_tilings, tile_positions
from wscc.passes.place_types import (
    DEFAULT_MAPPER,
    AxisSpec,
    GroupKind,
    IntArray,
    Placement,
    Shape,
    axis_groups,
    dies_of,
    kind_of,
)

if TYPE_CHECKING:
    from wscc.passes.place_joint import Joint


@dataclass(frozen=True, slots=True)
class Limits:
    """How hard to try. Times are CP-SAT's deterministic time, about seconds of one fast core.

    `joint_time` improves what is there, if at most `joint_dies` dies are used of at most twice as many;
    `search_time` is for finding a placement at all; `tries` are the orders in which regions are grown.
    """

    joint_dies: int = 16
    joint_time: float = 0.02
    search_time: float = 1.5
    tries: int = 32


MAPPERS: Final = (*SIMPLE, DEFAULT_MAPPER)

# Positions of tiles tried on a wafer with dead links, and Booleans of a model of the whole placement.
_MAX_POSITIONS = 2_000
_MAX_JOINT = 4_096
# How much longer CP-SAT may improve a placement that is not a tiling.
_LOOSE_FACTOR = 4
# The longest groups that are grown as rings or paths although they need not be.
_MAX_SOFT = 128
# For the strategies that a refusal proposes.
_QUICK = Limits(joint_dies=0, search_time=0.2, tries=8)


def place_on(
    wafer: Wafer, shape: Shape, mapper: str = DEFAULT_MAPPER, *, limits: Limits = Limits(), seed: int = 0
) -> Placement:
    """The answer of a mapper on a wafer, re-checked by code that shares nothing with it.

    `cpsat` is `solve`; the others look for no rings, and their ring axes may come to lie apart.
    """
    topology = mesh_topology(wafer)
    if mapper in SIMPLE:
        placement = place_simply(topology, shape, mapper, seed)
        check_placement(wafer, [replace(a, ring=False) for a in shape], placement)
    else:
        placement = solve(topology, shape, limits=limits, seed=seed)
        check_placement(wafer, shape, placement)
    return placement


def solve(topology: Topology, shape: Shape, *, limits: Limits = Limits(), seed: int = 0) -> Placement:
    """The best placement found; the same for the same arguments, whatever else the machine does.

    All groups of a ring axis are closed rings of neighbours if such a placement is found, else paths. All
    dies lie on one island. Raises `CompileError`: W301 more dies than are live, W302 more than any island
    has, W303 no place for the rings or paths.
    """
    return _solve(topology, tuple(shape), limits, seed)


@lru_cache(maxsize=256)
def _solve(topology: Topology, shape: tuple[AxisSpec, ...], limits: Limits, seed: int) -> Placement:
    def fits(smaller: Shape) -> Placement | None:
        found = _search(topology, smaller, _QUICK, seed)
        return None if isinstance(found, str) else found

    islands = [part for part in topology.islands if len(part) >= dies_of(shape)]
    if not islands:
        raise too_many(topology, shape, fits)
    placement = _search(topology, shape, limits, seed)
    if isinstance(placement, str):
        raise no_place(topology, shape, placement, fits)
    return placement


def _search(topology: Topology, shape: Shape, limits: Limits, seed: int) -> Placement | str:
    """Rings on any island that is large enough, else paths, else the obstacle to them."""
    searches = [
        _Search(topology.part(island), shape, limits, seed)
        for island in topology.islands
        if len(island) >= dies_of(shape)
    ]
    reasons = [""]
    has_rings = any(a.ring and a.size > 1 for a in shape)
    for closed in (True, False) if has_rings else (False,):
        tried = [search.attempt(closed) for search in searches]
        reasons.append(next((t for t in tried if isinstance(t, str)), ""))
        for search, answer in zip(searches, tried, strict=True):
            if not isinstance(answer, str):
                return search.describe(answer, reasons[-2])
    return reasons[-1]


@dataclass(frozen=True, slots=True)
class _Answer:
    dies: IntArray
    method: str
    optimal: bool = False


class _Search:
    """One island, one strategy."""

    def __init__(self, topology: Topology, shape: Shape, limits: Limits, seed: int) -> None:
        self.topology, self.shape, self.limits, self.seed = topology, shape, limits, seed
        self.price = Price(Hops(topology), shape)
        self.rings = [i for i, a in enumerate(shape) if a.ring and a.size > 1]

    def attempt(self, closed: bool) -> _Answer | str:
        """A placement whose ring axes are of closed rings, or of paths; or why there is none."""
        answer = self._tile(closed) or self._by_regions(closed)
        return answer if isinstance(answer, str) else self._improve(answer, closed)

    def _tile(self, closed: bool) -> _Answer | None:
        if self.topology.grid is None:
            return None
        left = _MAX_POSITIONS
        for tiling in best_tilings(self.shape, self.topology.grid):
            if closed and tiling.open:
                return None
            for dies in tile_positions(tiling, self.topology):
                if self._keeps_rules(dies, closed):
                    return _Answer(dies, "tile")
                left -= 1
                if left == 0:
                    return None
        return None

    def _keeps_rules(self, dies: IntArray, closed: bool) -> bool:
        """Dead links alone can break a tile."""
        allowed = (GroupKind.RING,) if closed else (GroupKind.RING, GroupKind.PATH)
        return all(
            kind_of(self.topology, dies[group].tolist()) in allowed
            for axis in self.rings
            for group in axis_groups(self.shape, axis)
        )

    def _by_regions(self, closed: bool) -> _Answer | str:
        if len(self.rings) > 1:
            return self._crossed(closed)
        if not self.rings:
            return self._loose()
        regions = find_regions(
            self.topology,
            self._ask(self.rings[0], closed),
            seed=self.seed,
            tries=self.limits.tries,
            limit=self.limits.search_time,
        )
        if regions.found is None:
            return regions.reason
        return self._assigned(self.rings[0], regions.found, closed, regions.method)

    def _ask(self, axis: int, closed: bool) -> Ask:
        size = self.shape[axis].size
        return Ask(size, dies_of(self.shape) // size, closed)

    def _assigned(self, axis: int, regions: Sequence[Sequence[int]], closed: bool, method: str) -> _Answer:
        return _Answer(assign(self.topology, self.shape, axis, regions, closed, self.price), method)

    def _crossed(self, closed: bool) -> _Answer | str:
        """Several ring axes, whose groups cross: only the model of the whole placement can say."""
        for axis in self.rings:
            if reason := obstacle(self.topology, self._ask(axis, closed)):
                return reason
        if dies_of(self.shape) * len(self.topology.live) > _MAX_JOINT or not self.limits.search_time:
            return "none found within the search limit"
        found = self._joint(closed, None, self.limits.search_time)
        if found.dies is not None:
            return _Answer(found.dies, "cpsat")
        return "there are none" if found.proven else "none found within the search limit"

    def _loose(self) -> _Answer:
        """No ring axis: the axis with most traffic gets rings or paths if they are easy to find."""
        weights = [(a.weight if a.size > 1 else 0.0, i) for i, a in enumerate(self.shape)]
        axis = max(weights)[1]
        for closed in (True, False) if self.shape[axis].size <= _MAX_SOFT else ():
            regions = find_regions(
                self.topology, self._ask(axis, closed), seed=self.seed, tries=self.limits.tries, limit=0
            )
            if regions.found is not None:
                return self._assigned(axis, regions.found, closed, regions.method)
        size = self.shape[axis].size
        dies = _near_snake(self.topology, dies_of(self.shape))
        return self._assigned(axis, [dies[i : i + size] for i in range(0, len(dies), size)], False, "snake")

    def _improve(self, answer: _Answer, closed: bool) -> _Answer:
        price = self.price.of(answer.dies)
        if price <= self.price.least:
            return replace(answer, optimal=True)
        used, live = dies_of(self.shape), len(self.topology.live)
        if used > self.limits.joint_dies or live > 2 * self.limits.joint_dies:
            return answer
        better = self._joint(
            closed, answer.dies, self.limits.joint_time * (1 if answer.method == "tile" else _LOOSE_FACTOR)
        )
        if better.dies is None:
            return answer
        optimal = better.proven
        if self.price.of(better.dies) < price:
            return _Answer(better.dies, "cpsat", optimal)
        return replace(answer, method="cpsat", optimal=True) if optimal else answer

    def _joint(self, closed: bool, hint: IntArray | None, limit: float) -> Joint:
        # CP-SAT takes half a second to import, and most placements do without it.
        from wscc.passes.place_joint import joint

        return joint(self.topology, self.shape, closed, hint, seed=self.seed, limit=limit)

    def describe(self, answer: _Answer, open_reason: str) -> Placement:
        """`open_reason` says why there are no closed rings."""
        return describe(
            self.topology, self.shape, self.price, answer.dies, answer.method,
            optimal=answer.optimal, open_reason=open_reason,
        )  # fmt: skip


def _near_snake(topology: Topology, count: int) -> list[int]:
    """The `count` dies nearest to the first, in rows that run to and fro."""
    distance = topology.distances(topology.live[0])
    return to_and_fro(topology, sorted(topology.live, key=lambda d: (distance[d], d))[:count])
