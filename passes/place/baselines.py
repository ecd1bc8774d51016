"""The mappers to compare with: they take dies in an order, or anneal hops, and look for no rings.

A streaming group may then lie several hops apart; its shards are passed on over routes of several links, and
the placement says so. Nothing else about a placement is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

import numpy as np

from wscc.machine.topology import Topology
from wscc.passes.place.anneal import Assignment, peers_of
from wscc.passes.place.describe import describe
from wscc.passes.place.errors import too_many
from wscc.passes.place.hops import Hops, Price
from wscc.passes.place.types import IntArray, Placement, Shape, dies_of

# Moves of the annealing: for each die, and at most.
_MOVES, _MAX_MOVES = 2_000, 300_000


def snake(topology: Topology, shape: Shape, seed: int) -> IntArray:
    """Dies along the rows in boustrophedon order. A group of the last axis that must be neighbours starts again
    behind a gap, as long as dies are left; the dies before the gap go unused."""
    count, last = dies_of(shape), shape[-1] if shape else None
    order = boustrophedon(topology, topology.live)
    if last is not None and last.ring:
        unbroken = [d for run in islice(_runs(topology, order, last.size), count // last.size) for d in run]
        if len(unbroken) == count:
            return np.array(unbroken)
    return np.array(order[:count])


def row_major(topology: Topology, shape: Shape, seed: int) -> IntArray:
    """Dies row by row, axes in the order of the strategy, the last one fastest (SMap)."""
    return np.array(topology.live[: dies_of(shape)])


def annealed(topology: Topology, shape: Shape, seed: int) -> IntArray:
    """The placement of least traffic x hops that annealing finds from `row_major`, link loads ignored (GMap)."""
    start = row_major(topology, shape, seed).tolist()
    hops = Hops(topology)
    problem = Assignment(peers_of(shape), hops.lookup, topology.neighbours)
    moves = min(_MOVES * len(start), _MAX_MOVES)
    return np.array(problem.anneal(start, topology.live, moves=moves, seed=seed))


SIMPLE: Final[dict[str, Callable[[Topology, Shape, int], IntArray]]] = {
    "snake": snake,
    "smap": row_major,
    "gmap": annealed,
}


def place_simply(topology: Topology, shape: Shape, mapper: str, seed: int) -> Placement:
    """The placement by one of `SIMPLE` on the largest island. Raises W301 or W302 when that is too small."""
    largest = topology.islands[0] if topology.islands else ()
    if len(largest) < dies_of(shape):
        raise too_many(topology, shape)
    part = topology.part(largest)
    price = Price(Hops(part), shape)
    dies = SIMPLE[mapper](part, shape, seed)
    reason = f"mapper `{mapper}` looks for no rings"
    return describe(
        part, shape, price, dies, mapper, optimal=price.of(dies) <= price.least, open_reason=reason
    )


def boustrophedon(topology: Topology, dies: Sequence[int]) -> list[int]:
    """Boustrophedon order, every second row backwards: on a whole part of the wafer, each next to the one before."""
    cols = topology.grid[1] if topology.grid else topology.dies
    return sorted(dies, key=lambda d: (d // cols, d % cols if d // cols % 2 == 0 else -(d % cols)))


def _runs(topology: Topology, order: Sequence[int], size: int) -> Iterator[list[int]]:
    """Stretches of `size` dies of the order, each next to the one before."""
    run: list[int] = []
    for die in order:
        if run and not topology.are_adjacent(run[-1], die):
            run = []
        run.append(die)
        if len(run) == size:
            yield run
            run = []
