"""Gather plans from lists of messages between neighbours: which messages are sent together, as moves in rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from wscc.analysis.gather_plan import GatherPlan, Move
from wscc.collectives.timing import LinkModel
from wscc.ir.per_die import NOBODY

K = TypeVar("K")

# A message: sender and receiver by position, and the number of the piece that it carries.
Hop = tuple[int, int, int]


def in_rounds(hops: Iterable[Hop]) -> list[list[Hop]]:
    """The messages in their order, cut where one passes on what arrived since the last cut."""
    rounds: list[list[Hop]] = [[]]
    arrived: set[tuple[int, int]] = set()
    for source, to, piece in hops:
        if (source, piece) in arrived:
            rounds.append([])
            arrived.clear()
        rounds[-1].append((source, to, piece))
        arrived.add((to, piece))
    return [r for r in rounds if r]


def relayed(size: int, pieces: int, hops: Sequence[Hop], *, backwards: bool) -> GatherPlan:
    """The gather plan of `size` positions whose shards, cut in `pieces`, take these messages, in their order.

    Positions that pass a piece on, and those where it ends, get it in different moves: run backwards, the latter add
    nothing to it, and what waits for nothing comes first, be the plan run so (`backwards`) or not."""
    passed_on = {(source, piece) for source, _, piece in hops}
    rounds = []
    for group in in_rounds(hops):
        moves = moves_of(size, group, lambda hop: hop[1:] in passed_on)
        rounds.append(tuple(m for kind in sorted(moves, reverse=not backwards) for m in moves[kind]))
    return GatherPlan(size, tuple(rounds), (), (), pieces)


def moves_of(size: int, hops: Iterable[Hop], kind_of: Callable[[Hop], K]) -> dict[K, list[Move]]:
    """Messages that start together, as moves by their kind: each position sends and gets at most one in a move."""
    moves: dict[K, list[_Filling]] = {}
    for hop in hops:
        source, to, piece = hop
        of_kind = moves.setdefault(kind_of(hop), [])
        move = next((m for m in of_kind if m.has_room(source, to)), None)
        if move is None:
            of_kind.append(move := _Filling(size))
        move.add(source, to, piece)
    return {kind: [m.move() for m in of_kind] for kind, of_kind in moves.items()}


def in_order(moves: Iterable[Move], size: int, model: LinkModel) -> float:
    """Byte times of moves of pieces of so many bytes, where each position sends in their order: it waits for what it
    passes on, though it could send something else."""
    waited: dict[int, float] = {}
    free: dict[tuple[int, int], float] = {}
    arrived: dict[tuple[int, int], float] = {}
    for move in moves:
        for p, (q, piece) in enumerate(zip(move.to, move.shard, strict=True)):
            if q != NOBODY:
                waited[p] = max(waited.get(p, 0.0), arrived.get((p, piece), 0.0))
                start = max(waited[p], free.get((p, q), 0.0))
                free[p, q] = start + model.hold(size)
                arrived[q, piece] = max(arrived.get((q, piece), 0.0), start + model.span(size))
    return max(arrived.values())


@dataclass
class _Filling:
    """A move while messages are added to it."""

    size: int
    to: dict[int, int] = field(default_factory=dict)
    piece: dict[int, int] = field(default_factory=dict)
    receivers: set[int] = field(default_factory=set)

    def has_room(self, source: int, to: int) -> bool:
        return source not in self.to and to not in self.receivers

    def add(self, source: int, to: int, piece: int) -> None:
        self.to[source], self.piece[source] = to, piece
        self.receivers.add(to)

    def move(self) -> Move:
        to, shard = [NOBODY] * self.size, [0] * self.size
        for source, piece in self.piece.items():
            to[source], shard[source] = self.to[source], piece
        return Move(tuple(to), tuple(shard))
