"""A replay of an exported plan of an all_reduce on a system, from its lines and the facts of the links alone."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from wscc.machine.wafer import Wafer

Place = tuple[int, int]

# Relative slack of times that were added up in another order, and printed.
_SLACK = 1e-9


@dataclass(frozen=True)
class Links:
    """Facts of a system of meshes of `height` x `width` dies, in `rows` x `cols` in all: bytes per second, seconds and
    flits of a link of a wafer, and of one port between two wafers (which any two neighbours across have)."""

    rows: int
    cols: int
    height: int
    width: int
    own: tuple[float, float, int]
    port: tuple[float, float, int]

    @staticmethod
    def of(wafer: Wafer) -> Links:
        """Those of a system whose edges are alike."""
        assert wafer.joint is not None
        own, port = wafer.link, wafer.joint.links[0]
        assert port == wafer.joint.links[1]
        facts = ((k.bandwidth, k.latency, k.flit) for k in (own, port))
        return Links(wafer.rows, wafer.cols, wafer.joint.rows, wafer.joint.cols, *facts)

    def between(self, a: Place, b: Place) -> tuple[float, float, int]:
        """The facts of the link of two neighbours."""
        assert abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1, (a, b)
        assert all(0 <= r < self.rows and 0 <= c < self.cols for r, c in (a, b)), (a, b)
        wafers = [(r // self.height, c // self.width) for r, c in (a, b)]
        return self.own if wafers[0] == wafers[1] else self.port


def seconds_of_all_reduce(lines: Iterable[str], links: Links, size: int) -> float:
    """When the last byte is there, of a plan whose messages carry one chunk each; `AssertionError` where a link carries
    two messages at once, a message is too short for its bytes or leaves before they are there, something is added
    twice, or a die ends without the sum of all."""
    everyone = (1 << links.rows * links.cols) - 1
    held: dict[tuple[Place, int], int] = {}
    free: dict[tuple[Place, Place], float] = defaultdict(float)
    sizes: dict[int, int] = {}
    events: list[tuple[float, int, int, Any]] = []
    for number, line in enumerate(lines):
        m = json.loads(line)
        source, to, chunk, start = tuple(m["src"]), tuple(m["dst"]), m["chunk"], m["start"]
        bandwidth, latency, flit = links.between(source, to)
        busy = -(-m["bytes"] // flit) * flit / bandwidth
        assert start >= free[source, to] * (1 - _SLACK), f"message {number} shares its link"
        assert m["end"] >= (start + busy + latency) * (1 - _SLACK), f"message {number} is too short"
        assert sizes.setdefault(chunk, m["bytes"]) == m["bytes"]
        free[source, to] = start + busy
        # At the same moment what arrives is there for what leaves.
        events += [(start * (1 + _SLACK), 1, number, m), (m["end"], 0, number, m)]
    flying: dict[int, int] = {}
    for _, leaves, number, m in sorted(events, key=lambda e: e[:3]):
        source, to, chunk = tuple(m["src"]), tuple(m["dst"]), m["chunk"]
        if leaves:
            flying[number] = held.get((source, chunk), _own(source, links))
            continue
        before, value = held.get((to, chunk), _own(to, links)), flying.pop(number)
        assert m["op"] == "copy" or not before & value, f"message {number} adds twice"
        held[to, chunk] = value if m["op"] == "copy" else before | value
    assert sum(sizes.values()) == size
    dies = [(r, c) for r in range(links.rows) for c in range(links.cols)]
    assert all(held.get((die, chunk)) == everyone for die in dies for chunk in sizes)
    return max(time for time, leaves, _, _ in events if not leaves)


def _own(die: Place, links: Links) -> int:
    """The bit of what a die contributes."""
    row, col = die
    return 1 << row * links.cols + col
