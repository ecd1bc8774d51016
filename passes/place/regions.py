"""Disjoint rings or paths for the groups of one axis: what forbids them, or where they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from wscc.machine.topology import Topology
from wscc.passes.place.boxes import Keeps, most_boxes
from wscc.passes.place.grow import Ask, Region, grow_regions
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
    """`walks` is None if there are none, and `reason` says why. `method` is `grow` or `cpsat`."""

    walks: list[Region] | None
    method: str = ""
    reason: str = ""


def find_regions(topology: Topology, ask: Ask, *, seed: int, tries: int, limit: float) -> Walks:
    """The regions asked for, on the live dies of `topology`."""
    if reason := obstacle(topology, ask):
        return Walks(None, reason=reason)
    affordable = _MAX_GROWTH // (ask.size * ask.size * ask.count)
    tries = min(tries, max(affordable, _LEAST_TRIES))
    grown = grow_regions(topology, topology.live, ask, seed=seed, tries=tries)
    if grown is not None:
        return Walks(grown, "grow")
    if limit <= 0:
        return Walks(None, reason="none found within the search limit")
    # CP-SAT takes half a second to import, and most placements do without it.
    from wscc.passes.place.cpsat_rings import exact_regions

    exact = exact_regions(topology, topology.live, ask, seed=seed, limit=limit)
    if exact.regions is not None:
        return Walks(exact.regions, "cpsat")
    return Walks(None, reason="there are none" if exact.proven else "none found within the search limit")


def partly_tiled(topology: Topology, ask: Ask, keeps: Keeps, *, seed: int) -> Iterator[list[Region]]:
    """Whole boxes for as many groups as there is room, the rest grown around them: for each shape of a box with
    which that succeeds."""
    if topology.grid is None or ask.size == 1 or obstacle(topology, ask):
        return
    axis = AxisSpec("", ask.size, ring=True)
    tilings = [t for t in best_tilings([axis], topology.grid) if not (ask.closed and t.open)]
    for tiling in sorted(tilings, key=lambda t: abs(t.extent[0] - t.extent[1]))[:_TILINGS]:
        kept = most_boxes(topology, tiling, ask.count, lambda dies: keeps([axis], dies)).tolist()
        missing = replace(ask, count=ask.count - len(kept))
        if not kept or not missing.count:
            continue  # all grown, or all boxes: other candidates
        rest = topology.part(topology.live_set - {d for box in kept for d in box})
        if not obstacle(rest, missing):
            grown = grow_regions(rest, rest.live, missing, seed=seed, tries=_FEW_TRIES)
            if grown is not None:
                yield [*map(tuple, kept), *grown]


def obstacle(topology: Topology, ask: Ask) -> str:
    """What simple counting says against it; empty if nothing."""
    if ask.size == 1:
        return ""
    colours = topology.colours
    if ask.closed and ask.size > 2 and ask.size % 2 and colours is not None:
        return f"a ring on a mesh has an even number of dies, not {ask.size}"
    usable = topology.part(_core(topology)) if ask.closed and ask.size > 2 else topology
    if len(usable.live) < ask.size * ask.count:
        return f"only {len(usable.live)} live dies have two live neighbours that may lie on a ring too"
    if colours is None:
        return ""
    parts = [Counter(colours[d] for d in part) for part in usable.islands]
    if sum(min(_fits(ask, p[0], p[1]), ask.count) for p in parts) >= ask.count:
        return ""
    word = "rings" if ask.closed else "paths"
    if len(parts) > 1:
        sizes = ", ".join(str(p.total()) for p in parts)
        return f"the dies that {word} can use fall into parts of {sizes} dies"
    needed = ask.size // 2 * ask.count
    usable_colours = f"{max(parts[0].values())} and {min(parts[0][0], parts[0][1])}"
    return (
        f"{word} alternate between the two colours of a chessboard and need {needed} dies of each at least; "
        f"{usable_colours} are usable"
    )


def _core(topology: Topology) -> set[int]:
    """The dies left when those with fewer than two neighbours go, again and again: rings lie within."""
    left = {d: len(topology.neighbours[d]) for d in topology.live}
    stack = [d for d, n in left.items() if n < 2]
    for d in stack:
        del left[d]
    while stack:
        for n in topology.neighbours[stack.pop()]:
            if n in left:
                left[n] -= 1
                if left[n] < 2:
                    del left[n]
                    stack.append(n)
    return set(left)


def _fits(ask: Ask, zeros: int, ones: int) -> int:
    """How many groups a part with so many dies of each colour could hold at best."""
    if ask.size == 1:
        return zeros + ones
    return min(min(zeros, ones) // (ask.size // 2), (zeros + ones) // ask.size)
