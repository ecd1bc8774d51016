"""Choice of the algorithm of each reshard, by seconds on the links of the wafer.

Algorithms are gather plans; reductions run them backwards. All groups of an axis take the same plan by position, so
that replicas in different groups add the same parts in the same order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from math import inf
from typing import Final, TypeAlias

from wscc.analysis.cost import LinkRates, Rates
from wscc.analysis.gather_plan import GatherPlan, Move, Part, chain, direct, ring
from wscc.analysis.memory.fits import arrays_fit_sram
from wscc.ir.logical_mesh import LogicalMesh
from wscc.ir.module import Module
from wscc.ir.per_die import NOBODY
from wscc.machine.corner import topology_of
from wscc.machine.topology import Hop, Topology
from wscc.passes.lower_collectives.message_times import MessageTimes, first_path
from wscc.routing.limits import TREE_LATENCIES

# In larger groups nobody sends to all others: messages, and the time to price them, grow with the square of the dies.
_MOST_DIRECT: Final = 64
# Times so near to each other count as equal.
_NEARLY: Final = 1.01
# Latencies for which a link is hardly busy.
_HARDLY: Final = 0.25
# Bytes that take so small a part of the latency queue for no link that counts.
_LITTLE: Final = 0.02
# Reshards that are in flight together, at most: they wait for their latency at the same time, and for the links in
# turn.
_IN_FLIGHT: Final = 4


# Of each move of a round, where the positions send to, and twice the shards that a message carries.
_Ends: TypeAlias = tuple[tuple[tuple[int, ...], int], ...]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A gather plan on all groups of an axis at once. `rounds`: of each round the hops of the farthest message, and the
    shards that the fullest link carries, on initial routes; a link between wafers counts in both by how much slower it
    is. `one_hop`: all messages go to neighbours. `replicated`: routers may replicate what a die sends to several
    others. `times`: the link model on its routes."""

    plan: GatherPlan
    rounds: tuple[tuple[float, float], ...]
    one_hop: bool
    replicated: bool = False
    times: MessageTimes | None = field(default=None, compare=False, repr=False)

    def seconds(self, shard: int, rates: LinkRates[float], *, backwards: bool = False) -> float:
        """Seconds for shards of so many bytes: by the link model where messages of more than one hop queue for links,
        else in each round the latency of the farthest message, and the bytes on the fullest link. Left out are
        memories, and whatever else is on the links."""
        late = sum(hops for hops, _ in self.rounds) * rates.latency
        on_link = rates.busy(rates.times().on_link(shard)) * sum(shards for _, shards in self.rounds)
        if self.times is None or self.one_hop or on_link < _LITTLE * late:
            return late + on_link
        timed = self.times.seconds(shard, backwards=backwards)
        return late + on_link if timed is None else timed

    def busiest(self, shard: int, rates: LinkRates[float]) -> float:
        """For how many latencies the fullest link of a round is busy, at most."""
        on_link = rates.busy(rates.times().on_link(shard))
        return max(shards for _, shards in self.rounds) * on_link / rates.latency if rates.latency else inf

    def least(self, shard: int, rates: LinkRates[float]) -> float:
        """A lower bound of the seconds."""
        on_link = rates.busy(rates.times().on_link(shard))
        return sum(max(hops * rates.latency + on_link, shards * on_link) for hops, shards in self.rounds)


@dataclass(frozen=True, slots=True)
class Reduction:
    """The algorithms of an all_reduce: a reduce_scatter, then an all_gather; without a `scatter`, the gather brings the
    whole parts of all dies to each, which adds them."""

    scatter: Algorithm | None
    gather: Algorithm


