"""The table of the routes of a module, each once, built from the pieces of routings."""

from __future__ import annotations

from math import gcd

import numpy as np

from wscc.ir.die_arrays import DieArray
from wscc.ir.per_die import NOBODY
from wscc.ir.routes import ALONE, Leg, Route
from wscc.machine.topology import Path
from wscc.routing.flows import Piece
from wscc.routing.router import Routing

Legs = tuple[Leg, ...]


class RouteTable:
    """Routes of a module, numbered in the order in which they are first needed."""

    def __init__(self) -> None:
        self._numbers: dict[Route, int] = {}
        self._trees: dict[tuple[Legs, ...], int] = {}
        self._alone: dict[tuple[Path, int], int] = {}
        # Of phases that are alike; with the routing itself, so that no other has its identity.
        self._known: dict[int, tuple[Routing, DieArray]] = {}

    @property
    def routes(self) -> tuple[Route, ...]:
        return tuple(self._numbers)

    def stay(self, dies: DieArray) -> DieArray:
        """The number of the route from each die to itself: [dies]."""
        routes = [Route.along((die,)) for die in dies.tolist()]
        return np.array([self._numbers.setdefault(r, len(self._numbers)) for r in routes], np.int64)

    def numbers(self, routing: Routing) -> DieArray:
        """The number of the route of each flow of the routing: [flows]."""
        if id(routing) not in self._known:
            self._known[id(routing)] = routing, self._new_numbers(routing)
        return self._known[id(routing)][1]

    def _new_numbers(self, routing: Routing) -> DieArray:
        numbers = [NOBODY] * len(routing.flows)
        # The first flow of a demand is no other demand's.
        pieces: dict[int, list[Piece]] = {}
        for piece in routing.pieces:
            pieces.setdefault(piece.demand.flows[0][0], []).append(piece)
        for group in pieces.values():
            if len(group) == 1 and len(group[0].paths) == 1:
                number = self._whole(group[0].paths[0], group[0].channel)
                for n in group[0].demand.flows[0]:
                    numbers[n] = number
                continue
            legs = _legs(group)
            merged = ALONE if len(legs) == 1 else self._trees.setdefault(legs, len(self._trees))
            for ends, flow_legs in zip(group[0].demand.flows, legs, strict=True):
                route = Route(flow_legs, merged)
                number = self._numbers.setdefault(route, len(self._numbers))
                for n in ends:
                    numbers[n] = number
        return np.array(numbers, np.int64)

    def _whole(self, path: Path, channel: int) -> int:
        """The number of the route of messages that go on one path."""
        number = self._alone.get((path, channel))
        if number is None:
            route = Route.along(path, channel)
            number = self._alone[path, channel] = self._numbers.setdefault(route, len(self._numbers))
        return number


def _legs(pieces: list[Piece]) -> tuple[Legs, ...]:
    """The legs of the pieces of one demand, by destination."""
    unit = gcd(*(p.bytes for p in pieces)) if len(pieces) > 1 else pieces[0].bytes
    shares = [p.bytes // unit for p in pieces]
    return tuple(
        tuple(Leg(p.paths[i], p.channel, share) for p, share in zip(pieces, shares, strict=True))
        for i in range(len(pieces[0].paths))
    )
