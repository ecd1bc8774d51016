"""Patterns of damage: dead dies or links, at random or in clusters, and dead cores of dies, from a seed.

Defects of silicon cluster (Stapper, IBM J. Res. Dev. 27 (1983)). The damage of a seed grows with its rate: dies and
links dead at one rate are dead at every higher one, so that rates can be compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from random import Random
from typing import Final, TypeVar

from wscc.machine.topology import Topology, mesh_topology, neighbour_topology
from wscc.machine.wafer import Wafer, dead_link

T = TypeVar("T", bound=Hashable)

# Probability that the next defect of a cluster is beside an earlier one.
_CLUSTERED: Final = 0.9

# Cores of a die, each with an equal share of its peak.
CORES: Final = 64

KINDS: Final = ("random dies", "clustered dies", "random links", "clustered links", "random cores")


def damaged(wafer: Wafer, kind: str, rate: float, seed: int) -> Wafer:
    """The wafer with the share `rate` of its live dies or links dead too, or of the cores of its live dies, by `kind`
    of `KINDS`; one die stays alive, and a core of each."""
    if kind.endswith("cores"):
        return _with_less_peak(wafer, rate, seed)
    if kind.endswith("dies"):
        order = _dies(wafer, kind, seed)
        dead = min(round(rate * len(order)), len(order) - 1)
        return replace(wafer, dead_dies=wafer.dead_dies | {wafer.coordinate(d) for d in order[:dead]})
    links = _links(wafer, kind, seed)
    cut = (dead_link(wafer.coordinate(a), wafer.coordinate(b)) for a, b in links[: round(rate * len(links))])
    return replace(wafer, dead_links=wafer.dead_links | frozenset(cut))


def _with_less_peak(wafer: Wafer, rate: float, seed: int) -> Wafer:
    """Every live die with the peak of the cores that are left of it."""
    dies = mesh_topology(wafer).live
    cores = [d for d in dies for _ in range(CORES)]
    dead = Counter(Random(f"cores {seed}").sample(cores, len(cores))[: round(rate * len(cores))])
    changed = dict(wafer.unlike)
    for number, lost in dead.items():
        die, left = wafer.die_at(number), CORES - min(lost, CORES - 1)
        changed[wafer.coordinate(number)] = die.with_cores(left, CORES)
    return replace(wafer, unlike=tuple(sorted(changed.items())))


@lru_cache(maxsize=64)
def _dies(wafer: Wafer, kind: str, seed: int) -> list[int]:
    """All live dies in the order in which they die."""
    topology = neighbour_topology(wafer)
    return _order(list(topology.live), lambda d: topology.neighbours[d], kind, seed)


@lru_cache(maxsize=64)
def _links(wafer: Wafer, kind: str, seed: int) -> list[tuple[int, int]]:
    """All live links between dies, as pairs with the lower end first, in the order in which they die."""
    topology = mesh_topology(wafer)
    return _order(
        [(a, b) for a, b in topology.links if a < b < wafer.dies],
        lambda k: _adjacent_links(topology, k),
        kind,
        seed,
    )


def _adjacent_links(topology: Topology, link: tuple[int, int]) -> list[tuple[int, int]]:
    """The links that share a die with `link`."""
    return [
        (min(end, n), max(end, n)) for end in link for n in topology.neighbours[end] if {end, n} != set(link)
    ]


def _order(items: Sequence[T], neighbours: Callable[[T], Iterable[T]], kind: str, seed: int) -> list[T]:
    """The items in the order in which they die: random, or mostly next to an earlier one."""
    random = Random(f"{kind} {seed}")
    shuffled = random.sample(items, len(items))
    if kind.startswith("random"):
        return shuffled
    order: dict[T, None] = {}
    frontier: list[T] = []
    remaining = iter(shuffled)
    while len(order) < len(items):
        if frontier and random.random() < _CLUSTERED:
            item = frontier.pop(int(random.random() * len(frontier)))
        else:
            item = next(i for i in remaining if i not in order)
        if item not in order:
            order[item] = None
            frontier += [n for n in neighbours(item) if n not in order]
    return list(order)
