"""The load of links: bytes that cross each of them in each phase of a routed module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from wscc.ir.die_arrays import DieArray, as_array
from wscc.ir.fabric import NOBODY, Transfer
from wscc.ir.module import Module
from wscc.machine.topology import Path, mesh_topology
from wscc.passes.route import live_path


@dataclass(frozen=True, slots=True)
class PhaseLoad:
    """One phase of one procedure (`name` is `procedure/phase`), for one call of it.

    `xy_max_link_bytes` is what the most loaded directed link would carry on initial routes, `max_link_bytes`
    what it carries; `lp_bound_bytes` and `gap_percent` are None where the bound was not computed.
    """

    name: str
    xy_max_link_bytes: int
    max_link_bytes: int
    lp_bound_bytes: int | None = None
    gap_percent: float | None = None


def phase_loads(module: Module) -> tuple[PhaseLoad, ...]:
    """The loads of a routed module that still has its transfers, in order of procedures and phases."""
    topology = mesh_topology(module.machine)
    actual = _Links(module.routes)
    paths = tuple(live_path(topology, path[0], path[-1]) for path in module.routes)
    initial = actual if paths == module.routes else _Links(paths)
    loads = []
    for procedure in module.procedures:
        transfers = [s for s in procedure.body if isinstance(s, Transfer)]
        for phase in dict.fromkeys(t.phase for t in transfers):
            sent = _bytes_by_route(module, [t for t in transfers if t.phase == phase])
            loads.append(PhaseLoad(f"{procedure.name}/{phase}", initial.largest(sent), actual.largest(sent)))
    return tuple(loads)


def link_bytes(
    module: Module, transfers: Sequence[Transfer], senders: range | None = None
) -> dict[tuple[int, int], int]:
    """The bytes that each directed link (two physical dies) carries for these transfers; of some senders only,
    if they are given."""
    links = _Links(module.routes)
    carried = links.carried(_bytes_by_route(module, transfers, senders))
    return {link: n for link, n in zip(links.names, carried.tolist(), strict=True) if n}


def _bytes_by_route(module: Module, transfers: Sequence[Transfer], senders: range | None = None) -> DieArray:
    sent = np.zeros(len(module.routes), np.int64)
    own = slice(None) if senders is None else slice(senders.start, senders.stop)
    for t in transfers:
        route = as_array(t.route, module.dies_used)[own]
        np.add.at(sent, route[route != NOBODY], t.read.bytes)
    return sent


class _Links:
    """The directed links of a list of paths, flattened: path `path[k]` crosses link `link[k]`, for each k."""

    def __init__(self, paths: Sequence[Path]) -> None:
        numbers: dict[tuple[int, int], int] = {}
        crossings = [
            (i, numbers.setdefault(hop, len(numbers)))
            for i, path in enumerate(paths)
            for hop in pairwise(path)
        ]
        self.path, self.link = np.asarray(crossings, np.int64).reshape(-1, 2).T
        self.names = tuple(numbers)

    def carried(self, sent: DieArray) -> DieArray:
        """Bytes by link, when path i carries `sent[i]`."""
        load = np.zeros(len(self.names), np.int64)
        np.add.at(load, self.link, sent[self.path])
        return load

    def largest(self, sent: DieArray) -> int:
        return int(self.carried(sent).max(initial=0))
