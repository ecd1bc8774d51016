"""Loads of links, counted exactly from the pieces of a routing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from wscc.machine.topology import Hop, Topology
from wscc.routing.flows import Ints, Piece


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """The load of one directed link (two physical dies).

    `messages` are the pieces that cross it, of which all but one queue when they come at once (`queueing`);
    `conflicts` are the pairs of them that come from different links or from the die itself, so that its router
    has to choose between them.
    """

    link: Hop
    bytes: int
    messages: int
    conflicts: int

    @property
    def queueing(self) -> int:
        return max(0, self.messages - 1)


def link_numbers(topology: Topology) -> dict[Hop, int]:
    """The index of every directed link in `topology.links`."""
    return {link: i for i, link in enumerate(topology.links)}


def link_loads(topology: Topology, pieces: Iterable[Piece], numbers: dict[Hop, int]) -> Ints:
    """Byte times by link, in the order of `topology.links`; a link shared by paths of one piece counts once."""
    crossed = (
        (
            p.bytes,
            pairwise(p.paths[0]) if len(p.paths) == 1 else {h for path in p.paths for h in pairwise(path)},
        )
        for p in pieces
    )
    return in_byte_times(topology, sums_by_link(numbers, crossed))


def sums_by_link(numbers: dict[Hop, int], crossed: Iterable[tuple[int, Iterable[Hop]]]) -> Ints:
    """The sum by link of what is given with the links that it crosses."""
    amounts: list[int] = []
    counts: list[int] = []
    links: list[int] = []
    for amount, hops in crossed:
        before = len(links)
        links += [numbers[hop] for hop in hops]
        amounts.append(amount)
        counts.append(len(links) - before)
    load = np.zeros(len(numbers), np.int64)
    np.add.at(load, np.array(links, np.int64), np.repeat(np.array(amounts, np.int64), counts))
    return load


def in_byte_times(topology: Topology, load: Ints) -> Ints:
    """Bytes by link, in the order of `topology.links`, in byte times of the wafer's own links, rounded up: bytes as
    they are where all links have the same bandwidth."""
    if topology.byte_times is None:
        return load
    return np.asarray(np.ceil(load * np.array(topology.byte_times)), np.int64)


def load_map(topology: Topology, pieces: Sequence[Piece]) -> tuple[LinkLoad, ...]:
    """The load of every live link, in the order of `topology.links`."""
    sizes = dict.fromkeys(topology.links, 0)
    entries: dict[Hop, dict[int, int]] = {link: {} for link in topology.links}
    for piece in pieces:
        predecessor: dict[Hop, int] = {}
        for path in piece.paths:
            for previous, hop in zip((path[0], *path), pairwise(path), strict=False):
                predecessor.setdefault(hop, previous)
        for hop, previous in predecessor.items():
            sizes[hop] += piece.bytes
            entries[hop][previous] = entries[hop].get(previous, 0) + 1
    return tuple(
        LinkLoad(link, sizes[link], sum(entries[link].values()), _conflicts(list(entries[link].values())))
        for link in topology.links
    )


def _conflicts(counts: list[int]) -> int:
    """Pairs of messages from different entries: all pairs, less those of one entry."""
    total = sum(counts)
    return (total * total - sum(n * n for n in counts)) // 2
