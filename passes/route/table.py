"""The routes of a module, each once, made of the pieces of routings."""

from __future__ import annotations

from math import gcd

import numpy as np

from wscc.ir.die_arrays import DieArray
from wscc.ir.per_die import NOBODY
from wscc.ir.routes import ALONE, Leg, Route
from wscc.routing.flows import Piece
from wscc.routing.router import Routing

Legs = tuple[Leg, ...]


class RouteTable:
    """Numbers routes in the order in which they are first needed."""

    def __init__(self) -> None:
        self._numbers: dict[Route, int] = {}
        self._trees: dict[tuple[Legs, ...], int] = {}

    @property
    def routes(self) -> tuple[Route, ...]:
        return tuple(self._numbers)

    def stay(self, dies: DieArray) -> DieArray:
        """By die, the number of the route that leads from it to itself."""
        routes = [Route.along((die,)) for die in dies.tolist()]
        return np.array([self._numbers.setdefault(r, len(self._numbers)) for r in routes], np.int64)

    def numbers(self, routing: Routing) -> DieArray:
        """By flow of the routing, the number of its route."""
        found = np.full(len(routing.flows), NOBODY, np.int64)
        pieces: dict[tuple[int, ...], list[Piece]] = {}
        for piece in routing.pieces:
            pieces.setdefault(tuple(n for ends in piece.demand.flows for n in ends), []).append(piece)
        for of_demand in pieces.values():
            legs = _legs(of_demand)
            merged = ALONE if len(legs) == 1 else self._trees.setdefault(legs, len(self._trees))
            for ends, own in zip(of_demand[0].demand.flows, legs, strict=True):
                route = Route(own, merged)
                found[list(ends)] = self._numbers.setdefault(route, len(self._numbers))
        return found


def _legs(pieces: list[Piece]) -> tuple[Legs, ...]:
    """By destination of a demand, the legs that its pieces make."""
    unit = gcd(*(p.bytes for p in pieces)) if len(pieces) > 1 else pieces[0].bytes
    shares = [p.bytes // unit for p in pieces]
    return tuple(
        tuple(Leg(p.paths[i], p.channel, share) for p, share in zip(pieces, shares, strict=True))
        for i in range(len(pieces[0].paths))
    )
