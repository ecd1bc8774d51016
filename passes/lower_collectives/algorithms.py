"""Choice of the algorithm of each reshard, by estimated seconds on the links of the wafer.

Algorithms are gather plans; reductions run them backwards. All groups of an axis take the same plan by position, so
that replicas in different groups add the same parts in the same order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Final, TypeAlias

from wscc.analysis.cost import LinkRates, Rates
from wscc.analysis.gather_plan import GatherPlan, Move, Part, chain, direct, ring
from wscc.analysis.memory.fits import arrays_fit_sram
from wscc.ir.logical_mesh import LogicalMesh
from wscc.ir.module import Module
from wscc.ir.per_die import NOBODY
from wscc.machine.corner import topology_of
from wscc.machine.topology import Topology
from wscc.passes.lower_collectives.relays import Relays
from wscc.passes.lower_collectives.trees import SMALL, TreePlan, Trees
from wscc.routing.live_paths import live_path

# In larger groups nobody sends to all others: messages, and the time to price them, grow with the square of the dies.
_MOST_DIRECT: Final = 64
# Estimates so near to each other count as equal: where one has fewer rounds, of reshards in flight with others; where
# one is alone; where one has fewer pieces.
_NEARLY: Final = 1.1
_ALONE: Final = 1 + 1e-9
_EQUAL: Final = 1.02
# How many times as fast relays have to be where another plan has fewer rounds, in groups that are not small, and
# where a third of the time is latency, which other reshards in flight hide: by so much they are slower among other
# work, and where a die waits for one piece while it has another, as measured.
_AWAIT: Final = 4 / 3
_SMALL: Final = 4
# How many times as fast trees of a reshard that is alone have to be: `schedule` lets messages go earlier than they were
# timed, and others then wait. On 3 x 4 and 2 x 5 dies, where large ones seem to gain a tenth, they lose 6 %.
_REORDERED: Final = 1.13
# Latencies for which a link is hardly busy.
_HARDLY: Final = 40
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

    def busiest(self, shard: int, rates: LinkRates[float]) -> float:
        """Seconds for which a round keeps its fullest link busy, at most."""
        return rates.busy(shard) * max(shards for _, shards in self.rounds)


@dataclass(frozen=True, slots=True)
class Reduction:
    """The algorithms of an all_reduce: a reduce_scatter, then an all_gather; without a `scatter`, the gather brings the
    whole parts of all dies to each, which adds them. With `trees`, it goes along those instead."""

    scatter: Algorithm | None
    gather: Algorithm
    trees: TreePlan | None = None


@dataclass(frozen=True)
class Algorithms:
    """The algorithms for the reshards of a module whose dies are placed.

    `allgather`: with `auto`, each reshard takes the algorithm of least estimated time. With `ring`, all go from
    neighbour to neighbour. With `multicast`, gathers go from each die to all others at once. `fast_bytes`: what the
    parts of all dies may take that a reduction gathers. `in_flight`: the number of equal reshards that share the links.
    `relay`: whether relays are looked for, which takes milliseconds for each size.
    """

    module: Module
    allgather: str
    fast_bytes: int
    in_flight: int = _IN_FLIGHT
    relay: bool = True
    _by_axis: dict[str, tuple[Algorithm, ...]] = field(default_factory=dict, repr=False, compare=False)
    _relays: dict[str, Relays] = field(default_factory=dict, repr=False, compare=False)
    _trees: dict[str, Trees | None] = field(default_factory=dict, repr=False, compare=False)
    _together: dict[int, Algorithms] = field(default_factory=dict, repr=False, compare=False)

    def together(self, count: int) -> Algorithms:
        """The same where `count` such reshards may be in flight together."""
        count = min(count, _IN_FLIGHT)
        if count not in self._together:
            self._together[count] = replace(self, in_flight=count)
        return self._together[count]

    def neighbours(self, axis: str) -> Algorithm:
        """From neighbour to neighbour: on a closed ring, a chain, or a ring over several hops where peers are apart."""
        return self._candidates(axis)[0]

    def gather(self, axis: str, shard: int, shape: tuple[int, ...] = ()) -> Algorithm:
        """The algorithm of an all_gather of shards of so many bytes; along relays only where a `shape` says how they
        can be cut."""
        candidates = self._candidates(axis)
        if self.allgather == "auto":
            return self._fastest(candidates, partial(self._relayed, axis, shard, shape, False), shard)
        return replace(candidates[-1], replicated=True) if self.allgather == "multicast" else candidates[0]

    def scatter(self, axis: str, shard: int, shape: tuple[int, ...] = ()) -> Algorithm:
        """The algorithm, run backwards, of a reduce_scatter to shards of so many bytes, as in `gather`."""
        candidates = self._candidates(axis)
        if self.allgather == "ring":
            return candidates[0]
        return self._fastest(candidates, partial(self._relayed, axis, shard, shape, True), shard)

    def reduction(self, axis: str, elements: int, element: int) -> Reduction:
        """The algorithms of an all_reduce of so many elements, each of `element` bytes.

        Small ones gather the parts; large ones are a reduce_scatter, then an all_gather (R. Rabenseifner, "Optimization
        of Collective Reduction Operations", ICCS 2004), which shards of equal size are needed for.
        """
        dies, whole = LogicalMesh(self.module.axes).sizes[axis], elements * element
        parts = self.gather(axis, whole, (elements,))
        if elements % dies:
            return self._of_parts(parts, axis, elements, whole)
        shard = whole // dies
        shape = (elements // dies,)
        scatter, gather = self.scatter(axis, shard, shape), self.gather(axis, shard, shape)
        # Bytes read and written: messages at both ends, sums, and for parts the copy of the own one.
        in_one = self._seconds(parts, whole) + self._in_memory((5 * dies - 3) * whole)
        in_two = self._seconds(scatter, shard) + self._seconds(gather, shard)
        in_two += self._in_memory(7 * (dies - 1) * shard)
        trees = partial(self._along_trees, axis, elements, whole, in_two)
        # Either way relays have to be worth their rounds.
        in_one *= _AWAIT if parts.timed is not None else 1
        in_two *= _AWAIT if scatter.timed is not None or gather.timed is not None else 1
        if dies * whole > self.fast_bytes or in_two < in_one:
            return Reduction(scatter, gather, trees())
        return self._of_parts(parts, axis, elements, whole)

    def _of_parts(self, parts: Algorithm, axis: str, elements: int, whole: int) -> Reduction:
        """The gather of whole parts. In a large group, where it brings each die many, trees if they take less."""
        if parts.plan.size <= SMALL:
            return Reduction(None, parts)
        return Reduction(None, parts, self._along_trees(axis, elements, whole, self._seconds(parts, whole)))

    def _along_trees(self, axis: str, elements: int, whole: int, other: float) -> TreePlan | None:
        """The trees of an all_reduce of so many bytes that takes `other` seconds without them; None if that is hardly
        more. Where arrays are in HBM there are none: its port is busier than links are."""
        if self.allgather != "auto" or not self.relay or not self._in_sram:
            return None
        trees, together = self._trees_of(axis), whole * self.in_flight
        most = other / (_REORDERED if self.in_flight == 1 else _AWAIT)
        if trees is None or trees.least(together) > most:
            return None
        best = min(trees.plans(together, elements, self.in_flight), key=lambda t: t.seconds, default=None)
        return best if best is not None and best.seconds <= most else None

    def _trees_of(self, axis: str) -> Trees | None:
        """The packed trees of the groups of an axis; None where they are not joined by links of their own."""
        if axis not in self._trees:
            relays = self._relays_of(axis)
            self._trees[axis] = Trees(relays.common, relays.model) if relays.common else None
        return self._trees[axis]

    def _relays_of(self, axis: str) -> Relays:
        if axis not in self._relays:
            groups, topology = self._groups(axis)
            self._relays[axis] = Relays(topology, groups, self._rates.link)
        return self._relays[axis]

    @cached_property
    def _rates(self) -> Rates[float]:
        return Rates.of(self.module.machine, self.module.die)

    @cached_property
    def _in_sram(self) -> bool:
        return arrays_fit_sram(self.module)

    def _in_memory(self, amount: int) -> float:
        """Seconds to read and write so many bytes where arrays lie: none in SRAM."""
        return 0.0 if self._in_sram else self._rates.die.hbm(amount)

    def _seconds(self, algorithm: Algorithm, shard: int) -> float:
        return algorithm.seconds(self.in_flight * shard, self._rates.link)

    def _fastest(
        self, candidates: tuple[Algorithm, ...], relays: Callable[[float], Iterable[Algorithm]], shard: int
    ) -> Algorithm:
        """The one of the fewest rounds of those that are nearly as fast as any, since each waits for its die; relays
        only where they gain more than that."""
        usual = self._usual(candidates, shard)
        found, worth = None, self._seconds(usual, shard)
        for a in relays(worth / (_EQUAL if usual.plan.size <= _SMALL else _AWAIT)):
            if found is not None and self._seconds(a, shard) * _EQUAL > self._seconds(found, shard):
                break
            found = a
        gains = found is not None and self._seconds(found, shard) * self._worth(found, usual, shard) <= worth
        return found if found is not None and gains else usual

    def _worth(self, relays: Algorithm, usual: Algorithm, shard: int) -> float:
        """How many times as fast relays have to be."""
        late = sum(hops for hops, _ in usual.rounds) * self._rates.link.latency
        is_hidden = self.in_flight > 1 and 3 * late > self._seconds(usual, shard)
        is_small = relays.plan.size <= _SMALL and len(relays.plan.rounds) <= len(usual.plan.rounds)
        return _EQUAL if is_small and not is_hidden else _AWAIT

    def _usual(self, candidates: Sequence[Algorithm], shard: int) -> Algorithm:
        """Of those that are nearly as fast as any, that of the fewest rounds; of a reshard that is alone, one between
        neighbours where links are busy for long, for messages of several hops wait for those of others."""
        seconds = [self._seconds(a, shard) for a in candidates]
        busy = _HARDLY * self._rates.link.latency

        def order(i: int) -> tuple[bool, int, float]:
            a = candidates[i]
            waits = self.in_flight == 1 and not a.one_hop and a.busiest(shard, self._rates.link) > busy
            # In fewer rounds, more of them wait for one another.
            return waits, -len(a.rounds) if waits else len(a.rounds), seconds[i]

        near = _NEARLY if self.in_flight > 1 else _ALONE
        nearly = [i for i, s in enumerate(seconds) if s <= min(seconds) * near]
        return candidates[min(nearly, key=order)]

    def _relayed(
        self, axis: str, shard: int, shape: tuple[int, ...], backwards: bool, most: float
    ) -> Iterator[Algorithm]:
        """The algorithms along relays, in ever more pieces, timed for as many as are in flight together; none if none
        can take at most `most` seconds."""
        if not (self.relay and shape):
            return
        relays, together = self._relays_of(axis), shard * self.in_flight
        if relays.least(together) <= most:
            for found in relays.plans(together, shape, backwards=backwards, gain=_EQUAL):
                rounds = ((1.0, 1.0),) * len(found.plan.rounds)
                yield Algorithm(found.plan, rounds, one_hop=True, timed=found.seconds)

    def _groups(self, axis: str) -> tuple[list[list[int]], Topology]:
        groups = [[self.module.dies[i] for i in g] for g in LogicalMesh(self.module.axes).groups(axis)]
        return groups, topology_of(self.module.machine, self.module.dies)

    def _candidates(self, axis: str) -> tuple[Algorithm, ...]:
        """The algorithms along an axis, first the one between neighbours, last the one from each die to all others."""
        if axis not in self._by_axis:
            self._by_axis[axis] = tuple(self._new_candidates(axis))
        return self._by_axis[axis]

    def _new_candidates(self, axis: str) -> list[Algorithm]:
        groups, topology = self._groups(axis)
        size = len(groups[0])
        paths = _Paths(topology, groups)
        neighbours = self._between_neighbours(paths, size)
        return [*neighbours, paths.algorithm(direct(size))] if self._sends_to_all(size) else neighbours

    def _between_neighbours(self, paths: _Paths, size: int) -> list[Algorithm]:
        in_rings = paths.algorithm(ring(size))
        if in_rings.one_hop:  # a chain takes twice the rounds, with as much on the fullest link of each
            return [in_rings]
        in_chains = paths.algorithm(chain(size))
        return [in_chains, in_rings] if in_chains.one_hop else sorted([in_rings, in_chains], key=_cost)

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
