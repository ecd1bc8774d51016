"""Gathers along relays: the plans of `wscc.collectives` for a group of neighbours, whose dies pass on what arrives.

All messages cross one link, so `route` has nothing to do with them and no other group shares their links: their time is
that of the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Final

from wscc.analysis.cost import LinkRates
from wscc.analysis.gather_plan import GatherPlan
from wscc.collectives.matching import Matching
from wscc.collectives.timing import LinkModel
from wscc.machine.topology import Topology
from wscc.passes.lower_collectives.moves import in_order, relayed

# Pieces of a shard: what is relayed begins sooner, and two links share an odd number of shards.
_PIECES: Final = (1, 2, 4, 8)
# Messages of a plan: each is an instruction of its sender.
_MOST_MESSAGES: Final = 2048
_SEEDS: Final = 6
# Smaller groups have one link between two dies.
_LEAST: Final = 3


@dataclass(frozen=True, slots=True)
class Relayed:
    """A gather plan along relays, and its time or, where it is to be run backwards, that of the reduction."""

    plan: GatherPlan
    seconds: float


@dataclass(frozen=True)
class Relays:
    """The relays of groups of dies, each listed in order of position, on a machine whose links are as `rates` says but
    for the slow ones. A link counts where it joins the same positions in every group."""

    topology: Topology
    groups: Sequence[Sequence[int]]
    rates: LinkRates[float]
    _known: dict[tuple[int, int, bool], Relayed] = field(default_factory=dict, repr=False)

    @cached_property
    def common(self) -> Topology | None:
        """The positions as a machine of their own; None where they are not connected."""
        first = self.groups[0]
        positions, at = range(len(first)), {die: p for p, die in enumerate(first)}
        near = (sorted(at[d] for d in self.topology.neighbours[die] if d in at) for die in first)
        joined = tuple(
            tuple(q for q in around if all(self._joins(g[p], g[q]) for g in self.groups))
            for p, around in enumerate(near)
        )
        common = Topology(tuple(positions), joined)
        return common if len(common.islands) == 1 else None

    def _joins(self, a: int, b: int) -> bool:
        return self.topology.are_adjacent(a, b) and (a, b) not in self.topology.slowness

    def least(self, shard: int) -> float:
        """Seconds that any plan takes at least with shards of so many bytes; infinite where there is none."""
        size, common = len(self.groups[0]), self.common
        if common is None or size < _LEAST or size * (size - 1) > _MOST_MESSAGES:
            return inf
        entries = min(len(common.neighbours[p]) for p in common.live)
        on_link = self.rates.busy(shard)
        late = self._farthest * self.rates.latency
        return max(late, self.rates.latency + (size - 1) * on_link / entries)

    @cached_property
    def _farthest(self) -> int:
        """Links between the two positions that are farthest apart."""
        common = self.common
        assert common is not None
        return max(common.distance(a, b) for a in common.live for b in common.live)

    @cached_property
    def model(self) -> LinkModel:
        """The times of a link where a die passes on what it has whole."""
        times = self.rates.times()
        model = LinkModel(times.bandwidth, times.latency, times.flit, times.store_and_forward)
        return model.without_early_relays()

    def _least_of(self, size: int) -> float:
        """Seconds that pieces of so many bytes take at least, each of which is relayed when it is there."""
        return self.model.seconds(self._farthest * self.model.span(size))

    def plans(
        self, shard: int, shape: tuple[int, ...], *, backwards: bool, gain: float = 0.0
    ) -> Iterator[Relayed]:
        """The plans for shards of so many bytes and this shape, by number of pieces; none from the first on that cannot
        be `gain` times as fast as the one before it."""
        size, before = len(self.groups[0]), inf
        assert self.common is not None
        for pieces in _PIECES:
            divides = pieces == 1 or any(n % pieces == 0 for n in shape)
            if divides and size * (size - 1) * pieces <= _MOST_MESSAGES:
                if gain * self._least_of(max(1, shard // pieces)) > before:
                    return
                key = shard, pieces, backwards
                if key not in self._known:
                    self._known[key] = self._found(self.common, *key)
                before = self._known[key].seconds
                yield self._known[key]

    def _found(self, common: Topology, shard: int, pieces: int, backwards: bool) -> Relayed:
        model = self.model
        homes = [p for p in common.live for _ in range(pieces)]
        sizes = [max(1, shard // pieces)] * len(homes)

        def timed(seed: int) -> Relayed:
            messages = Matching(common, homes, sizes, model, 1, seed).run()
            hops = [(m.src, m.dst, m.chunks[0]) for m in messages]
            plan = relayed(len(common.live), pieces, hops, backwards=backwards)
            return Relayed(plan, model.seconds(_in_order(plan, sizes[0], model, backwards=backwards)))

        tries = max(1, min(_SEEDS, _MOST_MESSAGES // (len(homes) * len(common.live))))
        least, best = self._least_of(sizes[0]), timed(0)
        for seed in range(1, tries):
            if best.seconds <= least:
                break
            best = min(best, timed(seed), key=lambda r: r.seconds)
        return best


def _in_order(plan: GatherPlan, size: int, model: LinkModel, *, backwards: bool) -> float:
    """Byte times of a plan whose pieces have so many bytes, as `in_order`."""
    rounds = [[m.backwards() for m in r] for r in reversed(plan.rounds)] if backwards else plan.rounds
    return in_order((m for moves in rounds for m in moves), size, model)
