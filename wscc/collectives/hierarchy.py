"""The hierarchical all_reduce of a system: inside each wafer along packed trees, between wafers over all ports at once.

A part of the vector takes a spanning tree of the system: the same tree of a packing on every wafer, and a tree of the
wafers whose links are ports, in turn. Up it adds inside the wafers and across, down it tells. Parts are cut in pieces
that follow one another, so that the levels overlap: what a link carries is what it carries on a wafer alone, and each
port has its share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle, islice, product

from wscc.collectives.packing import Tree, pack, rooted_at_centre
from wscc.collectives.plan import Link, Request
from wscc.collectives.timing import LinkModel
from wscc.collectives.trees import OutTree
from wscc.machine.topology import Topology
from wscc.machine.wafer import Wafer

# Copies of the packing of a wafer among which ports are shared out: the least number that does it well is taken.
_COPIES = range(1, 9)
_GOOD = 1.02


def system_trees(topology: Topology, model: LinkModel) -> list[OutTree]:
    """Spanning trees of a whole system for equal parts of a vector; none where it is damaged."""
    assert topology.grid is not None
    assert topology.wafers is not None
    (rows, cols), (height, width) = topology.grid, topology.wafers
    if len(topology.live) < rows * cols:
        return []
    inner = [_links(tree) for tree in pack(Topology.mesh(Wafer("wafer", height, width))).trees]
    outer = [
        _links(tree) for tree in pack(Topology.mesh(Wafer("wafers", rows // height, cols // width))).trees
    ]
    ports = _ports(topology)
    if not inner or not outer or any(not ports.get(link) for tree in outer for link in tree):
        return []
    tried: list[tuple[float, list[Tree]]] = []
    for copies in _COPIES:
        joined, load = _joined(list(islice(cycle(outer), copies * len(inner))), ports, model)
        tried.append((load / len(joined), joined))
        if tried[-1][0] <= _GOOD * _even(outer, ports, model):
            break
    joined = min(tried, key=lambda t: t[0])[1]
    trees = []
    for i, across in enumerate(joined):
        own = {
            (_die(topology, w, a), _die(topology, w, b))
            for w in product(range(rows // height), range(cols // width))
            for a, b in inner[i % len(inner)]
        }
        trees.append(rooted_at_centre(own | across))
    return trees


def _links(tree: OutTree) -> list[Link]:
    return sorted((min(link), max(link)) for link in tree.items())


def _die(topology: Topology, wafer: tuple[int, int], die: int) -> int:
    """The die of a system that a die of one wafer is on another."""
    assert topology.grid is not None
    assert topology.wafers is not None
    (height, width), cols = topology.wafers, topology.grid[1]
    r, c = divmod(die, width)
    return (wafer[0] * height + r) * cols + wafer[1] * width + c


def _ports(topology: Topology) -> dict[Link, list[Link]]:
    """By two wafers (their numbers, row by row), the links that join them."""
    assert topology.grid is not None
    assert topology.wafers is not None
    (height, width), across = topology.wafers, topology.grid[1] // topology.wafers[1]

    def wafer(die: int) -> int:
        r, c = topology.coordinate(die)
        return r // height * across + c // width

    ports: dict[Link, list[Link]] = {}
    for a, b in topology.links:
        if a < b and wafer(a) != wafer(b):
            ends = wafer(a), wafer(b)
            ports.setdefault((min(ends), max(ends)), []).append((a, b))
    return ports


def _joined(
    trees: Sequence[Sequence[Link]], ports: dict[Link, list[Link]], model: LinkModel
) -> tuple[list[Tree], float]:
    """Of each tree of wafers, a port for each of its links, the least loaded one; and the largest load, in byte times
    of a part."""
    load = {port: 0.0 for both in ports.values() for port in both}
    joined: list[Tree] = []
    for tree in trees:
        chosen: Tree = set()
        for link in tree:
            port = min(ports[link], key=lambda p: (load[p], p))
            load[port] += model.on(port).byte
            chosen.add(port)
        joined.append(chosen)
    return joined, max(load.values())


def _even(outer: Sequence[Sequence[Link]], ports: dict[Link, list[Link]], model: LinkModel) -> float:
    """The largest load of a port if all of an edge shared its bytes evenly, in byte times of the vector."""
    return max(
        sum(link in tree for tree in outer) / len(outer) / sum(1 / model.on(p).byte for p in both)
        for link, both in ports.items()
    )


def partition_bound(request: Request, model: LinkModel) -> float:
    """Byte times that an all_reduce takes at least, by the best of some partitions of the dies: 2 (parts - 1) crossings
    of every byte, over what the links between the parts carry in a byte time (as `bounds` on one wafer)."""
    topology = request.topology
    best = 0.0
    for part_of in _partitions(topology):
        capacity = sum(1 / model.on((a, b)).byte for a, b in topology.links if part_of[a] != part_of[b])
        parts = len({part_of[d] for d in topology.live})
        if capacity:
            best = max(best, 2 * (parts - 1) / capacity)
    return request.bytes * best


def _partitions(topology: Topology) -> Iterator[dict[int, int]]:
    """By die its part: every die alone, the wafers, one wafer in dies beside the rest, two halves by a straight cut,
    and one die against the rest."""
    assert topology.grid is not None
    assert topology.wafers is not None
    (rows, cols), (height, width) = topology.grid, topology.wafers
    place = {d: topology.coordinate(d) for d in topology.live}
    yield {d: d for d in topology.live}
    wafer = {d: r // height * cols + c // width for d, (r, c) in place.items()}
    yield wafer
    for w in sorted(set(wafer.values())):
        yield {d: d if wafer[d] == w else -1 for d in topology.live}
    yield from ({d: int(r >= line) for d, (r, _) in place.items()} for line in range(1, rows))
    yield from ({d: int(c >= line) for d, (_, c) in place.items()} for line in range(1, cols))
    yield from ({d: int(d == one) for d in topology.live} for one in topology.live)
