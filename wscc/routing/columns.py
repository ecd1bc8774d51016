"""Candidate ways to send a demand: paths and trees, each once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from wscc.machine.topology import Path, Topology
from wscc.routing.flows import Floats, Ints
from wscc.routing.loads import Hop


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One way to send demand number `demand` on a virtual channel. `links` are the distinct links it loads, by
    their place in `topology.links`; `paths[i]` are the links, in order, to the demand's i-th destination. A link
    carries the demand's bytes once or, where every destination gets bytes of its own, as often as `times` says."""

    demand: int
    channel: int
    links: Ints
    paths: tuple[Ints, ...]
    times: Ints | None = None

    def die_paths(self, topology: Topology) -> tuple[Path, ...]:
        """The paths as dies, both ends included."""
        links = topology.links
        return tuple(
            (links[path[0]][0], *(links[i][1] for i in path)) for path in (p.tolist() for p in self.paths)
        )


@dataclass(eq=False)
class Pool:
    """The candidates found so far; `of[d]` are those of demand d, by their place in `columns`. `links` are those
    of the topology."""

    demands: int
    links: Sequence[Hop]
    columns: list[Column] = field(default_factory=list)
    of: list[list[int]] = field(init=False)
    _known: set[tuple[int, bytes]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.of = [[] for _ in range(self.demands)]

    def add(self, found: Iterable[Column]) -> int:
        """Add columns whose links no column of the same demand has, except where a path comes twice to one die:
        the turns of a channel may force a walk around a block. How many were new."""
        before = len(self.columns)
        for column in found:
            key = (column.demand, b"".join(path.tobytes() for path in column.paths))
            if key not in self._known:
                self._known.add(key)
                if not is_simple(column, self.links):
                    continue
                self.of[column.demand].append(len(self.columns))
                self.columns.append(column)
        return len(self.columns) - before


def is_simple(column: Column, links: Sequence[Hop]) -> bool:
    """Whether no path of a column comes twice to one die."""
    for path in column.paths:
        dies = {links[i][1] for i in path.tolist()} | {links[path[0]][0]}
        if len(dies) <= len(path):
            return False
    return True


def loads_of(columns: Sequence[Column], amounts: Floats, links: int) -> Floats:
    """By link, the sum of the amounts of the columns that cross it."""
    if not columns:
        return np.zeros(links)
    crossed = np.concatenate([column.links for column in columns])
    weights = np.repeat(amounts, [len(column.links) for column in columns])
    if any(column.times is not None for column in columns):
        weights = weights * np.concatenate([_times(column) for column in columns])
    load: Floats = np.bincount(crossed, weights, minlength=links).astype(np.float64)
    return load


def _times(column: Column) -> Ints:
    return np.ones(len(column.links), np.int64) if column.times is None else column.times