@dataclass(frozen=True)
class Algorithms:
    """The algorithms for the reshards of a module whose dies are placed.

    `allgather`: with `auto`, each reshard takes the algorithm of least estimated time. With `ring`, all go from
    neighbour to neighbour. With `multicast`, gathers go from each die to all others at once. `fast_bytes`: what the
    parts of all dies may take that a reduction gathers. `simulated`: whether times are those of the link model.
    `in_flight`: the number of equal reshards that share the links.
    """

    module: Module
    allgather: str
    fast_bytes: int
    simulated: bool = False
    in_flight: int = _IN_FLIGHT
    _by_axis: dict[str, tuple[Algorithm, ...]] = field(default_factory=dict, repr=False, compare=False)

    def together(self, count: int) -> Algorithms:
        """The same where `count` such reshards may be in flight together."""
        return replace(self, in_flight=min(count, _IN_FLIGHT))

    def neighbours(self, axis: str) -> Algorithm:
        """From neighbour to neighbour: on a closed ring, a chain, or a ring over several hops where peers are apart."""
        return self._candidates(axis)[0]

    def gather(self, axis: str, shard: int, *, alone: bool = True) -> Algorithm:
        """The algorithm of an all_gather of shards of so many bytes. Unless it is `alone` in its phase, as behind a
        reduce_scatter, `route` finds no better trees than the initial ones."""
        candidates = self._candidates(axis)
        if self.allgather != "auto":
            return candidates[-1] if self.allgather == "multicast" else candidates[0]
        trees = alone or self._busiest(candidates[-1], shard) <= TREE_LATENCIES
        return self._fastest(tuple(a for a in candidates if trees or not a.replicated), shard)

    def scatter(self, axis: str, shard: int) -> Algorithm:
        """The algorithm, run backwards, of a reduce_scatter to shards of so many bytes."""
        candidates = tuple(a for a in self._candidates(axis) if not a.replicated)
        if self.allgather == "ring":
            return candidates[0]
        return self._fastest(candidates, shard, backwards=True)

    def reduction(self, axis: str, elements: int, element: int) -> Reduction:
        """The algorithms of an all_reduce of so many elements, each of `element` bytes.

        Small ones gather the parts; large ones are a reduce_scatter, then an all_gather (R. Rabenseifner, "Optimization
        of Collective Reduction Operations", ICCS 2004), which shards of equal size are needed for.
        """
        dies, whole = LogicalMesh(self.module.axes).sizes[axis], elements * element
        parts = self.gather(axis, whole)
        if elements % dies:
            return Reduction(None, parts)
        shard = whole // dies
        scatter, gather = self.scatter(axis, shard), self.gather(axis, shard, alone=False)
        # Bytes read and written: messages at both ends, sums, and for parts the copy of the own one.
        in_one = self._seconds(parts, whole) + self._in_memory((5 * dies - 3) * whole)
        in_two = self._seconds(scatter, shard, backwards=True)
        in_two += self._seconds(gather, shard) + self._in_memory(7 * (dies - 1) * shard)
        if dies * whole > self.fast_bytes or in_two < in_one:
            return Reduction(scatter, gather)
        return Reduction(None, parts)

    @cached_property
    def _rates(self) -> Rates[float]:
        return Rates.of(self.module.machine)

    @cached_property
    def _in_sram(self) -> bool:
        return arrays_fit_sram(self.module)

    def _in_memory(self, amount: int) -> float:
        """Seconds to read and write so many bytes where arrays lie: none in SRAM."""
        return 0.0 if self._in_sram else self._rates.die.hbm(amount)

    def _seconds(self, algorithm: Algorithm, shard: int, *, backwards: bool = False) -> float:
        return algorithm.seconds(self.in_flight * shard, self._rates.link, backwards=backwards)

    def _fastest(
        self, candidates: tuple[Algorithm, ...], shard: int, *, backwards: bool = False
    ) -> Algorithm:
        """Of those that are nearly as fast as any the one between neighbours, or with the fewest rounds where links are
        hardly busy: messages of several hops wait for other links, a relay for its die."""
        least = {a: a.least(self.in_flight * shard, self._rates.link) for a in candidates}
        seconds: dict[Algorithm, float] = {}
        for a in sorted(candidates, key=least.__getitem__):
            if least[a] <= _NEARLY * min(seconds.values(), default=inf):
                seconds[a] = self._seconds(a, shard, backwards=backwards)
        nearly = [a for a in seconds if seconds[a] <= min(seconds.values()) * _NEARLY]

        def order(a: Algorithm) -> tuple[bool, int, bool, float]:
            waits = not a.one_hop and self._busiest(a, shard) > _HARDLY
            return waits, len(a.rounds), a.replicated, seconds[a]

        return min(nearly, key=order)

    def _busiest(self, algorithm: Algorithm, shard: int) -> float:
        return algorithm.busiest(self.in_flight * shard, self._rates.link)

    def _candidates(self, axis: str) -> tuple[Algorithm, ...]:
        """The algorithms along an axis: first the one between neighbours, last those from each die to all others."""
        if axis not in self._by_axis:
            self._by_axis[axis] = tuple(self._new_candidates(axis))
        return self._by_axis[axis]

    def _new_candidates(self, axis: str) -> list[Algorithm]:
        groups = [[self.module.dies[i] for i in g] for g in LogicalMesh(self.module.axes).groups(axis)]
        size, topology = len(groups[0]), topology_of(self.module.machine, self.module.dies)
        rates = Rates.of(self.module.machine) if self.simulated else None
        paths = _Paths(topology, groups, rates)
        to_all = [paths.algorithm(direct(size), replicated=r) for r in (False, True)]
        return [*self._between_neighbours(paths, size), *(to_all if self._sends_to_all(size) else [])]

    def _between_neighbours(self, paths: _Paths, size: int) -> list[Algorithm]:
        in_rings = paths.algorithm(ring(size))
        if in_rings.one_hop:  # a chain takes twice the rounds, with as much on the fullest link of each
            return [in_rings]
        in_chains = paths.algorithm(chain(size))
        return [in_chains] if in_chains.one_hop else sorted([in_rings, in_chains], key=_cost)

    def _sends_to_all(self, size: int) -> bool:
        return size <= _MOST_DIRECT or self.allgather == "multicast"


