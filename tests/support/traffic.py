"""Traffic for tests and benchmarks of the router: what phases of a training step look like, by seed."""

from __future__ import annotations

import random
from collections.abc import Sequence

from wscc.machine.topology import Topology, mesh_topology
from wscc.machine.wafer import Wafer, dead_link
from wscc.routing.flows import Flow

MB = 1 << 20


def mesh(rows: int, cols: int) -> Topology:
    return mesh_topology(Wafer("w", rows, cols))


def damaged(rows: int, cols: int, dies: int, links: int, seed: int) -> Topology:
    """A mesh with so many dies and links dead, wherever the seed puts them."""
    draw = random.Random(seed)
    places = [(r, c) for r in range(rows) for c in range(cols)]
    beside = [((r, c), n) for r, c in places for n in ((r, c + 1), (r + 1, c)) if n[0] < rows and n[1] < cols]
    return mesh_topology(
        Wafer(
            "w",
            rows,
            cols,
            dead_dies=frozenset(draw.sample(places, dies)),
            dead_links=frozenset(dead_link(*pair) for pair in draw.sample(beside, links)),
        )
    )


def permutation(topology: Topology, seed: int, size: int = MB, times: int = 1) -> list[Flow]:
    """Every die of the largest island sends to another one and receives from another one, `times` over."""
    draw = random.Random(seed)
    dies = topology.islands[0]
    flows: list[Flow] = []
    for _ in range(times):
        shuffled = list(dies)
        draw.shuffle(shuffled)
        flows += [Flow(a, b, size) for a, b in zip(dies, shuffled, strict=True) if a != b]
    return flows


def tatp_and_dp(topology: Topology, seed: int, tatp: int = 8) -> list[Flow]:
    """Streams both ways round rings of `tatp` dies, and gradient rings through the dies of one rank, with the
    dies shuffled: what a bad placement makes of TATP + DP."""
    draw = random.Random(seed)
    dies = list(topology.islands[0])
    draw.shuffle(dies)
    groups = [dies[i : i + tatp] for i in range(0, len(dies) - tatp + 1, tatp)]
    flows = [
        Flow(ring[i], ring[(i + way) % tatp], 4 * MB)
        for ring in groups
        for i in range(tatp)
        for way in (1, -1)
    ]
    for rank in range(tatp if len(groups) > 1 else 0):
        ring = [group[rank] for group in groups]
        flows += [Flow(a, b, 7 * MB // 2) for a, b in zip(ring, ring[1:] + ring[:1], strict=True)]
    return flows


def gather(groups: Sequence[Sequence[int]], size: int) -> list[Flow]:
    """Every die of a group sends its shard to all others of the group: the same bytes for all of them."""
    return [Flow(a, b, size, "shard") for group in groups for a in group for b in group if a != b]


def blocks(rows: int, cols: int) -> list[list[int]]:
    """The 2 x 2 blocks of a mesh, each in the order of a ring."""
    return [
        [r * cols + c, r * cols + c + 1, (r + 1) * cols + c + 1, (r + 1) * cols + c]
        for r in range(0, rows, 2)
        for c in range(0, cols, 2)
    ]


def fsdp_and_tatp(stream: int, shard: int) -> list[Flow]:
    """On 4 x 4: TATP streams both ways round the rings of the 2 x 2 blocks, and at once the FSDP gather of the
    dies that have the same place in their blocks."""
    rings = blocks(4, 4)
    streams = [
        Flow(ring[i], ring[(i + way) % 4], stream, None, True)
        for ring in rings
        for i in range(4)
        for way in (1, -1)
    ]
    return streams + gather([[ring[i] for ring in rings] for i in range(4)], shard)
