"""Routes: how the routers of the wafer bring a message from die to die, whole or in parts, alone or merged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

ALONE: Final = -1

Hop = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Leg:
    """One path of physical dies, both ends included, and the virtual channel on it; it carries `share` parts
    of a message out of the sum of the shares of the route."""

    path: tuple[int, ...]
    channel: int = 0
    share: int = 1

    @property
    def hops(self) -> Iterator[Hop]:
        return pairwise(self.path)


@dataclass(frozen=True, slots=True)
class Route:
    """The legs of a message, all from one die to another.

    Routes with one `merged` number (not `ALONE`) start at one die and have legs of equal shares and channels:
    messages that carry the same bytes. The die sends all of them each time, and their k-th legs form a tree
    in which the routers replicate: a link on several of them carries the bytes once (multicast).
    """

    legs: tuple[Leg, ...]
    merged: int = ALONE

    @staticmethod
    def along(path: Sequence[int], channel: int = 0) -> Route:
        """The whole message on one path."""
        return Route((Leg(tuple(path), channel),))

    @property
    def ends(self) -> Hop:
        """The first and the last die."""
        path = self.legs[0].path
        return path[0], path[-1]

    @property
    def hops(self) -> int:
        """Links on the longest leg."""
        return max(len(leg.path) for leg in self.legs) - 1

    def parts(self, amount: int) -> tuple[int, ...]:
        """The bytes of each leg when a message has `amount`: each begins at the share of the message before it,
        rounded down."""
        total = sum(leg.share for leg in self.legs)
        done = [0]
        for leg in self.legs:
            done.append(done[-1] + leg.share)
        edges = [amount * n // total for n in done]
        return tuple(b - a for a, b in pairwise(edges))


def crossings(routes: Iterable[Route]) -> tuple[tuple[tuple[int, Hop], ...], ...]:
    """By route, every (number of the leg, link) on which a message of it adds bytes: its hops, without those
    that an earlier route merged with it has already."""
    seen: dict[tuple[int, int], set[Hop]] = {}
    found = []
    for route in routes:
        own: list[tuple[int, Hop]] = []
        for k, leg in enumerate(route.legs):
            known = seen.setdefault((route.merged, k), set()) if route.merged != ALONE else set()
            own += [(k, hop) for hop in leg.hops if hop not in known]
            known.update(leg.hops)
        found.append(tuple(own))
    return tuple(found)
