"""Disjoint rings or paths for the groups of one axis, or the obstacle that forbids them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from wscc.machine.topology import Topology
from wscc.passes.place.boxes import IsValid, most_boxes
from wscc.passes.place.grow import Region, RegionSpec, grow_regions
from wscc.passes.place.lattice import best_tilings
from wscc.passes.place.types import AxisSpec

# The work of growing, in dies placed x dies of the region, is held to some seconds; four tries are the plain
# scan orders.
_MAX_GROWTH = 2_000_000
_LEAST_TRIES = 4
# The shapes of boxes tried, the squarest first, and the orders in which rings are grown around them.
_TILINGS, _FEW_TRIES = 6, 2


@dataclass(frozen=True, slots=True)
class Walks:
    """Rings or paths found by `method` (`grow` or `cpsat`); `walks` is None if none were, and `reason` says why."""

    walks: list[Region] | None
    method: str = ""
    reason: str = ""


def find_regions(topology: Topology, spec: RegionSpec, *, seed: int, tries: int, limit: float) -> Walks:
    """Disjoint regions as `spec` asks on the live dies of `topology`. `limit`: deterministic time of CP-SAT."""
    if reason := obstacle(topology, spec):
        return Walks(None, reason=reason)
    affordable = _MAX_GROWTH // (spec.size * spec.size * spec.count)
    tries = min(tries, max(affordable, _LEAST_TRIES))
    grown = grow_regions(topology, topology.live, spec, seed=seed, tries=tries)
    if grown is not None:
        return Walks(grown, "grow")
    if limit <= 0:
        return Walks(None, reason="none found within the search limit")
    # CP-SAT takes half a second to import, and most placements do without it.
    from wscc.passes.place.cpsat_rings import exact_regions

    exact = exact_regions(topology, topology.live, spec, seed=seed, limit=limit)
    if exact.regions is not None:
        return Walks(exact.regions, "cpsat")
    return Walks(None, reason="there are none" if exact.proven else "none found within the search limit")


def partly_tiled(
    topology: Topology, spec: RegionSpec, is_valid: IsValid, *, seed: int
) -> Iterator[list[Region]]:
    """Regions of boxes for as many groups as fit and others grown around them, for each shape of a box with which that
    succeeds."""
    if topology.grid is None or spec.size == 1 or obstacle(topology, spec):
        return
    axis = AxisSpec("", spec.size, ring=True)
    tilings = [t for t in best_tilings([axis], topology.grid, topology.torus) if not (spec.closed and t.open)]
    for tiling in sorted(tilings, key=lambda t: abs(t.extent[0] - t.extent[1]))[:_TILINGS]:
        boxed = most_boxes(topology, tiling, spec.count, lambda dies: is_valid([axis], dies)).tolist()
        missing = replace(spec, count=spec.count - len(boxed))
        if not boxed or not missing.count:
            continue  # all grown, or all boxes: other candidates
        rest = topology.part(topology.live_set - {d for box in boxed for d in box})
        if not obstacle(rest, missing):
            grown = grow_regions(rest, rest.live, missing, seed=seed, tries=_FEW_TRIES)
            if grown is not None:
                yield [*map(tuple, boxed), *grown]


def obstacle(topology: Topology, spec: RegionSpec) -> str:
    """The reason, in words, why counting dies and colours forbids the regions; empty if it does not."""
    if spec.size == 1:
        return ""
    colours = topology.colours
    if spec.closed and spec.size > 2 and spec.size % 2 and colours is not None:
        return f"a ring on a mesh has an even number of dies, not {spec.size}"
    usable = topology.part(_core(topology)) if spec.closed and spec.size > 2 else topology
    if len(usable.live) < spec.size * spec.count:
        return f"only {len(usable.live)} live dies have two live neighbours that may lie on a ring too"
    if colours is None:
        return ""
    parts = [Counter(colours[d] for d in part) for part in usable.islands]
    if sum(min(_fits(spec, p[0], p[1]), spec.count) for p in parts) >= spec.count:
        return ""
    word = "rings" if spec.closed else "paths"
    if len(parts) > 1:
        sizes = ", ".join(str(p.total()) for p in parts)
        return f"the dies that {word} can use fall into parts of {sizes} dies"
    needed = spec.size // 2 * spec.count
    usable_colours = f"{max(parts[0].values())} and {min(parts[0][0], parts[0][1])}"
    return (
        f"{word} alternate between the two colours of a chessboard and need {needed} dies of each at least; "
        f"{usable_colours} are usable"
    )


def _core(topology: Topology) -> set[int]:
    """The 2-core: the dies left after removing those with fewer than two neighbours repeatedly. Rings lie within."""
    degree = {d: len(topology.neighbours[d]) for d in topology.live}
    stack = [d for d, n in degree.items() if n < 2]
    for d in stack:
        del degree[d]
    while stack:
        for n in topology.neighbours[stack.pop()]:
            if n in degree:
                degree[n] -= 1
                if degree[n] < 2:
                    del degree[n]
                    stack.append(n)
    return set(degree)


def _fits(spec: RegionSpec, zeros: int, ones: int) -> int:
    """The most groups that a part with so many dies of each colour could hold."""
    if spec.size == 1:
        return zeros + ones
    return min(min(zeros, ones) // (spec.size // 2), (zeros + ones) // spec.size)
