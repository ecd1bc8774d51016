"""Patterns of damage: dead dies or links, anywhere or in clusters, from a seed.

Defects of silicon cluster (Stapper, IBM J. Res. Dev. 27 (1983)). The damage of a seed grows with its rate: what is
dead at one rate is dead at every higher one, so that rates can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from random import Random
from typing import Final, TypeVar

from wscc.machine.topology import Topology, mesh_topology
from wscc.machine.wafer import Wafer, dead_link

T = TypeVar("T", bound=Hashable)

# How often the next defect of a cluster lies beside one that is there.
_CLUSTERED: Final = 0.9

KINDS: Final = ("random dies", "clustered dies", "random links", "clustered links")


def damaged(wafer: Wafer, kind: str, rate: float, seed: int) -> Wafer:
    """The wafer with that share of its live dies or links dead too; one die stays alive."""
    if kind.endswith("dies"):
        order = _dies(wafer, kind, seed)
        dead = min(round(rate * len(order)), len(order) - 1)
        return replace(wafer, dead_dies=wafer.dead_dies | {wafer.coordinate(d) for d in order[:dead]})
    links = _links(wafer, kind, seed)
    cut = (dead_link(wafer.coordinate(a), wafer.coordinate(b)) for a, b in links[: round(rate * len(links))])
    return replace(wafer, dead_links=wafer.dead_links | frozenset(cut))


@lru_cache(maxsize=64)
def _dies(wafer: Wafer, kind: str, seed: int) -> list[int]:
    """All live dies in the order in which they die."""
    topology = mesh_topology(wafer)
    return _order(list(topology.live), lambda d: topology.neighbours[d], kind, seed)


@lru_cache(maxsize=64)
def _links(wafer: Wafer, kind: str, seed: int) -> list[tuple[int, int]]:
    """All live links, by the lower end first, in the order in which they die; beside a link are those that
    share a die with it."""
    topology = mesh_topology(wafer)
    return _order([(a, b) for a, b in topology.links if a < b], lambda k: _beside(topology, k), kind, seed)


def _beside(topology: Topology, link: tuple[int, int]) -> list[tuple[int, int]]:
    return [
        (min(end, n), max(end, n)) for end in link for n in topology.neighbours[end] if {end, n} != set(link)
    ]


def _order(items: Sequence[T], beside: Callable[[T], Iterable[T]], kind: str, seed: int) -> list[T]:
    random = Random(f"{kind} {seed}")
    anywhere = random.sample(items, len(items))
    if kind.startswith("random"):
        return anywhere
    order: dict[T, None] = {}
    edge: list[T] = []
    left = iter(anywhere)
    while len(order) < len(items):
        near = edge.pop(int(random.random() * len(edge))) if edge and random.random() < _CLUSTERED else None
        item = near if near is not None else next(i for i in left if i not in order)
        if item not in order:
            order[item] = None
            edge += [n for n in beside(item) if n not in order]
    return list(order)
