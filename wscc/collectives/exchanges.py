"""Families of candidate plans of all_to_all, by algorithm."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from random import Random
from typing import Final

from wscc.collectives.arrange import Arc, Route, arrange
from wscc.collectives.family import Family, message_limits, piece_counts, pipelined
from wscc.collectives.flows import Balance, Shares, balance
from wscc.collectives.plan import REDUCE, Chunk, Link, Plan, Request, pieces_of, split
from wscc.collectives.timing import LinkModel
from wscc.collectives.trees import GUIDES, Guide, path_route
from wscc.machine.topology import Path

_MOST_PIECES: Final = 16
# From so many pieces on, the balanced paths get their exact shares, not whole pieces.
_EXACT: Final = 4
_SEEDS: Final = 4

# Sizes and routes of the pieces from a die to another, by (sender, receiver, bytes, number of pieces).
Pieces = list[tuple[int, Route]]
Cutter = Callable[[int, int, int, int], Pieces]


def exchanges(request: Request, model: LinkModel, algorithm: str) -> Iterator[Family]:
    """The families of one algorithm; none where it does not exist on this mesh."""
    floor = 0.0
    if algorithm == "packing":
        cutter = _balanced(balance(request.topology))
    else:
        guide = GUIDES[algorithm](request.topology)
        if guide is None:
            return
        cutter, floor = _guided(guide), _floor(request, guide)
    part = max(request.shards)
    rows = tuple(
        (pieces, message_limits(part // pieces, model, max(request.bytes, 1)))
        for pieces in piece_counts(7 * len(request.dies) ** 2, part, model, _MOST_PIECES)
    )

    def plan(pieces: int, limit: int, seed: int) -> Plan:
        chunks, routes = list[Chunk](), list[Route]()
        for home in request.dies:
            for target, size in zip(request.dies, request.shards, strict=True):
                for n, route in cutter(home, target, size, pieces) if home != target else ():
                    chunks.append(Chunk(n, frozenset([home]), frozenset([target])))
                    routes.append(route)
        sizes = [c.bytes for c in chunks]
        is_random = pieces >= _EXACT and algorithm == "packing" and not request.topology.is_whole_mesh
        waves = _waves(len(sizes), seed + is_random)
        return Plan(algorithm, tuple(chunks), arrange(routes, sizes, waves, model, limit))

    start = pipelined(part, 1, model, REDUCE)
    yield Family(plan, rows, start, seeds=_SEEDS if algorithm == "packing" else 1, floor=floor)


def _waves(count: int, seed: int) -> Sequence[int]:
    """A wave for each chunk: all equal for seed 0 (then those with the most hops ahead go first), else random.

    Random waves let every pair of dies advance evenly: around damage many links are full, and a link gets its load in
    time only if the others mix too."""
    if not seed:
        return [0] * count
    random = Random(seed)
    return [random.randrange(1 << 16) for _ in range(count)]


def _guided(guide: Guide) -> Cutter:
    """A cutter whose pieces take the paths of `guide`."""

    def cut(home: int, target: int, size: int, pieces: int) -> Pieces:
        return [(n, path_route(guide(home, i), target)) for i, n in enumerate(pieces_of(size, pieces))]

    return cut


def _balanced(solution: Balance) -> Cutter:
    """A cutter over the paths that load the fullest link least, by their shares."""
    routes: dict[Path, Route] = {}

    def route(path: Path) -> Route:
        if path not in routes:
            routes[path] = Route(tuple(Arc(a, b) for a, b in pairwise(path)))
        return routes[path]

    def cut(home: int, target: int, size: int, pieces: int) -> Pieces:
        if pieces < _EXACT:
            paths = _sampled(solution.few[home], target, pieces)
            return [(n, route(p)) for n, p in zip(split(size, pieces), paths, strict=True) if n]
        shares: dict[Path, float] = {}
        for share, path in solution.trees[home]:
            shares[path[target]] = shares.get(path[target], 0.0) + share
        edges = [0, *(round(size * x) for x in accumulate(shares.values()))]
        edges[-1] = size
        parts = [b - a for a, b in pairwise(edges)]
        return [
            (n, route(p))
            for p, part in zip(shares, parts, strict=True)
            for n in pieces_of(part, max(1, round(pieces * part / max(size, 1))))
        ]

    return cut


def _sampled(trees: Shares, target: int, pieces: int) -> list[Path]:
    """A path for each of a few pieces, such that their numbers follow the shares of the trees."""
    edges = [*accumulate(share for share, _ in trees)][:-1]
    return [trees[bisect_right(edges, (i + 0.5) / pieces)][1][target] for i in range(pieces)]


def _floor(request: Request, guide: Guide) -> float:
    """Byte times of the fullest link if each die's pieces take two trees in turn."""
    load: dict[Link, float] = {}
    size = dict(zip(request.dies, request.shards, strict=True))
    for die in request.dies:
        for turn in (0, 1):
            subtree = dict(size)
            for child, parent in reversed(guide(die, turn).items()):
                load[parent, child] = load.get((parent, child), 0.0) + subtree[child] / 2
                subtree[parent] += subtree[child]
    return max(load.values(), default=0.0)
