"""The algorithms: each makes candidate plans of one collective, for several piece and message sizes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from wscc.collectives.arrange import Arc, Route, arrange
from wscc.collectives.cuts import least_cut, unit_flow
from wscc.collectives.flows import LAYERS, balance
from wscc.collectives.packing import pack
from wscc.collectives.plan import (
    Chunk,
    Op,
    Plan,
    Request,
    backwards,
    pieces_of,
    reduce_then_spread,
    split,
)
from wscc.collectives.spread import Spread
from wscc.collectives.timing import LinkModel
from wscc.collectives.trees import (
    Guide,
    chain_guide,
    direct_guide,
    path_route,
    ring_guide,
    spread_route,
    tree_guide,
    up_and_down,
)
from wscc.machine.topology import Topology

Plans = Iterator[Plan]

# Hops of chunks that a candidate may have: what keeps planning to seconds.
_BUDGET: Final = 70_000
_PIECES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_SEEDS: Final = 6
# Dies up to which an all_to_all is cut in all its layers, whatever the budget.
_LAYERED: Final = 64

GUIDES: Final[dict[str, Callable[[Topology], Guide | None]]] = {
    "ring": ring_guide,
    "chain": chain_guide,
    "tree": tree_guide,
    "direct": direct_guide,
}
ALGORITHMS: Final = ("ring", "chain", "tree", "packing", "direct")


def plans(request: Request, model: LinkModel, algorithm: str) -> Plans:
    """Candidates of one algorithm, none if it does not exist on this mesh (a ring through all dies)."""
    if request.op is Op.REDUCE_SCATTER:
        yield from map(backwards, _gathers(request, model, algorithm))
    elif request.op is Op.ALL_REDUCE:
        yield from _all_reduces(request, model, algorithm)
    elif request.op is Op.ALL_GATHER:
        yield from _gathers(request, model, algorithm)
    elif algorithm == "packing":
        yield from _PACKED[request.op](request, model)
    elif (guide := GUIDES[algorithm](request.topology)) is not None:
        yield from _guided(request, model, algorithm, guide)


# ---- the data of a request in pieces


def _shards(request: Request, pieces: int) -> tuple[list[Chunk], list[int]]:
    """The chunks of a gather, and the number of each among those of its die."""
    chunks, numbers, everyone = list[Chunk](), list[int](), frozenset(request.dies)
    for die, shard in zip(request.dies, request.shards, strict=True):
        for i, size in enumerate(pieces_of(shard, pieces)):
            chunks.append(Chunk(size, frozenset([die]), everyone))
            numbers.append(i)
    return chunks, numbers


def _home(chunk: Chunk) -> int:
    return min(chunk.sources)


def _piece_counts(hops: int, smallest: int, model: LinkModel, most: int = _PIECES[-1]) -> list[int]:
    """Numbers of pieces that stay within the budget and keep a piece of `smallest` bytes above a flit.

    The largest three that do: fewer pieces wait longer, and one is always tried.
    """
    fitting = [
        p for p in _PIECES if p <= most and p * hops <= _BUDGET and (p == 1 or p * model.flit <= smallest)
    ]
    return sorted({1, *fitting[-3:]})


def _limits(smallest: int, model: LinkModel, largest: int) -> list[int]:
    """Bytes that share a message: none where pieces are large already, else whole flits and all."""
    if smallest >= 8 * (model.latency + model.flit):
        return [1]
    flits = [n * model.flit for n in (1, 2, 3, 4, 6, 8, 16, 32, 64)]
    return [1, *(n for n in flits if smallest < n < largest), largest]


# ---- gathers


def _gathers(request: Request, model: LinkModel, algorithm: str) -> Plans:
    dies, shard = len(request.dies), max(request.shards)
    hops = dies * (dies - 1)
    guide = None if algorithm == "packing" else GUIDES[algorithm](request.topology)
    if algorithm != "packing" and guide is None:
        return
    for pieces in _piece_counts(hops, shard, model, most=8):
        chunks, numbers = _shards(request, pieces)
        sizes = [c.bytes for c in chunks]
        for limit in _limits(shard // pieces, model, max(request.bytes, 1)):
            if guide is None:
                yield from _spreads(request, model, chunks, limit, hops)
            else:
                routes = [spread_route(guide(_home(c), n)) for c, n in zip(chunks, numbers, strict=True)]
                messages = arrange(routes, sizes, numbers, model, limit)
                yield Plan(algorithm, tuple(chunks), messages)


def _spreads(
    request: Request, model: LinkModel, chunks: Sequence[Chunk], limit: int, hops: int
) -> Plans:  # fmt: skip
    homes, sizes = [_home(c) for c in chunks], [c.bytes for c in chunks]
    # Ties matter where a few messages are all there are; many average out.
    for seed in range(_SEEDS if hops <= 1000 else 1):
        messages = Spread(request.topology, homes, sizes, model, limit, seed).run()
        yield Plan("packing", tuple(chunks), messages)


# ---- all_reduce


def _all_reduces(request: Request, model: LinkModel, algorithm: str) -> Plans:
    if algorithm == "tree":
        guide = tree_guide(request.topology)
        centre = min(request.dies, key=lambda d: (max(_depths(guide(d, 0)).values(), default=0), d))
        yield from _piped(request, model, "tree", [up_and_down(guide(centre, 0))])
    elif algorithm == "packing":
        yield from _piped(request, model, "packing", [up_and_down(t) for t in pack(request.topology).trees])
        yield from map(reduce_then_spread, _gathers(request, model, algorithm))
    else:
        yield from map(reduce_then_spread, _gathers(request, model, algorithm))


def _depths(tree: dict[int, int]) -> dict[int, int]:
    depth: dict[int, int] = {}
    for child, parent in tree.items():
        depth[child] = depth.get(parent, 0) + 1
    return depth


def _piped(request: Request, model: LinkModel, name: str, routes: Sequence[Route]) -> Plans:
    """The vector in equal parts, one for each route, each cut in pieces that follow one another."""
    everyone = frozenset(request.dies)
    routes = routes or [Route(())]
    hops = sum(len(r.arcs) for r in routes)
    for pieces in _piece_counts(hops, request.bytes // len(routes), model):
        chunks, paths, waves = list[Chunk](), list[Route](), list[int]()
        for route, part in zip(routes, split(request.bytes, len(routes)), strict=True):
            for i, size in enumerate(pieces_of(part, pieces)):
                chunks.append(Chunk(size, everyone, everyone))
                paths.append(route)
                waves.append(i)
        messages = arrange(paths, [c.bytes for c in chunks], waves, model, 1)
        yield Plan(name, tuple(chunks), messages)


# ---- broadcast, p2p, all_to_all


def _guided(request: Request, model: LinkModel, algorithm: str, guide: Guide) -> Plans:
    if request.op is Op.ALL_TO_ALL:
        yield from _exchanges(request, model, algorithm, guide)
        return
    targets = _targets(request)
    tree = guide(request.root, 0)
    hops = len(tree) if request.op is Op.BROADCAST else len(path_route(tree, request.target).arcs)
    for pieces in _piece_counts(max(hops, 1), request.bytes, model):
        parts = list(pieces_of(request.bytes, pieces))
        routes = [_route_of(request, guide(request.root, i)) for i in range(len(parts))]
        yield _sent(request, model, algorithm, parts, routes, targets)


def _targets(request: Request) -> frozenset[int]:
    return frozenset(request.dies if request.op is Op.BROADCAST else [request.target])


def _route_of(request: Request, tree: dict[int, int]) -> Route:
    return spread_route(tree) if request.op is Op.BROADCAST else path_route(tree, request.target)


def _sent(
    request: Request, model: LinkModel, algorithm: str, parts: Sequence[int], routes: Sequence[Route],
    targets: frozenset[int],
) -> Plan:  # fmt: skip
    chunks = tuple(Chunk(n, frozenset([request.root]), targets) for n in parts)
    return Plan(algorithm, chunks, arrange(routes, parts, range(len(parts)), model, 1))


def _broadcasts(request: Request, model: LinkModel) -> Plans:
    """Pieces spread as in a gather, all from one die."""
    everyone = frozenset(request.dies)
    for pieces in _piece_counts(len(request.dies), request.bytes, model):
        chunks = [Chunk(n, frozenset([request.root]), everyone) for n in pieces_of(request.bytes, pieces)]
        yield from _spreads(request, model, chunks, 1, len(chunks) * len(request.dies))


def _parallel_paths(request: Request, model: LinkModel) -> Plans:
    """As many paths without a common link as there are (Menger), the message shared equally among them."""
    paths = disjoint_paths(request.topology, request.root, request.target) or [Route(())]
    for pieces in _piece_counts(max(sum(len(p.arcs) for p in paths), 1), request.bytes, model):
        parts = list(pieces_of(request.bytes, pieces * len(paths)))
        routes = [paths[i % len(paths)] for i in range(len(parts))]
        yield _sent(request, model, "packing", parts, routes, frozenset([request.target]))


def disjoint_paths(topology: Topology, source: int, target: int) -> list[Route]:
    """Paths from `source` to `target` that share no link, as many as the narrowest cut has links."""
    if source == target:
        return []
    used = unit_flow(topology, source, target)
    paths = []
    for _ in range(least_cut(topology, source, target)):
        path = [source]
        while path[-1] != target:
            step = used[path[-1]].pop()
            path = path[: path.index(step) + 1] if step in path else [*path, step]
        paths.append(Route(tuple(_arcs(path))))
    return paths


def _arcs(path: Sequence[int]) -> list[Arc]:
    return [Arc(a, b) for a, b in itertools.pairwise(path)]


def _balanced(request: Request, model: LinkModel) -> Plans:
    """all_to_all over the trees that load the fullest link least; a piece for each layer of them."""
    found = balance(request.topology)

    def guide(home: int, piece: int) -> dict[int, int]:
        return found.trees[home][piece % len(found.trees[home])]

    return _exchanges(request, model, "packing", guide)


def _exchanges(request: Request, model: LinkModel, algorithm: str, guide: Guide) -> Plans:
    dies = request.dies
    part = max(request.shards)
    counts = _piece_counts(4 * len(dies) ** 2, part, model, most=16)
    if algorithm == "packing" and len(dies) <= _LAYERED and part >= LAYERS * model.flit:
        # Fewer pieces than layers would leave some of the balanced paths unused.
        counts = [n for n in counts if n == 1 or n % LAYERS == 0] + ([LAYERS] if LAYERS not in counts else [])
    for pieces in counts:
        chunks, routes = list[Chunk](), list[Route]()
        for home in dies:
            for target, size in zip(dies, request.shards, strict=True):
                if home != target:
                    for i, n in enumerate(pieces_of(size, pieces)):
                        chunks.append(Chunk(n, frozenset([home]), frozenset([target])))
                        routes.append(path_route(guide(home, i), target))
        sizes = [c.bytes for c in chunks]
        for limit in _limits(part // pieces, model, max(request.bytes, 1)):
            yield Plan(algorithm, tuple(chunks), arrange(routes, sizes, [0] * len(sizes), model, limit))


_PACKED: Final[dict[Op, Callable[[Request, LinkModel], Plans]]] = {
    Op.BROADCAST: _broadcasts,
    Op.P2P: _parallel_paths,
    Op.ALL_TO_ALL: _balanced,
}
