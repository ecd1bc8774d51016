"""Simulated annealing of a quadratic assignment: sites for items such that those with much traffic lie close.

Kirkpatrick, Gelatt and Vecchi, Science 220 (1983). Serves `gmap`, where dies go to dies, and the exchange of
whole rings among regions. The answer depends on the arguments alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp
from random import Random

from wscc.passes.place.types import Shape, axis_pairs, closing_pairs, dies_of

# The share of moves to a site near one of the item's peers instead of anywhere.
_NEAR_PEER = 0.7
# The first temperature, in steps to a near site of the heaviest pair, and the last as a share of it.
_HOT, _COLD = 1.5, 0.05


@dataclass(frozen=True, slots=True)
class Assignment:
    """A quadratic assignment problem: `peers[i]` are the items that item i exchanges bytes with, each with a weight,
    both ways; `hops(a, b)` is the distance of two sites, symmetric; `near[a]` are the sites worth trying for a peer of
    the item at site a."""

    peers: Sequence[Sequence[tuple[int, float]]]
    hops: Callable[[int, int], float]
    near: Sequence[Sequence[int]]

    def price(self, sites: Sequence[int]) -> float:
        """Weight x hops over all pairs, when item i is at site `sites[i]`."""
        return sum(
            w * self.hops(sites[i], sites[j]) for i, ps in enumerate(self.peers) for j, w in ps if i < j
        )

    def anneal(self, start: Sequence[int], sites: Sequence[int], *, moves: int, seed: int) -> list[int]:
        """The cheapest assignment met: the site of each item, `start` if none is cheaper. Sites may be left over."""
        heaviest = max((w for ps in self.peers for _, w in ps), default=0.0)
        if len(sites) < 2 or heaviest <= 0:
            return list(start)
        random = Random(seed)
        site_of, item_at = list(start), dict.fromkeys(sites, -1)
        item_at.update({site: i for i, site in enumerate(site_of)})
        best, gain, least = list(site_of), 0.0, 0.0
        cooling = _COLD ** (1 / max(moves, 1))
        heat = _HOT * heaviest * self._spacing(sites)
        for _ in range(moves):
            heat *= cooling
            i = int(random.random() * len(site_of))
            site = self._proposal(random, i, site_of, sites)
            if site == site_of[i] or site not in item_at:
                continue
            j = item_at[site]
            change = self._change(i, site, j, site_of)
            if change > 0 and random.random() >= exp(-change / heat):
                continue
            item_at[site_of[i]], item_at[site] = j, i
            if j >= 0:
                site_of[j] = site_of[i]
            site_of[i] = site
            gain += change
            if gain < least - 1e-9:
                least, best = gain, list(site_of)
        return best

    def _spacing(self, sites: Sequence[int]) -> float:
        """The mean distance of a site to its nearest one."""
        steps = [min(self.hops(a, b) for b in self.near[a]) for a in sites if self.near[a]]
        return sum(steps) / len(steps) if steps else 1.0

    def _proposal(self, random: Random, i: int, site_of: Sequence[int], sites: Sequence[int]) -> int:
        """A random site for item i, most often near one of its peers."""
        peers = self.peers[i]
        if peers and random.random() < _NEAR_PEER:
            near = self.near[site_of[peers[int(random.random() * len(peers))][0]]]
            if near:
                return near[int(random.random() * len(near))]
        return sites[int(random.random() * len(sites))]

    def _change(self, i: int, site: int, j: int, site_of: Sequence[int]) -> float:
        """The change of the price when item i moves to `site` and item j, if one is there (not -1), to where i was."""
        hops, current = self.hops, site_of[i]
        change = 0.0
        for k, w in self.peers[i]:
            if k != j:  # a pair that is exchanged stays as far apart
                change += w * (hops(site, site_of[k]) - hops(current, site_of[k]))
        if j >= 0:
            for k, w in self.peers[j]:
                if k != i:
                    change += w * (hops(current, site_of[k]) - hops(site, site_of[k]))
        return change


def peers_of(shape: Shape) -> list[list[tuple[int, float]]]:
    """The peers of each logical die of a strategy, with the weights of what they exchange."""
    peers: list[list[tuple[int, float]]] = [[] for _ in range(dies_of(shape))]
    for i, axis in enumerate(shape):
        closing = {(a, b) for a, b in closing_pairs(shape, i).tolist()}
        for a, b in axis_pairs(shape, i).tolist():
            weight = axis.weight * (axis.closing if (a, b) in closing else 1.0)
            if weight > 0:
                peers[a].append((b, weight))
                peers[b].append((a, weight))
    return peers
