"""Families of candidate plans of all_gather, by algorithm; those of reduce_scatter are their time reversals."""

from __future__ import annotations

from collections.abc import Iterator

from wscc.collectives.arrange import arrange
from wscc.collectives.family import Family, message_limits, piece_counts
from wscc.collectives.matching import Matching
from wscc.collectives.plan import Chunk, Link, Plan, Request, pieces_of
from wscc.collectives.timing import LinkModel
from wscc.collectives.trees import GUIDES, Guide, broadcast_route

_SEEDS = 6
_MOST_PIECES = 8


def gathers(request: Request, model: LinkModel, algorithm: str) -> Iterator[Family]:
    """The families of one algorithm; none where it does not exist on this mesh."""
    hops = len(request.dies) * (len(request.dies) - 1)
    shard = max(request.shards)
    rows = tuple(
        (pieces, message_limits(shard // pieces, model, max(request.bytes, 1)))
        for pieces in piece_counts(hops, shard, model, _MOST_PIECES)
    )
    if algorithm == "packing":

        def matched(pieces: int, limit: int, seed: int) -> Plan:
            return matched_plan(request, model, _shards(request, pieces)[0], limit, seed)

        yield Family(matched, rows, seeds=_SEEDS)
    elif (guide := GUIDES[algorithm](request.topology)) is not None:

        def guided(pieces: int, limit: int, seed: int) -> Plan:
            chunks, numbers = _shards(request, pieces)
            routes = [broadcast_route(guide(home_of(c), n)) for c, n in zip(chunks, numbers, strict=True)]
            messages = arrange(routes, [c.bytes for c in chunks], numbers, model, limit)
            return Plan(algorithm, tuple(chunks), messages)

        yield Family(guided, rows, floor=_floor(request, guide))


def matched_plan(request: Request, model: LinkModel, chunks: list[Chunk], limit: int, seed: int) -> Plan:
    """A plan that sends chunks from their homes to all dies, by matching them with idle links."""
    homes, sizes = [home_of(c) for c in chunks], [c.bytes for c in chunks]
    messages = Matching(request.topology, homes, sizes, model, limit, seed).run()
    return Plan("packing", tuple(chunks), messages)


def home_of(chunk: Chunk) -> int:
    """The die that holds a chunk at first."""
    return min(chunk.sources)


def _shards(request: Request, pieces: int) -> tuple[list[Chunk], list[int]]:
    """The chunks of a gather, and the number of each among those of its die."""
    chunks, numbers, everyone = list[Chunk](), list[int](), frozenset(request.dies)
    for die, shard in zip(request.dies, request.shards, strict=True):
        for i, size in enumerate(pieces_of(shard, pieces)):
            chunks.append(Chunk(size, frozenset([die]), everyone))
            numbers.append(i)
    return chunks, numbers


def _floor(request: Request, guide: Guide) -> float:
    """Byte times of the fullest link if each die's pieces take two trees in turn."""
    load: dict[Link, float] = {}
    for die, shard in zip(request.dies, request.shards, strict=True):
        for turn in (0, 1):
            for child, parent in guide(die, turn).items():
                load[parent, child] = load.get((parent, child), 0.0) + shard / 2
    return max(load.values(), default=0.0)
