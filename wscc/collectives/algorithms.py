"""The algorithms of collectives: families of candidate plans of each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

from wscc.collectives.arrange import Arc, Route, arrange
from wscc.collectives.cuts import least_cut, unit_flow
from wscc.collectives.exchanges import exchanges
from wscc.collectives.family import BUDGET, MOST_PIECES, Family, piece_counts, pipelined
from wscc.collectives.gathers import gathers, matched_plan
from wscc.collectives.hierarchy import system_trees
from wscc.collectives.packing import pack
from wscc.collectives.plan import (
    COPY,
    REDUCE,
    Chunk,
    Link,
    Op,
    Plan,
    Request,
    pieces_of,
    reduce_then_gather,
    split,
    time_reversal,
)
from wscc.collectives.timing import LinkModel
from wscc.collectives.trees import GUIDES, OutTree, broadcast_route, path_route, tree_guide, up_and_down
from wscc.machine.topology import Topology

ALGORITHMS: Final = ("ring", "chain", "tree", "packing", "direct")
# Of systems alone: for all_reduce.
HIERARCHICAL: Final = "hierarchical"

Families = Iterator[Family]
# A chunk each, whatever its size: where pieces of one route follow one another.
_ONE_LIMIT: Final = (1,)
# Hops of chunks of a plan for a system: a longer pipeline takes more pieces to fill.
_SYSTEM_HOPS: Final = 1 << 21
# Pieces for each that it takes to fill the pipeline: what that takes is then a few per cent.
_FILLED: Final = 96


def families(request: Request, model: LinkModel, algorithm: str) -> Families:
    """Families of plans of one algorithm; none if it does not exist on this mesh (a ring through all dies)."""
    if algorithm == HIERARCHICAL:
        if request.op is Op.ALL_REDUCE and request.topology.wafers is not None:
            yield from _hierarchical(request, model)
        return
    match request.op:
        case Op.ALL_GATHER:
            yield from gathers(request, model, algorithm)
        case Op.REDUCE_SCATTER:
            yield from _reversed(request, model, algorithm)
        case Op.ALL_REDUCE:
            yield from _all_reduces(request, model, algorithm)
        case Op.ALL_TO_ALL:
            yield from exchanges(request, model, algorithm)
        case Op.BROADCAST | Op.P2P:
            yield from _sends(request, model, algorithm)


def _reversed(request: Request, model: LinkModel, algorithm: str) -> Families:
    """Time reversals of gathers without early relays: a sum is passed on only when all of it is there."""
    for family in gathers(request, model.without_early_relays(), algorithm):
        yield family.changed(time_reversal)


# ---- all_reduce


def _all_reduces(request: Request, model: LinkModel, algorithm: str) -> Families:
    if algorithm == "tree":
        guide = tree_guide(request.topology)
        centre = min(request.dies, key=lambda d: (max(_depths(guide(d, 0)).values(), default=0), d))
        yield _piped(request, model, "tree", [guide(centre, 0)])
        return
    if algorithm == "packing":
        yield _piped(request, model, "packing", pack(request.topology).trees)
    for family in gathers(request, model.without_early_relays(), algorithm):
        yield family.changed(reduce_then_gather)


def _hierarchical(request: Request, model: LinkModel) -> Families:
    trees = system_trees(request.topology, model)
    if trees:
        routes = [up_and_down(tree) for tree in trees]
        busy: dict[Link, float] = {}
        for a in (arc for route in routes for arc in route.arcs):
            busy[a.src, a.dst] = busy.get((a.src, a.dst), 0.0) + model.on((a.src, a.dst)).byte
        filled = max(_span(route, model) for route in routes) / max(busy.values())
        yield _piped(request, model, HIERARCHICAL, trees, _SYSTEM_HOPS, int(_FILLED * filled))


def _span(route: Route, model: LinkModel) -> float:
    """Byte times of a byte along the longest chain of hops of a route."""
    at: dict[int, float] = {}
    for a in route.arcs:
        at[a.dst] = max(at.get(a.dst, 0.0), at.get(a.src, 0.0) + model.on((a.src, a.dst)).byte)
    return max(at.values(), default=0.0)


def _depths(tree: OutTree) -> dict[int, int]:
    """Hops from the root of a tree to each other die."""
    depth: dict[int, int] = {}
    for child, parent in tree.items():
        depth[child] = depth.get(parent, 0) + 1
    return depth


def _piped(
    request: Request, model: LinkModel, name: str, trees: Sequence[OutTree], budget: int = BUDGET,
    most: int = MOST_PIECES,
) -> Family:  # fmt: skip
    """The vector in equal parts, one for each tree, each cut in pieces that follow one another up and down."""
    routes = [up_and_down(tree) for tree in trees] or [Route(())]
    everyone = frozenset(request.dies)

    def plan(pieces: int, limit: int, seed: int) -> Plan:
        chunks, paths, waves = list[Chunk](), list[Route](), list[int]()
        for route, part in zip(routes, split(request.bytes, len(routes)), strict=True):
            for i, size in enumerate(pieces_of(part, pieces)):
                chunks.append(Chunk(size, everyone, everyone))
                paths.append(route)
                waves.append(i)
        messages = arrange(paths, [c.bytes for c in chunks], waves, model, limit)
        return Plan(name, tuple(chunks), messages)

    hops = sum(len(r.arcs) for r in routes) or 1
    counts = piece_counts(hops, request.bytes // len(routes), model, most, budget)
    crossed = [{link for a in r.arcs if (link := (a.src, a.dst))} for r in routes]
    fullest = max((sum(link in links for links in crossed) for link in request.topology.links), default=0)
    part = request.bytes // len(routes)
    depth = max((r.tails[0] for r in routes if r.arcs), default=1)
    return Family(plan, _rows(counts), pipelined(part, depth, model, REDUCE), floor=fullest * part)


def _rows(counts: Sequence[int]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    return tuple((pieces, _ONE_LIMIT) for pieces in counts)


# ---- broadcast and p2p


def _sends(request: Request, model: LinkModel, algorithm: str) -> Families:
    if algorithm != "packing":
        guide = GUIDES[algorithm](request.topology)
        if guide is not None:
            yield _along(
                request, model, algorithm, [_route_of(request, guide(request.root, i)) for i in (0, 1)]
            )
    elif request.op is Op.P2P:
        # As many paths without a common link as there are (Menger), the message shared among them.
        paths = disjoint_paths(request.topology, request.root, request.target)
        yield _along(request, model, algorithm, paths or [Route(())])
    else:
        yield _broadcast(request, model)


def _route_of(request: Request, tree: OutTree) -> Route:
    return broadcast_route(tree) if request.op is Op.BROADCAST else path_route(tree, request.target)


def _along(request: Request, model: LinkModel, algorithm: str, routes: Sequence[Route]) -> Family:
    """Pieces that take the routes in turn; in a packing, as many on each."""
    shared = len(routes) if algorithm == "packing" else 1
    targets = frozenset(request.dies if request.op is Op.BROADCAST else [request.target])

    def plan(pieces: int, limit: int, seed: int) -> Plan:
        parts = list(pieces_of(request.bytes, pieces * shared))
        chunks = tuple(Chunk(n, frozenset([request.root]), targets) for n in parts)
        by_piece = [routes[i % len(routes)] for i in range(len(parts))]
        return Plan(algorithm, chunks, arrange(by_piece, parts, range(len(parts)), model, limit))

    hops = max(max(len(r.arcs) for r in routes) * shared, 1)
    part = request.bytes // shared
    depth = max((r.tails[0] for r in routes if r.arcs), default=1)
    return Family(plan, _rows(piece_counts(hops, part, model)), pipelined(part, depth, model, COPY))


def _broadcast(request: Request, model: LinkModel) -> Family:
    """Pieces matched with links as in a gather, all from one die."""
    everyone = frozenset(request.dies)

    def plan(pieces: int, limit: int, seed: int) -> Plan:
        chunks = [Chunk(n, frozenset([request.root]), everyone) for n in pieces_of(request.bytes, pieces)]
        return matched_plan(request, model, chunks, limit, seed)

    counts = piece_counts(len(request.dies), request.bytes, model)
    farthest = max(request.topology.distance(d, request.root) for d in request.dies)
    return Family(plan, _rows(counts), pipelined(request.bytes, farthest, model, COPY))


def disjoint_paths(topology: Topology, source: int, target: int) -> list[Route]:
    """Paths from `source` to `target` that share no link, as many as the narrowest cut has links."""
    if source == target:
        return []
    successors = unit_flow(topology, source, target)
    paths = []
    for _ in range(least_cut(topology, source, target)):
        path = [source]
        while path[-1] != target:
            step = successors[path[-1]].pop()
            path = path[: path.index(step) + 1] if step in path else [*path, step]
        paths.append(Route(tuple(Arc(a, b) for a, b in itertools.pairwise(path))))
    return paths
