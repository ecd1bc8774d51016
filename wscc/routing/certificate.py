"""A proof that no routing keeps every link under some number of bytes, checked exactly.

For any lengths of links that are not negative, bytes x length summed over links is at least the bytes of every
demand times the length of its shortest path; so the largest load is at least that, divided by the sum of the
lengths (the dual of the maximum concurrent flow, F. Shahrokhi, D. Matula, J. ACM 37(2), 1990). This file shares
nothing with the router: whole numbers, one source after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from wscc.machine.topology import Topology
from wscc.routing.flows import Flow


@dataclass(frozen=True, slots=True)
class Certificate:
    """`lengths`, by link in the order of `topology.links`, prove that some link carries `bytes` or more."""

    lengths: tuple[int, ...]
    bytes: int


def certify(topology: Topology, flows: Sequence[Flow], lengths: Sequence[int]) -> Certificate:
    """What the lengths (whole, none negative) prove about the flows, rounded down. Flows of the same bytes count
    once, with their farthest destination; pinned flows by the link that they keep."""
    length = dict(zip(topology.links, lengths, strict=True))
    assert min(lengths, default=0) >= 0
    kept = sum(f.bytes * length[f.source, f.destination] for f in flows if f.pinned)
    wanted: dict[int, dict[object, tuple[int, list[int]]]] = {}
    for i, f in enumerate(flows):
        if not f.pinned and f.source != f.destination:
            key = i if f.content is None else f.content
            wanted.setdefault(f.source, {}).setdefault(key, (f.bytes, []))[1].append(f.destination)
    total = kept
    for source, groups in wanted.items():
        far = _distances(topology, length, source)
        total += sum(size * max(far[d] for d in ends) for size, ends in groups.values())
    whole = sum(lengths)
    return Certificate(tuple(lengths), total // whole if whole else 0)


def _distances(topology: Topology, length: dict[tuple[int, int], int], source: int) -> dict[int, int]:
    """Lengths of shortest paths from a die (E. Dijkstra, 1959)."""
    best: dict[int, int] = {}
    queue = [(0, source)]
    while queue:
        far, die = heappop(queue)
        if die not in best:
            best[die] = far
            for n in topology.neighbours[die]:
                if n not in best:
                    heappush(queue, (far + length[die, n], n))
    return best
