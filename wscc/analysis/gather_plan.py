"""Plans by which shards reach every die of a group: rounds of moves between positions (TATP, arXiv 2512.14256, sec. 4).

A *closed ring* of even size T sends whole shards both ways and the antipodal one as two halves: T/2 rounds, (T-1)/2
shards per link and direction. An *open chain* floods both ways: T-1 rounds, at most one shard per link, direction and
round. A *direct* exchange takes one round of messages between all pairs. Along *relays* (`wscc.collectives`) each
piece of a shard takes a tree of its own. A reduction to the owners of shards is the same plan run backwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from wscc.ir.per_die import NOBODY


class Part(StrEnum):
    """The part of a shard that a move carries."""

    WHOLE = "whole"
    LOW = "low"
    HIGH = "high"

    # As of `DType`: in C, since moves are keys of tables.
    __hash__ = str.__hash__


@dataclass(frozen=True, slots=True)
class Move:
    """Simultaneous messages, at most one from each position: p sends shard `shard[p]` to `to[p]` (`NOBODY`: it sends
    none)."""

    to: tuple[int, ...]
    shard: tuple[int, ...]
    part: Part = Part.WHOLE

    @property
    def sent(self) -> tuple[int, ...]:
        """The shard that each position sends, `NOBODY` where it sends none."""
        return tuple(s if q != NOBODY else NOBODY for s, q in zip(self.shard, self.to, strict=True))

    def backwards(self) -> Move:
        """The reversed move: every message goes from its receiver to its sender."""
        return _backwards(self)


# Each slice of each stream along an axis takes the same moves.
@lru_cache(maxsize=1024)
def _backwards(move: Move) -> Move:
    to, shard = [NOBODY] * len(move.to), [0] * len(move.to)
    for p, q in enumerate(move.to):
        if q != NOBODY:
            to[q], shard[q] = p, move.shard[p]
    return Move(tuple(to), tuple(shard), move.part)


@dataclass(frozen=True, slots=True)
class GatherPlan:
    """A plan for `size` positions. `rounds[r]`: the moves of round r + 1. `order[t][p]`: the shard that position p uses
    t-th; it has arrived at every position after `ready[t]` rounds. Both are empty where nothing is known of them.

    With `pieces` above 1, each shard is cut in so many equal ones, and moves carry piece `shard * pieces + i`."""

    size: int
    rounds: tuple[tuple[Move, ...], ...]
    order: tuple[tuple[int, ...], ...]
    ready: tuple[int, ...]
    pieces: int = 1


def only(plan: GatherPlan, shard: int) -> GatherPlan:
    """The moves of one shard alone: a broadcast from its owner or, run backwards, a reduction to it."""

    def moves(round_: tuple[Move, ...]) -> tuple[Move, ...]:
        ours = (
            replace(
                m,
                to=tuple(
                    q if s // plan.pieces == shard else NOBODY for q, s in zip(m.to, m.shard, strict=True)
                ),
            )
            for m in round_
        )
        return tuple(m for m in ours if any(q != NOBODY for q in m.to))

    return replace(plan, rounds=tuple(filter(None, map(moves, plan.rounds))))


def used(plan: GatherPlan, uses: Sequence[AbstractSet[int]]) -> GatherPlan:
    """The moves that bring each position p the shards `uses[p]`, and the shards that it relays to others, no others:
    run backwards, those that take what it adds to them. Rounds keep their numbers."""
    needs = [set(shards) for shards in uses]
    rounds: list[tuple[Move, ...]] = []
    for round_ in reversed(plan.rounds):
        kept = [
            replace(
                m,
                to=tuple(
                    q if q != NOBODY and s in needs[q] else NOBODY for q, s in zip(m.to, m.shard, strict=True)
                ),
            )
            for m in round_
        ]
        for m in kept:
            for p, q in enumerate(m.to):
                if q != NOBODY:
                    needs[p].add(m.shard[p])
        rounds.append(tuple(m for m in kept if any(q != NOBODY for q in m.to)))
    return replace(plan, rounds=tuple(reversed(rounds)))


def ring(size: int) -> GatherPlan:
    """The plan of a closed ring of neighbours; routed over several hops, it serves any group."""
    positions = range(size)
    if size == 2:
        exchange = Move((1, 0), (0, 1))
        return GatherPlan(2, ((exchange,),), ((0, 1), (1, 0)), (0, 1))
    rounds, order, ready = [], [tuple(positions)], [0]
    for r in range(1, size // 2 + 1):
        antipodal = 2 * r == size
        low, high = (Part.LOW, Part.HIGH) if antipodal else (Part.WHOLE, Part.WHOLE)
        right = Move(
            tuple((p + 1) % size for p in positions), tuple((p - r + 1) % size for p in positions), low
        )
        left = Move(
            tuple((p - 1) % size for p in positions), tuple((p + r - 1) % size for p in positions), high
        )
        rounds.append((right, left))
        order.append(tuple((p - r) % size for p in positions))
        ready.append(r)
        if not antipodal:
            order.append(tuple((p + r) % size for p in positions))
            ready.append(r)
    return GatherPlan(size, tuple(rounds), tuple(order), tuple(ready))


def chain(size: int) -> GatherPlan:
    """The plan of an open path of neighbours: position p < T/2 uses shards p, p+1, .. (mod T), the others p, p-1, .."""
    positions = range(size)
    rounds = []
    for r in range(1, size):
        right = Move(
            tuple(p + 1 if p + 1 < size and p - r + 1 >= 0 else NOBODY for p in positions),
            tuple(max(p - r + 1, 0) for p in positions),
        )
        left = Move(
            tuple(p - 1 if p >= 1 and p + r - 1 < size else NOBODY for p in positions),
            tuple(min(p + r - 1, size - 1) for p in positions),
        )
        rounds.append((right, left))
    order = [
        tuple((p + t) % size if 2 * p < size else (p - t) % size for p in positions) for t in range(size)
    ]
    ready = [max(abs(p - j) for p, j in enumerate(row)) for row in order]
    # `ready` has to be monotone: a shard that is used later may have to arrive everywhere earlier.
    for t in range(1, size):
        ready[t] = max(ready[t], ready[t - 1])
    return GatherPlan(size, tuple(rounds), tuple(order), tuple(ready))


def direct(size: int) -> GatherPlan:
    """The plan in which each position sends its shard to all others at once, over as many hops as it takes."""
    positions = range(size)
    moves = tuple(Move(tuple((p + k) % size for p in positions), tuple(positions)) for k in range(1, size))
    order = tuple(tuple((p - k) % size for p in positions) for k in positions)
    return GatherPlan(size, (moves,), order, (0, *[1] * (size - 1)))