def _cost(algorithm: Algorithm) -> float:
    """Latencies that a plan takes with shards that a link carries in one."""
    return sum(hops + shards for hops, shards in algorithm.rounds)


@dataclass(frozen=True)
class _Paths:
    """The initial routes between the dies of groups, each listed in order of position."""

    topology: Topology
    groups: list[list[int]]
    rates: Rates[float] | None
    _known: dict[tuple[_Ends, bool], tuple[int, float, float]] = field(default_factory=dict)

    def algorithm(self, plan: GatherPlan, *, replicated: bool = False) -> Algorithm:
        """The algorithm of a gather plan on all groups at once; its times are simulated if rates are given."""
        rounds = [self._round(moves, replicated=replicated) for moves in plan.rounds]
        one_hop = all(links == 1 for links, _, _ in rounds)
        times = None
        if self.rates is not None:
            times = MessageTimes(plan, self.topology, self.groups, self.rates, replicated)
        return Algorithm(plan, tuple(r[1:] for r in rounds), one_hop, replicated, times)

    def _round(self, moves: tuple[Move, ...], *, replicated: bool) -> tuple[int, float, float]:
        """The most links of a message, the hops that those of one count for, and the shards on the fullest link; the
        same for all rounds of a ring but for the last."""
        ends = tuple((m.to, 2 if m.part is Part.WHOLE else 1) for m in moves)
        if (ends, replicated) not in self._known:
            self._known[ends, replicated] = self._measured(ends, replicated)
        return self._known[ends, replicated]

    def _measured(self, moves: _Ends, replicated: bool) -> tuple[int, float, float]:
        links, hops, shards, slow = 0, 0.0, Counter[Hop](), self.topology.slowness
        trees: set[tuple[int, Hop]] = set()
        for to, weight in moves:
            for group in self.groups:
                for source, q in zip(group, to, strict=True):
                    if q != NOBODY:
                        taken = [*pairwise(first_path(self.topology, source, group[q], balanced=replicated))]
                        links = max(links, len(taken))
                        late = sum(slow[hop].latency - 1 for hop in taken if hop in slow) if slow else 0
                        hops = max(hops, len(taken) + late)
                        for hop in taken:
                            if not replicated or (source, hop) not in trees:
                                shards[hop] += weight
                            trees.add((source, hop))
        most = max(n * slow[hop].byte if hop in slow else n for hop, n in shards.items())
        return links, hops, most / 2
