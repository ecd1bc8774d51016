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
from wscc.collectives.plan import Chunk, Plan, time_reversal
from wscc.collectives.timing import LinkModel, simulate
from wscc.machine.topology import Topology
from wscc.passes.lower_collectives.moves import relayed

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
        positions = range(len(self.groups[0]))
        joined = tuple(
            tuple(q for q in positions if all(self._joins(g[p], g[q]) for g in self.groups))
            for p in positions
        )
        common = Topology(tuple(positions), joined)
        return common if len(common.islands) == 1 else None

    def _joins(self, a: int, b: int) -> bool:
        return self.topology.are_adjacent(a, b) and (a, b) not in self.topology.slowness

    def least(self, shard: int) -> float:
        """Seconds that any plan takes at least with shards of so many bytes; infinite where there is none."""
        size, common = len(self.groups[0]), self.common
        if common is None or size < _LEAST:
            return inf
        farthest = max(common.distance(a, b) for a in common.live for b in common.live)
        entries = min(len(common.neighbours[p]) for p in common.live)
        on_link = self.rates.busy(shard)
        late = farthest * self.rates.latency
        return max(late, self.rates.latency + (size - 1) * on_link / entries)

    def plans(self, shard: int, shape: tuple[int, ...], *, backwards: bool) -> Iterator[Relayed]:
        """The plans for shards of so many bytes and this shape, by number of pieces."""
        size = len(self.groups[0])
        assert self.common is not None
        for pieces in _PIECES:
            divides = pieces == 1 or any(n % pieces == 0 for n in shape)
            if divides and size * (size - 1) * pieces <= _MOST_MESSAGES:
                key = shard, pieces, backwards
                if key not in self._known:
                    self._known[key] = self._found(self.common, *key)
                yield self._known[key]

    def _found(self, common: Topology, shard: int, pieces: int, backwards: bool) -> Relayed:
        times = self.rates.times()
        model = LinkModel(times.bandwidth, times.latency, times.flit, times.store_and_forward)
        model = model.without_early_relays()
        homes = [p for p in common.live for _ in range(pieces)]
        sizes = [max(1, shard // pieces)] * len(homes)
        everyone = frozenset(common.live)
        chunks = tuple(Chunk(n, frozenset([p]), everyone) for n, p in zip(sizes, homes, strict=True))

        def timed(seed: int) -> tuple[float, Plan]:
            plan = Plan("relays", chunks, Matching(common, homes, sizes, model, 1, seed).run())
            return simulate(time_reversal(plan) if backwards else plan, model).end, plan

        tries = max(1, min(_SEEDS, _MOST_MESSAGES // (len(homes) * len(common.live))))
        end, plan = min((timed(seed) for seed in range(tries)), key=lambda t: t[0])
        hops = [(m.src, m.dst, m.chunks[0]) for m in plan.messages]
        return Relayed(relayed(len(common.live), pieces, hops), model.seconds(end))
