"""Routes: the paths of messages through the routers of the wafer, whole or in parts, alone or merged (multicast)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from wscc.diagnostics import NO_SPAN, Span

ALONE: Final = -1

Hop = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Leg:
    """One path of physical dies, both ends included, and its virtual channel; it carries `share` parts of a message
    out of the sum of the shares of the route."""

    path: tuple[int, ...]
    channel: int = 0
    share: int = 1

    @property
    def hops(self) -> Iterator[Hop]:
        """The directed links of the path, in order."""
        return pairwise(self.path)


@dataclass(frozen=True, slots=True)
class Route:
    """The legs of a message, all of which join the same two dies.

    Routes with one `merged` number (not `ALONE`) start at one die, have legs of equal shares and channels, and carry
    the same bytes. The die sends all of them each time, and their k-th legs form a tree in which the routers
    replicate: a link on several of them carries the bytes once (multicast).
    """

    legs: tuple[Leg, ...]
    merged: int = ALONE
    span: Span = field(default=NO_SPAN, compare=False, repr=False)

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
        """Number of links of the longest leg."""
        return max(len(leg.path) for leg in self.legs) - 1

    def parts(self, amount: int) -> tuple[int, ...]:
        """The bytes of each leg of a message of `amount` bytes, in proportion to shares; each leg begins at the sum of
        the shares before it, rounded down."""
        total = sum(leg.share for leg in self.legs)
        shares = [0]
        for leg in self.legs:
            shares.append(shares[-1] + leg.share)
        edges = [amount * n // total for n in shares]
        return tuple(b - a for a, b in pairwise(edges))


def crossings(routes: Iterable[Route]) -> tuple[tuple[tuple[int, Hop], ...], ...]:
    """For each route, every (number of the leg, link) on which its message adds bytes: all its hops but those of
    earlier routes merged with it."""
    trees: dict[tuple[int, int], set[Hop]] = {}
    by_route = []
    for route in routes:
        links: list[tuple[int, Hop]] = []
        for k, leg in enumerate(route.legs):
            tree = trees.setdefault((route.merged, k), set()) if route.merged != ALONE else set()
            links += [(k, hop) for hop in leg.hops if hop not in tree]
            tree.update(leg.hops)
        by_route.append(tuple(links))
    return tuple(by_route)
