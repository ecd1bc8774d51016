"""Give every message its path of physical dies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from wscc.diagnostics import Code, fail
from wscc.ir.die_arrays import DieArray, as_array, as_ints
from wscc.ir.fabric import NOBODY, Ints, Transfer
from wscc.ir.module import Module, Procedure
from wscc.machine.topology import Path, Topology, mesh_topology
from wscc.passes.base import Fact, Pass


@dataclass(frozen=True, slots=True)
class Route(Pass):
    """Route each message along its row, then along its column; where that path is dead, along the shortest
    live path, ties by a fixed order. On a whole mesh this is free of routing deadlock: rows before columns
    never close a cycle of links.

    `Module.routes` holds each path once, sorted by (source, destination); `Transfer.route` is its index by
    sender. Fails with W302 where no live path is left. `phase_loads` tells the load of the links.

    Before: transfer 0 to=[1,2,3,0]
    After:  transfer 0 to=[1,2,3,0] route=[0,1,2,3]; routes (0,0)-(0,1), ...
    """

    name: ClassVar[str] = "route"
    requires: ClassVar[frozenset[Fact]] = frozenset({Fact.PHASED})
    provides: ClassVar[frozenset[Fact]] = frozenset({Fact.ROUTED})

    def run(self, module: Module) -> Module:
        targets = dict.fromkeys(
            s.to for p in module.procedures for s in p.body if isinstance(s, Transfer) and s.to != NOBODY
        )
        dies = np.asarray(module.dies, np.int64)
        codes = {to: _pairs(to, dies) for to in targets}
        used = np.unique(np.concatenate([np.zeros(0, np.int64), *codes.values()]))
        used = used[used != NOBODY]
        topology = mesh_topology(module.machine)
        paths = tuple(live_path(topology, *divmod(code, _CODE)) for code in used.tolist())
        routes = {to: _indices(codes[to], used) for to in targets}
        procedures = tuple(_routed(p, routes) for p in module.procedures)
        return module.with_(procedures=procedures, routes=paths)


def live_path(topology: Topology, source: int, destination: int) -> Path:
    """The initial route of a message. Fails with W302 where none is left."""
    path = topology.xy_or_shortest(source, destination)
    if path is None:
        ends = " and ".join(str(topology.coordinate(d)) for d in (source, destination))
        raise fail(
            Code.DISCONNECTED,
            f"no live path joins dies {ends}",
            help="place the program on one connected part of the wafer",
        )
    return path


# A pair of physical dies as one integer: source * _CODE + destination.
_CODE = 1 << 24


def _pairs(to: Ints, dies: DieArray) -> DieArray:
    """By sender, the code of its pair, or `NOBODY`."""
    target = as_array(to, len(dies))
    return np.where(target == NOBODY, NOBODY, dies * _CODE + dies[target])


def _indices(codes: DieArray, used: DieArray) -> Ints:
    return as_ints(np.where(codes == NOBODY, NOBODY, np.searchsorted(used, codes)))


def _routed(procedure: Procedure, routes: dict[Ints, Ints]) -> Procedure:
    body = tuple(
        replace(s, route=routes.get(s.to, NOBODY)) if isinstance(s, Transfer) else s for s in procedure.body
    )
    return replace(procedure, body=body)
