"""Simulated annealing of a quadratic assignment: who goes where, so that those with much traffic lie close.

Kirkpatrick, Gelatt and Vecchi, Science 220 (1983). Serves `gmap`, where dies go to dies, and the exchange of
whole rings among regions. The answer depends on the arguments alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp
from random import Random

from wscc.passes.place.types import Shape, axis_pairs, closing_pairs, dies_of

# Of those moved, how many are put beside one of their peers instead of anywhere.
_BESIDE = 0.7
# The first temperature, in steps to a near site of the heaviest pair, and the last as a share of it.
_HOT, _COLD = 1.5, 0.05


@dataclass(frozen=True, slots=True)
class Assignment:
    """`peers[i]` are those that i talks to, each with a weight, both ways; `hops(a, b)` is the distance of two
    sites, symmetric; `near[a]` are the sites worth trying for a peer of what is at site a."""

    peers: Sequence[Sequence[tuple[int, float]]]
    hops: Callable[[int, int], float]
    near: Sequence[Sequence[int]]

    def price(self, at: Sequence[int]) -> float:
        """Weight x hops over all pairs, when i lies at site `at[i]`."""
        return sum(w * self.hops(at[i], at[j]) for i, ps in enumerate(self.peers) for j, w in ps if i < j)

    def anneal(self, start: Sequence[int], sites: Sequence[int], *, moves: int, seed: int) -> list[int]:
        """The cheapest assignment met on the way, `start` if none is cheaper. `sites` may be more than needed."""
        heaviest = max((w for ps in self.peers for _, w in ps), default=0.0)
        if len(sites) < 2 or heaviest <= 0:
            return list(start)
        random = Random(seed)
        at, who = list(start), dict.fromkeys(sites, -1)
        who.update({site: i for i, site in enumerate(at)})
        best, gain, least = list(at), 0.0, 0.0
        cooling = _COLD ** (1 / max(moves, 1))
        heat = _HOT * heaviest * self._step(sites)
        for _ in range(moves):
            heat *= cooling
            i = int(random.random() * len(at))
            site = self._proposal(random, i, at, sites)
            if site == at[i] or site not in who:
                continue
            j = who[site]
            change = self._change(i, site, j, at)
            if change > 0 and random.random() >= exp(-change / heat):
                continue
            who[at[i]], who[site] = j, i
            if j >= 0:
                at[j] = at[i]
            at[i] = site
            gain += change
            if gain < least - 1e-9:
                least, best = gain, list(at)
        return best

    def _step(self, sites: Sequence[int]) -> float:
        """How far apart near sites are, on average."""
        steps = [min(self.hops(a, b) for b in self.near[a]) for a in sites if self.near[a]]
        return sum(steps) / len(steps) if steps else 1.0

    def _proposal(self, random: Random, i: int, at: Sequence[int], sites: Sequence[int]) -> int:
        peers = self.peers[i]
        if peers and random.random() < _BESIDE:
            beside = self.near[at[peers[int(random.random() * len(peers))][0]]]
            if beside:
                return beside[int(random.random() * len(beside))]
        return sites[int(random.random() * len(sites))]

    def _change(self, i: int, site: int, j: int, at: Sequence[int]) -> float:
        """What the price gains when i goes to the site and j, if someone is there, to where i was."""
        hops, here = self.hops, at[i]
        change = 0.0
        for k, w in self.peers[i]:
            if k != j:  # the two of a pair that change places stay as far apart
                change += w * (hops(site, at[k]) - hops(here, at[k]))
        if j >= 0:
            for k, w in self.peers[j]:
                if k != i:
                    change += w * (hops(here, at[k]) - hops(site, at[k]))
        return change


def peers_of(shape: Shape) -> list[list[tuple[int, float]]]:
    """By logical die of a strategy, those it exchanges with and how much."""
    peers: list[list[tuple[int, float]]] = [[] for _ in range(dies_of(shape))]
    for i, axis in enumerate(shape):
        closing = {(a, b) for a, b in closing_pairs(shape, i).tolist()}
        for a, b in axis_pairs(shape, i).tolist():
            weight = axis.weight * (axis.closing if (a, b) in closing else 1.0)
            if weight > 0:
                peers[a].append((b, weight))
                peers[b].append((a, weight))
    return peers
