"""Choice of the algorithm of each reshard, by estimated seconds on the links of the wafer.

Algorithms are gather plans; reductions run them backwards. All groups of an axis take the same plan by position, so
that replicas in different groups add the same parts in the same order.

A reshard that stands alone in its procedure can be timed as it will be: where estimates do not tell what is fastest, it
is rehearsed, so that none takes longer than its ring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import inf, prod
from typing import Final, TypeVar

from wscc.analysis.cost import Rates
from wscc.analysis.gather_plan import chain, direct, ring
from wscc.analysis.memory.fits import arrays_fit_sram
from wscc.ir.logical_mesh import LogicalMesh
from wscc.ir.module import Module
from wscc.machine.corner import topology_of
from wscc.machine.topology import Topology
from wscc.passes.lower_collectives.algorithm import (
    Algorithm,
    Lone,
    Paths,
    Reduction,
    Rehearse,
    crossings,
)
from wscc.passes.lower_collectives.relays import Relays
from wscc.passes.lower_collectives.trees import SMALL, Trees

# In larger groups nobody sends to all others: messages, and the time to price them, grow with the square of the dies.
_MOST_DIRECT: Final = 64
# Estimates so near to each other count as equal: where one has fewer rounds, of reshards in flight with others; where
# one has fewer pieces.
_NEARLY: Final = 1.1
_EQUAL: Final = 1.02
# How many times as fast relays have to be where another plan has fewer rounds, in groups that are not small, and
# where a third of the time is latency, which other reshards in flight hide: by so much they are slower among other
# work, and where a die waits for one piece while it has another, as measured.
_AWAIT: Final = 4 / 3
_SMALL: Final = 4
# How many times as long as another a reshard is estimated to take where it surely takes longer: sums over rounds leave
# out that messages of several hops wait for one another, and that they overlap those of the next round; and where the
# other's go between neighbours, of which they say all but that `schedule` lets some go earlier.
_SURELY: Final = 3.0
_SURELY_NEAR: Final = 1.13
# Messages from each die to all others of its group, of all groups, up to which reshards are rehearsed.
_MOST_REHEARSED: Final = 1 << 15
# Reshards that are in flight together, at most: they wait for their latency at the same time, and for the links in
# turn.
_IN_FLIGHT: Final = 4

Choice = TypeVar("Choice", Algorithm, Reduction)


@dataclass(frozen=True)
class Algorithms:
    """The algorithms for the reshards of a module whose dies are placed.

    `allgather`: with `auto`, each reshard takes the algorithm of least estimated time. With `ring`, all go from
    neighbour to neighbour. With `multicast`, gathers go from each die to all others at once. `fast_bytes`: what the
    parts of all dies may take that a reduction gathers. `in_flight`: the number of equal reshards that share the links.
    `relay`: whether relays are looked for, which takes milliseconds for each size. `rehearse` times a reshard that is
    alone; without it, estimates decide.
    """

    module: Module
    allgather: str
    fast_bytes: int
    in_flight: int = _IN_FLIGHT
    relay: bool = True
    rehearse: Rehearse | None = None
    _by_axis: dict[str, tuple[Algorithm, ...]] = field(default_factory=dict, repr=False, compare=False)
    _relays: dict[str, Relays] = field(default_factory=dict, repr=False, compare=False)
    _trees: dict[str, Trees | None] = field(default_factory=dict, repr=False, compare=False)
    _together: dict[int, Algorithms] = field(default_factory=dict, repr=False, compare=False)
    _alone: dict[Lone, int] = field(default_factory=dict, repr=False, compare=False)

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
        chosen = self._gather(axis, shard, shape)
        return self._no_slower("all_gather", axis, shard, shape, chosen)

    def scatter(self, axis: str, shard: int, shape: tuple[int, ...] = ()) -> Algorithm:
        """The algorithm, run backwards, of a reduce_scatter to shards of so many bytes, as in `gather`."""
        chosen = self._scatter(axis, shard, shape)
        return self._no_slower("reduce_scatter", axis, shard, shape, chosen)

    def reduction(self, axis: str, elements: int, element: int) -> Reduction:
        """The algorithms of an all_reduce of so many elements, each of `element` bytes.

        Small ones gather the parts; large ones are a reduce_scatter, then an all_gather (R. Rabenseifner, "Optimization
        of Collective Reduction Operations", ICCS 2004), which shards of equal size are needed for.
        """
        plain = self._reduction(axis, elements, element)
        along = self._along_trees(plain, axis, elements, element)
        if not self._rehearses:
            return along
        return self._fastest_of(
            Lone("all_reduce", axis, (elements,), element),
            [along, plain, self._in_rings._reduction(axis, elements, element)],
            lambda r: self._counted(r, elements, element),
            lambda r: self._sums(r, elements * element),
        )

    def _gather(self, axis: str, shard: int, shape: tuple[int, ...]) -> Algorithm:
        candidates = self._candidates(axis)
        if self.allgather == "auto":
            return self._fastest(candidates, partial(self._relayed, axis, shard, shape, False), shard)
        return replace(candidates[-1], replicated=True) if self.allgather == "multicast" else candidates[0]

    def _scatter(self, axis: str, shard: int, shape: tuple[int, ...]) -> Algorithm:
        candidates = self._candidates(axis)
        if self.allgather == "ring":
            return candidates[0]
        return self._fastest(candidates, partial(self._relayed, axis, shard, shape, True), shard)

    def _reduction(self, axis: str, elements: int, element: int) -> Reduction:
        """That of `reduction` without trees, by estimate."""
        dies, whole = LogicalMesh(self.module.axes).sizes[axis], elements * element
        in_one = Reduction(None, self._gather(axis, whole, (elements,)))
        if elements % dies:
            return in_one
        shard, shape = whole // dies, (elements // dies,)
        in_two = Reduction(self._scatter(axis, shard, shape), self._gather(axis, shard, shape))
        # Either way relays have to be worth their rounds.
        one, two = (self._counted(r, elements, element, _AWAIT) for r in (in_one, in_two))
        return in_two if dies * whole > self.fast_bytes or two < one else in_one

    def _counted(self, r: Reduction, elements: int, element: int, awaited: float = 1.0) -> float:
        """Estimated seconds of an all_reduce, `awaited` times as many along relays."""
        whole = elements * element
        if r.trees is not None:
            return r.trees.seconds
        if r.scatter is None:
            steps, shard = [r.gather], whole
        else:
            steps, shard = [r.scatter, r.gather], whole // r.gather.plan.size
        seconds = sum(self._seconds(a, shard) for a in steps) + self._sums(r, whole)
        return seconds * (awaited if any(a.timed is not None for a in steps) else 1)

    def _sums(self, r: Reduction, whole: int) -> float:
        """Seconds in memory of an all_reduce: bytes read and written of messages at both ends, of sums, and for parts
        of the copy of the own one."""
        dies = r.gather.plan.size
        return self._in_memory(
            (5 * dies - 3) * whole if r.scatter is None else 7 * (dies - 1) * whole // dies
        )

    # -- reshards that are alone ---------------------------------------------------------------------------

    @property
    def _rehearses(self) -> bool:
        return self.rehearse is not None and self.in_flight == 1 and self.allgather == "auto"

    @cached_property
    def _in_rings(self) -> Algorithms:
        return replace(self, allgather="ring")

    def _no_slower(
        self, kind: str, axis: str, shard: int, shape: tuple[int, ...], chosen: Algorithm
    ) -> Algorithm:
        """A gather or a scatter of this `kind` as `chosen` by estimate, or round the ring where that takes less."""
        if not (shape and self._rehearses):
            return chosen
        lone = Lone(kind, axis, shape, shard // prod(shape))
        nominees = [chosen, self.neighbours(axis)]
        return self._fastest_of(lone, nominees, lambda a: self._seconds(a, shard), lambda _: 0.0)

    def _fastest_of(
        self,
        lone: Lone,
        nominees: Sequence[Choice],
        estimated: Callable[[Choice], float],
        in_memory: Callable[[Choice], float],
    ) -> Choice:
        """The fastest of some algorithms, of which the first is that by estimate, the last the ring: they are rehearsed
        where estimates do not tell. Where that would take too long, the ring."""
        first, ring, neighbours = nominees[0], nominees[-1], self.neighbours(lone.axis)
        if first == ring:
            return ring
        seem = list(map(estimated, nominees))
        if self.module.dies_used * neighbours.plan.size > _MOST_REHEARSED:
            surely = _SURELY_NEAR if neighbours.one_hop else _SURELY
            return ring if seem[-1] < surely * min(seem) else first
        most = inf if self._may_spill(lone) else _SURELY * min(seem)
        likely = [n for n, s in enumerate(seem) if s < most and nominees[n] not in nominees[:n]]
        if len(likely) == 1:
            return nominees[likely[0]]
        if lone not in self._alone:
            assert self.rehearse is not None
            # What lies in HBM beside the other arrays has room in SRAM where it is alone.
            elsewhere = not self._in_sram and lone.bytes(neighbours.plan.size) <= self.module.die.sram
            times = [
                self.rehearse(lone, nominees[n]) + (in_memory(nominees[n]) if elsewhere else 0.0)
                for n in likely
            ]
            self._alone[lone] = likely[times.index(min(times))]
        return nominees[self._alone[lone]]

    def _may_spill(self, lone: Lone) -> bool:
        """Whether HBM may take time, which estimates of links leave out: of the arrays, or of parts of all dies."""
        dies = self.neighbours(lone.axis).plan.size
        return not self._in_sram or dies * lone.bytes(dies) > self.module.die.sram

    # -- estimates ----------------------------------------------------------------------------------------

    def _along_trees(self, plain: Reduction, axis: str, elements: int, element: int) -> Reduction:
        """An all_reduce along trees, or `plain` if they hardly gain. Where arrays are in HBM, its port is busier than
        links are; a gather of whole parts brings each die many only in a large group."""
        if self.allgather != "auto" or not self.relay or not self._in_sram:
            return plain
        if plain.scatter is None and plain.gather.plan.size <= SMALL:
            return plain
        trees, together = self._trees_of(axis), elements * element * self.in_flight
        most = self._counted(plain, elements, element) / (_EQUAL if self.in_flight == 1 else _AWAIT)
        if trees is None or trees.least(together) > most:
            return plain
        best = min(trees.plans(together, elements, self.in_flight), key=lambda t: t.seconds, default=None)
        return plain if best is None or best.seconds > most else replace(plain, trees=best)

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
        """Of those that are nearly as fast as any, that of the fewest rounds; of a reshard that is alone, the
        fastest."""
        seconds = [self._seconds(a, shard) for a in candidates]
        near = _NEARLY if self.in_flight > 1 else 1
        nearly = [i for i, s in enumerate(seconds) if s <= min(seconds) * near]
        return candidates[min(nearly, key=lambda i: (len(candidates[i].rounds), seconds[i]))]

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
        paths = Paths(topology, groups)
        neighbours = self._between_neighbours(paths, size)
        return [*neighbours, paths.algorithm(direct(size))] if self._sends_to_all(size) else neighbours

    def _between_neighbours(self, paths: Paths, size: int) -> list[Algorithm]:
        in_rings = paths.algorithm(ring(size))
        if in_rings.one_hop:  # a chain takes twice the rounds, with as much on the fullest link of each
            return [in_rings]
        in_chains = paths.algorithm(chain(size))
        return [in_chains, in_rings] if in_chains.one_hop else sorted([in_rings, in_chains], key=crossings)

    def _sends_to_all(self, size: int) -> bool:
        return size <= _MOST_DIRECT or self.allgather == "multicast"
