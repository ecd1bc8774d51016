"""The links that circuits set up for a program, and its dies on them.

Dies are placed as if all links that could be up were. Then those links are chosen that keep most of what the groups
exchange on one hop (`cpsat_links`); the others are missing from then on, as dead links are. Placed once more on what is
left, a program may find rings and paths that lie on it: the cheaper of both placements is kept, and the choice is made
again for it, as long as that lowers the price.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from wscc.diagnostics import Code, CompileError, fail
from wscc.disjoint_sets import DisjointSets
from wscc.machine.corner import topology_of
from wscc.machine.topology import Hop, Topology, mesh_topology
from wscc.machine.wafer import Circuits, Wafer, dead_links
from wscc.passes.place.check import check_placement
from wscc.passes.place.describe import describe
from wscc.passes.place.errors import not_joined
from wscc.passes.place.grow import RegionSpec
from wscc.passes.place.hops import Hops, Price
from wscc.passes.place.regions import find_regions
from wscc.passes.place.types import GroupKind, Placement, Shape, axis_pairs, closing_pairs, dies_of

# Circuits of larger wafers are refused: to choose among so many links takes minutes.
MOST_DIES: Final = 1_024
# Choices for one program; weights are counted in parts of the heaviest; the search for a walk, as in `search.Limits`.
_ROUNDS, _PARTS = 3, 10_000
_TRIES, _LIMIT = 32, 1.5


@dataclass(frozen=True, slots=True)
class Linked:
    """A placement, and the wafer with the links that are up for it."""

    wafer: Wafer
    placement: Placement


def on_circuits(machine: Wafer, shape: Shape, placed: Callable[[Wafer], Placement]) -> Linked:
    """The links that are up and the dies of a program. `placed` finds the placement on a wafer. Raises `CompileError`:
    W302 where no choice of links was found that joins as many dies, W003 for a wafer of more than `MOST_DIES`, else
    what `placed` raises."""
    assert machine.circuits is not None
    if machine.dies > MOST_DIES:
        message = f"`{machine.name}` has {machine.dies:,} dies, and circuits are set on up to {MOST_DIES:,}"
        raise fail(Code.LIMIT, message, help="use a smaller mesh")
    free = replace(machine, circuits=replace(machine.circuits, are_set=False, down=frozenset()))
    wafer = _set(free, shape, first := placed(free)) or _set_on_a_walk(free, shape)
    if wafer is None:
        raise _refusal(free, shape, first)
    best, least = _cheapest(wafer, shape, placed, first.dies)
    for _ in range(1, _ROUNDS):
        wafer = _set(free, shape, best.placement)
        if wafer is None or wafer == best.wafer:
            break
        found, price = _cheapest(wafer, shape, placed, best.placement.dies)
        if price >= least:
            break
        best, least = found, price
    return best


def _cheapest(
    wafer: Wafer, shape: Shape, placed: Callable[[Wafer], Placement], dies: Sequence[int]
) -> tuple[Linked, float]:
    """The cheaper placement on a wafer whose links are up, and its price: on the same dies, or a new one."""
    found = [placed(wafer)]
    if any(set(dies) <= set(island) for island in mesh_topology(wafer).islands):
        found.append(_on(wafer, shape, dies))
    prices = [_price(wafer, shape, p) for p in found]
    return Linked(wafer, found[prices.index(min(prices))]), min(prices)


def _on(wafer: Wafer, shape: Shape, dies: Sequence[int]) -> Placement:
    """The placement on given dies, by logical index, as the links that are up have it."""
    assert wafer.circuits is not None
    topology, reason = topology_of(wafer, dies), f"no more than {wafer.circuits.up} links of a die are up"
    price = Price(Hops(topology), shape)
    found = describe(topology, shape, price, np.array(dies), "circuits", optimal=False, open_reason=reason)
    check_placement(wafer, [replace(a, ring=False) for a in shape], found)
    return found


def _price(wafer: Wafer, shape: Shape, placement: Placement) -> float:
    """Traffic x hops of a placement; from the last die of a path to the first nothing streams."""
    return Price(Hops(topology_of(wafer, placement.dies)), _as_placed(shape, placement)).of(
        np.array(placement.dies)
    )


def _as_placed(shape: Shape, placement: Placement) -> Shape:
    return [
        replace(a, closing=0.0) if a.ring and p.kind is not GroupKind.RING else a
        for a, p in zip(shape, placement.axes, strict=True)
    ]


# ---- the links


def _set(free: Wafer, shape: Shape, placement: Placement) -> Wafer | None:
    """The wafer with the links that are up for a placement; None where no choice was found that joins its dies."""
    assert free.circuits is not None
    dies, up = placement.dies, free.circuits.up
    if len(dies) == 1:
        return _with_links(free, free.circuits, ())
    if up == 1 and len(dies) > 2:
        return None
    # CP-SAT takes half a second to import, and few wafers have circuits.
    from wscc.passes.place.cpsat_links import heaviest_links

    topology = topology_of(free, dies)
    topology = topology.part(next(island for island in topology.islands if dies[0] in island))
    weights = _scaled(exchanged(topology, _as_placed(shape, placement), dies))
    hint = _greedy(topology.part(dies), weights, up) or _walk(topology.part(dies), len(dies), 0.0)
    links = heaviest_links(topology, dies, weights, up, hint).links or hint
    return _with_links(free, free.circuits, links) if links else None


def _set_on_a_walk(free: Wafer, shape: Shape) -> Wafer | None:
    """The wafer with the links of one walk through as many dies as are used; None where none was found."""
    assert free.circuits is not None
    if free.circuits.up == 1:
        return None
    topology = mesh_topology(free)
    for island in topology.islands:
        if links := _walk(topology.part(island), dies_of(shape), _LIMIT):
            return _with_links(free, free.circuits, links)
    return None


def _with_links(free: Wafer, circuits: Circuits, up: Collection[Hop]) -> Wafer:
    """The wafer on which of the links that could be up these are, (a, b) with a < b."""
    down = [link for link in mesh_topology(free).links if link[0] < link[1] and link not in up]
    pairs = dead_links((free.coordinate(a), free.coordinate(b)) for a, b in down)
    return replace(free, circuits=replace(circuits, are_set=True, down=pairs))


def _greedy(topology: Topology, weights: Mapping[Hop, int], up: int) -> frozenset[Hop]:
    """Heavy links that leave each die one more, then those that join parts, then all that there is room for; empty
    where that does not join all dies. With two at a die it hardly ever does."""
    order = sorted(
        (link for link in topology.links if link[0] < link[1]), key=lambda k: (-weights.get(k, 0), k)
    )
    chosen, at, parts = set[Hop](), Counter[int](), DisjointSets[int]()
    for most, joining in ((up - 1, False), (up, True), (up, False)) if up > 2 else ():
        for a, b in order:
            is_new = parts[a] != parts[b] or not joining
            if (a, b) not in chosen and is_new and max(at[a], at[b]) < most:
                chosen.add((a, b))
                at.update((a, b))
                parts.union(a, b)
    return frozenset(chosen) if len({parts[die] for die in topology.live}) == 1 else frozenset()


def _walk(topology: Topology, size: int, limit: float) -> frozenset[Hop]:
    """The links of a ring through so many dies, or of a path; empty where none was found."""
    for closed in (True, False):
        spec = RegionSpec(size, 1, closed)
        found = find_regions(topology, spec, seed=0, tries=_TRIES, limit=limit).walks
        if found is not None:
            walk = found[0]
            ends = ((walk[-1], walk[0]),) if closed and size > 2 else ()
            return frozenset((min(hop), max(hop)) for hop in (*pairwise(walk), *ends))
    return frozenset()


def exchanged(topology: Topology, shape: Shape, dies: Sequence[int]) -> dict[Hop, float]:
    """What passes over each link (a, b), a < b, where consecutive peers of all groups, by logical index, exchange their
    axis's weight along the row and the column between them."""
    placed, carried = np.array(dies), defaultdict[Hop, float](float)
    for i, axis in enumerate(shape):
        for pairs, weight in (
            (axis_pairs(shape, i), axis.weight),
            (closing_pairs(shape, i), (axis.closing - 1) * axis.weight),
        ):
            for a, b in placed[pairs].tolist():
                path = topology.xy_or_shortest(a, b)
                assert path is not None, "all dies lie on one island"
                for hop in pairwise(path):
                    carried[min(hop), max(hop)] += weight
    return carried


def _scaled(carried: Mapping[Hop, float]) -> dict[Hop, int]:
    """Whole weights, in parts of the heaviest."""
    most = max(carried.values(), default=0.0)
    return {
        hop: max(1, round(_PARTS * weight / most)) for hop, weight in carried.items() if weight > 1e-9 * most
    }


def _refusal(free: Wafer, shape: Shape, placement: Placement) -> CompileError:
    """The error where no choice was found, with the fewest links at a die for which one was."""
    assert free.circuits is not None
    for up in range(free.circuits.up + 1, free.circuits.of + 1):
        more = replace(free, circuits=replace(free.circuits, up=up))
        if _set(more, shape, placement) or _set_on_a_walk(more, shape):
            return not_joined(mesh_topology(free), shape, free.circuits, up)
    raise AssertionError("all links together join the dies of a placement")
