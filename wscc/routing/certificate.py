"""Certificates: proofs, checked in whole numbers, that every routing loads some link with a number of bytes.

For any lengths of links that are not negative, bytes x length summed over links is at least the bytes of every
demand times the length of its shortest path; so the largest load is at least that, divided by the sum of the
lengths, each by the byte times that a byte takes on its link (the dual of the maximum concurrent flow,
F. Shahrokhi, D. Matula, J. ACM 37(2), 1990). This file shares nothing with the router: whole numbers, one source
after the other.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush

from wscc.machine.topology import Topology
from wscc.routing.flows import Flow


@dataclass(frozen=True, slots=True)
class Certificate:
    """`lengths`, by link in the order of `topology.links`, prove that some link carries `bytes` or more, counted in
    byte times of the wafer's own links where not all are alike."""

    lengths: tuple[int, ...]
    bytes: int


def certify(topology: Topology, flows: Sequence[Flow], lengths: Sequence[int]) -> Certificate:
    """The bound that `lengths` (one by link, whole, none negative) prove for the flows, rounded down to bytes.

    Flows of the same bytes count once, with their farthest destination; pinned flows by the link that they keep."""
    length = dict(zip(topology.links, lengths, strict=True))
    assert min(lengths, default=0) >= 0
    if not any(lengths):
        return Certificate(tuple(lengths), 0)
    onward = [[(n, length[die, n]) for n in near] for die, near in enumerate(topology.neighbours)]
    total = sum(f.bytes * length[f.source, f.destination] for f in flows if f.pinned)
    contents: dict[int, dict[object, tuple[int, list[int]]]] = {}
    for i, f in enumerate(flows):
        if not f.pinned and f.source != f.destination:
            key = i if f.content is None else f.content
            contents.setdefault(f.source, {}).setdefault(key, (f.bytes, []))[1].append(f.destination)
    for source, groups in contents.items():
        distance = _distances(onward, source, {d for _, ends in groups.values() for d in ends})
        total += sum(size * max(distance[d] for d in ends) for size, ends in groups.values())
    slow = topology.byte_times
    length_sum: int | Fraction = sum(lengths)
    if slow is not None:
        length_sum = sum((n / Fraction(t) for n, t in zip(lengths, slow, strict=True)), Fraction())
    return Certificate(tuple(lengths), int(total // length_sum))


def _distances(onward: Sequence[Sequence[tuple[int, int]]], source: int, ends: Set[int]) -> dict[int, int]:
    """Lengths of shortest paths from a die, to some `ends` at least (E. Dijkstra, 1959). `onward`: the neighbours of
    each die, with the lengths of the links to them."""
    distance: dict[int, int] = {}
    left = len(ends)
    queue = [(0, source)]
    while queue and left:
        reached, die = heappop(queue)
        if die not in distance:
            distance[die] = reached
            left -= die in ends
            for n, length in onward[die]:
                if n not in distance:
                    heappush(queue, (reached + length, n))
    return distance
