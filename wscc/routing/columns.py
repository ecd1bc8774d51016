"""Columns of the linear programme of the router: candidate paths and trees of demands, in a pool without doubles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from wscc.machine.topology import Hop, Path, Topology
from wscc.routing.flows import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """A path or tree of demand number `demand` on a virtual channel. `links` are the distinct links it loads, by
    their number in `topology.links`; `paths[i]` are the links, in order, to the demand's i-th destination. Each byte
    of the demand loads a link with one byte time or, where links are not alike or every destination gets bytes of its
    own, with as many as `times` says."""

    demand: int
    channel: int
    links: Ints
    paths: tuple[Ints, ...]
    times: Floats | None = None

    def die_paths(self, topology: Topology) -> tuple[Path, ...]:
        """The paths as dies, both ends included."""
        links = topology.links
        return tuple(
            (links[path[0]][0], *(links[i][1] for i in path)) for path in (p.tolist() for p in self.paths)
        )


@dataclass(eq=False)
class Pool:
    """The columns generated so far; `by_demand[d]` are the indices in `columns` of those of demand d."""

    demands: int
    topology: Topology
    columns: list[Column] = field(default_factory=list)
    by_demand: list[list[int]] = field(init=False)
    _keys: set[tuple[int, bytes]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.by_demand = [[] for _ in range(self.demands)]

    def weighed(self, columns: Iterable[Column]) -> tuple[Column, ...]:
        """Columns of a search as they load the links of the topology."""
        byte_times = self.topology.byte_times
        if byte_times is None:
            return tuple(columns)
        slow = np.array(byte_times)
        return tuple(
            replace(c, times=slow[c.links] if c.times is None else slow[c.links] * c.times) for c in columns
        )

    def add(self, columns: Iterable[Column]) -> int:
        """Add the columns whose paths no column of the same demand has; returns how many were added.

        A column with a path that comes twice to one die is left out: the turns of a channel may force a walk around
        a block."""
        count = len(self.columns)
        for column in columns:
            key = (column.demand, b"".join(path.tobytes() for path in column.paths))
            if key not in self._keys:
                self._keys.add(key)
                if not is_simple(column, self.topology.links):
                    continue
                self.by_demand[column.demand].append(len(self.columns))
                self.columns.append(column)
        return len(self.columns) - count


def is_simple(column: Column, links: Sequence[Hop]) -> bool:
    """Whether no path of a column comes twice to one die."""
    for path in column.paths:
        dies = {links[i][1] for i in path.tolist()} | {links[path[0]][0]}
        if len(dies) <= len(path):
            return False
    return True


def loads_of(columns: Sequence[Column], amounts: Floats, links: int) -> Floats:
    """The sum of the amounts (by column) that cross each of `links` links."""
    if not columns:
        return np.zeros(links)
    crossed = np.concatenate([column.links for column in columns])
    weights = np.repeat(amounts, [len(column.links) for column in columns])
    if any(column.times is not None for column in columns):
        weights = weights * np.concatenate([_times(column) for column in columns])
    load: Floats = np.bincount(crossed, weights, minlength=links).astype(np.float64)
    return load


def _times(column: Column) -> Floats:
    return np.ones(len(column.links)) if column.times is None else column.times
