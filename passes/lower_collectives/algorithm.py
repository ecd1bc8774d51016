"""Algorithms of reshards: gather plans on all groups of an axis at once, over the initial routes between their dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import TypeAlias

from wscc.analysis.cost import LinkRates
from wscc.analysis.gather_plan import GatherPlan, Move, Part
from wscc.ir.per_die import NOBODY
from wscc.machine.topology import Topology
from wscc.passes.lower_collectives.trees import TreePlan
from wscc.routing.live_paths import live_path

# Of each move of a round, where the positions send to, and twice the shards that a message carries.
_Ends: TypeAlias = tuple[tuple[tuple[int, ...], int], ...]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A gather plan on all groups of an axis at once. `rounds`: of each round the hops of the farthest message, and the
    shards that the fullest link carries, on initial routes; a link between wafers counts in both by how much slower it
    is. `one_hop`: all messages go to neighbours. `replicated`: routers may replicate what a die sends to several
    others. `timed`: the seconds of relays, which are for shards of one size and direction."""

    plan: GatherPlan
    rounds: tuple[tuple[float, float], ...]
    one_hop: bool
    replicated: bool = False
    timed: float | None = None

    def seconds(self, shard: int, rates: LinkRates[float]) -> float:
        """Estimated seconds for shards of so many bytes: in each round the latency of the farthest message, and the
        bytes on the fullest link. Left out are memories, and whatever else is on the links."""
        if self.timed is not None:
            return self.timed
        on_link = rates.busy(rates.times().on_link(shard))
        return sum(hops * rates.latency + shards * on_link for hops, shards in self.rounds)


@dataclass(frozen=True, slots=True)
class Reduction:
    """The algorithms of an all_reduce: a reduce_scatter, then an all_gather; without a `scatter`, the gather brings the
    whole parts of all dies to each, which adds them. With `trees`, it goes along those instead."""

    scatter: Algorithm | None
    gather: Algorithm
    trees: TreePlan | None = None


@dataclass(frozen=True, slots=True)
class Lone:
    """A reshard that stands alone in its procedure. `shape`: that of a shard of a gather or a scatter, and of the whole
    of an `all_reduce`, of elements of so many bytes."""

    kind: str
    axis: str
    shape: tuple[int, ...]
    element: int

    def bytes(self, dies: int) -> int:
        """Bytes of what is read and written on each of so many dies."""
        return (2 if self.kind == "all_reduce" else dies + 1) * prod(self.shape) * self.element


# Seconds that a reshard takes on links by an algorithm.
Rehearse: TypeAlias = Callable[[Lone, Algorithm | Reduction], float]


def crossings(algorithm: Algorithm) -> float:
    """Latencies that a plan takes with shards that a link carries in one."""
    return sum(hops + shards for hops, shards in algorithm.rounds)


@dataclass(frozen=True)
class Paths:
    """The initial routes between the dies of groups, each listed in order of position."""

    topology: Topology
    groups: list[list[int]]
    _known: dict[_Ends, tuple[int, float, float]] = field(default_factory=dict)

    def algorithm(self, plan: GatherPlan) -> Algorithm:
        """The algorithm of a gather plan on all groups at once."""
        rounds = [self._round(moves) for moves in plan.rounds]
        return Algorithm(plan, tuple(r[1:] for r in rounds), all(links == 1 for links, _, _ in rounds))

    def _round(self, moves: tuple[Move, ...]) -> tuple[int, float, float]:
        """The most links of a message, the hops that those of one count for, and the shards on the fullest link; the
        same for all rounds of a ring but for the last."""
        ends = tuple((m.to, 2 if m.part is Part.WHOLE else 1) for m in moves)
        if ends not in self._known:
            self._known[ends] = self._measured(ends)
        return self._known[ends]

    def _measured(self, moves: _Ends) -> tuple[int, float, float]:
        links, hops, shards, slow = 0, 0.0, Counter[tuple[int, int]](), self.topology.slowness
        for to, weight in moves:
            for group in self.groups:
                for source, q in zip(group, to, strict=True):
                    if q != NOBODY:
                        path = live_path(self.topology, source, group[q])
                        links = max(links, len(path) - 1)
                        taken = [*pairwise(path)]
                        late = sum(slow[hop].latency - 1 for hop in taken if hop in slow) if slow else 0
                        hops = max(hops, len(taken) + late)
                        for hop in taken:
                            shards[hop] += weight
        most = max(n * slow[hop].byte if hop in slow else n for hop, n in shards.items())
        return links, hops, most / 2
