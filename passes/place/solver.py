"""Placement of logical dies on a wafer: rings on any island that has them, else paths, else an error."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from wscc.diagnostics import CompileError
from wscc.machine.corner import corners, is_whole
from wscc.machine.topology import Topology, neighbour_topology
from wscc.machine.wafer import Wafer
from wscc.passes.choices import DEFAULT_MAPPER
from wscc.passes.place.baselines import SIMPLE, place_simply
from wscc.passes.place.check import check_placement
from wscc.passes.place.errors import no_place, too_many
from wscc.passes.place.search import NORMAL, Limits, Search
from wscc.passes.place.types import AxisSpec, Placement, Shape, dies_of

# For the numbers of groups that a refusal names, and estimates.
QUICK = Limits(joint_dies=0, search_time=0.2, tries=8, improved=0)


def place_on(
    wafer: Wafer, shape: Shape, mapper: str = DEFAULT_MAPPER, *, limits: Limits = NORMAL, seed: int = 0
) -> Placement:
    """The placement by a mapper on a wafer, checked by code that shares nothing with it.

    `cpsat` is `solve`; the others look for no rings, and their ring axes may come to lie apart.
    """
    if mapper in SIMPLE:
        placement = place_simply(neighbour_topology(wafer), shape, mapper, seed)
        check_placement(wafer, [replace(a, ring=False) for a in shape], placement)
    else:
        placement = _in_corner(wafer, shape, limits, seed)
        check_placement(wafer, shape, placement)
    return placement


def _in_corner(wafer: Wafer, shape: Shape, limits: Limits, seed: int) -> Placement:
    """The placement in the first corner that has one; what is refused is refused of the whole wafer."""
    for topology in corners(wafer, dies_of(shape)):
        try:
            return solve(topology, shape, limits=limits, seed=seed)
        except CompileError:
            if is_whole(topology, wafer):
                raise
    raise AssertionError("the last corner is the whole wafer")


def solve(topology: Topology, shape: Shape, *, limits: Limits = NORMAL, seed: int = 0) -> Placement:
    """The best placement found; the same for the same arguments, whatever else the machine does.

    All groups of a ring axis are closed rings of neighbours if such a placement is found, else paths. All
    dies lie on one island. Raises `CompileError`: W301 more dies than are live, W302 more than any island
    has, W303 no place for the rings or paths.
    """
    return _solve(topology, tuple(shape), limits, seed)


@lru_cache(maxsize=256)
def _solve(topology: Topology, shape: tuple[AxisSpec, ...], limits: Limits, seed: int) -> Placement:
    def fits(smaller: Shape) -> Placement | None:
        placement = _search(topology, smaller, QUICK, seed)
        return None if isinstance(placement, str) else placement

    islands = [part for part in topology.islands if len(part) >= dies_of(shape)]
    if not islands:
        raise too_many(topology, shape)
    placement = _search(topology, shape, limits, seed)
    if isinstance(placement, str):
        raise no_place(topology, shape, placement, fits)
    return placement


def _search(topology: Topology, shape: Shape, limits: Limits, seed: int) -> Placement | str:
    """A placement with rings on any island that is large enough, else with paths; else the obstacle to them."""
    islands = [topology.part(p) for p in topology.islands if len(p) >= dies_of(shape)]
    reasons = [""]
    has_rings = any(a.ring and a.size > 1 for a in shape)
    for closed in (True, False) if has_rings else (False,):
        searches = [Search(island, shape, closed, limits, seed) for island in islands]
        answers = [search.answer() for search in searches]
        reasons.append(next((t for t in answers if isinstance(t, str)), ""))
        for search, answer in zip(searches, answers, strict=True):
            if not isinstance(answer, str):
                return search.describe(answer, reasons[-2])
    return reasons[-1]
