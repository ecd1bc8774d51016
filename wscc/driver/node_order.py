"""The order of the nodes of a graph: each die gets consecutive ones, and edges should join nodes of one die.

METIS (Karypis and Kumar, SIAM J. Sci. Comput. 20 (1998)) finds the parts where the extra `graphs` is installed. Without
it networkx does: by swaps of nodes (Kernighan and Lin, Bell System Tech. J. 49 (1970)), or, of large graphs, as runs of
an order of small bandwidth (Cuthill and McKee, ACM 1969). Parts then lie round the ring next to those with which they
share most edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import networkx as nx

Nodes = NDArray[np.int64]
Pairs = NDArray[Any]

# Swaps take a while: on graphs of more nodes they are left to METIS.
_MOST_SWAPPED: Final = 2048


def node_order(edges: Pairs, nodes: int, parts: int) -> Nodes:
    """The nodes in their new order: the first `nodes / parts` are the first part, and so on. Equal arguments give equal
    orders, on computers that have the same libraries. `parts` divides `nodes`."""
    pairs = _both_ways(edges)
    if find_spec("pymetis"):
        part_of = _by_metis(pairs, nodes, parts)
    elif nodes <= _MOST_SWAPPED:
        part_of = _by_swaps(pairs, nodes, parts)
    else:
        part_of = _by_bandwidth(pairs, nodes, parts)
    part_of = _of_equal_size(part_of, pairs, nodes // parts)
    place = np.empty(parts, np.int64)
    place[_round_the_ring(_shared(part_of, pairs, parts))] = np.arange(parts)
    return np.argsort(place[part_of], kind="stable")


def _both_ways(edges: Pairs) -> Pairs:
    """Each pair of different nodes that edges join, both ways, in order, and the number of these edges."""
    both = np.concatenate([edges, edges[:, ::-1]]).astype(np.int64)
    pairs, counts = np.unique(both[both[:, 0] != both[:, 1]], axis=0, return_counts=True)
    return np.column_stack([pairs, counts])


def _by_metis(pairs: Pairs, nodes: int, parts: int) -> Nodes:
    import pymetis  # here, for it is an optional extra

    options = pymetis.Options()
    options.seed, options.ufactor = 1, 1
    starts = np.searchsorted(pairs[:, 0], np.arange(nodes + 1)).astype(np.int32)
    adjacency = pymetis.CSRAdjacency(starts, np.ascontiguousarray(pairs[:, 1], np.int32))
    found = pymetis.part_graph(parts, adjacency, eweights=pairs[:, 2].astype(np.int32), options=options)
    return np.array(found.vertex_part, np.int64)


def _graph(pairs: Pairs, nodes: int) -> nx.Graph[int]:
    import networkx as nx

    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(nodes))
    graph.add_weighted_edges_from(pairs.tolist())
    return graph


def _by_swaps(pairs: Pairs, nodes: int, parts: int) -> Nodes:
    """The better of two: halves of halves, from the order of the numbers and from one of small bandwidth, in which
    neighbours stand together."""
    graph = _graph(pairs, nodes)
    found = [_swapped(graph, order, parts) for order in (list(range(nodes)), _narrow(graph))]
    return min(found, key=lambda part_of: _cut(part_of, pairs))


def _cut(part_of: Nodes, pairs: Pairs) -> int:
    return int(pairs[part_of[pairs[:, 0]] != part_of[pairs[:, 1]], 2].sum())


def _swapped(graph: nx.Graph[int], order: list[int], parts: int) -> Nodes:
    out = np.zeros(len(order), np.int64)
    for part, members in enumerate(_halved(graph, order, parts)):
        out[members] = part
    return out


def _halved(graph: nx.Graph[int], members: list[int], parts: int) -> Iterator[list[int]]:
    """Members in so many parts of equal size, by halves of halves, each of which keeps their order."""
    import networkx as nx

    if parts == 1:
        yield members
        return
    low = parts // 2
    cut = len(members) * low // parts
    sides = nx.community.kernighan_lin_bisection(
        graph.subgraph(members), partition=(set(members[:cut]), set(members[cut:])), seed=0
    )
    for side, count in zip(sorted(sides, key=len), (low, parts - low), strict=True):
        yield from _halved(graph, [n for n in members if n in side], count)


def _narrow(graph: nx.Graph[int]) -> list[int]:
    import networkx as nx

    return list(nx.utils.reverse_cuthill_mckee_ordering(graph))


def _by_bandwidth(pairs: Pairs, nodes: int, parts: int) -> Nodes:
    out = np.empty(nodes, np.int64)
    out[_narrow(_graph(pairs, nodes))] = np.arange(nodes) // (nodes // parts)
    return out


def _of_equal_size(part_of: Nodes, pairs: Pairs, size: int) -> Nodes:
    """The parts with nodes moved from those that have more than `size` to those that have fewer: the ones with the
    fewest neighbours in their part."""
    inside = np.bincount(pairs[:, 0][part_of[pairs[:, 0]] == part_of[pairs[:, 1]]], minlength=len(part_of))
    order = np.lexsort((-inside, part_of))
    ranks = np.empty(len(part_of), np.int64)
    starts = np.searchsorted(part_of[order], np.arange(len(part_of) // size))
    ranks[order] = np.arange(len(part_of)) - starts[part_of[order]]
    surplus = np.flatnonzero(ranks >= size)
    counts = np.bincount(part_of, minlength=len(part_of) // size)
    out = part_of.copy()
    out[surplus] = np.repeat(np.arange(len(counts)), (size - counts).clip(0))
    return out


def _shared(part_of: Nodes, pairs: Pairs, parts: int) -> Nodes:
    """The number of edges between each two parts."""
    numbers = part_of[pairs[:, 0]] * parts + part_of[pairs[:, 1]]
    return np.bincount(numbers, pairs[:, 2], parts * parts).reshape(parts, parts)


def _round_the_ring(shared: Nodes) -> list[int]:
    """The parts in order: each next to the one, of those left, with which it shares most edges."""
    order, left = [0], set(range(1, len(shared)))
    while left:
        order.append(max(left, key=lambda p: (shared[order[-1], p], -p)))
        left.remove(order[-1])
    return order
