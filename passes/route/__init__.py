"""The pass `route`: gives every message its route (TCME)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from wscc.analysis.cost import Rates
from wscc.analysis.phase_flows import Kind, PhaseFlows, module_flows
from wscc.ir.die_arrays import DieArray, as_array, as_ints
from wscc.ir.fabric import Transfer
from wscc.ir.module import Module, Procedure
from wscc.ir.per_die import NOBODY, Ints
from wscc.machine.corner import topology_of
from wscc.passes.base import Fact, Pass
from wscc.passes.route.solve import route_phases
from wscc.passes.route.table import RouteTable
from wscc.routing.limits import Limits


@dataclass(frozen=True, slots=True)
class Route(Pass):
    """Route the messages of each phase so that the most loaded link carries as little as possible (TCME, arXiv
    2512.14256; `wscc.routing`): around full links, in up to `max_paths` legs, the same bytes merged into
    trees. Messages of one pair of dies in a phase share a route. Unless `adaptive`, each takes its initial route:
    along its row, then along its column; where that path is dead, the shortest live one, ties by a fixed order.

    Never worse than the initial routes. Free of deadlock: all routes of the module keep to the turns of the
    same virtual channels. A phase is left as it is once no link is busy for longer than its latency, which a detour
    costs at least, or, with `enough`, than that many per cent of the time that its own kernels take. `Module.routes`
    holds each route once; `Transfer.route` is its index by sender. Fails with W302 where no live path is left.
    `phase_loads` computes the load of the links.

    Before: transfer 0 to=[1,2,3,0]
    After:  transfer 0 to=[1,2,3,0] route=[0,1,2,3]; routes (0,0)-(0,1), ...
    """

    name: ClassVar[str] = "route"
    requires: ClassVar[frozenset[Fact]] = frozenset({Fact.PHASED})
    provides: ClassVar[frozenset[Fact]] = frozenset({Fact.ROUTED})

    adaptive: bool = True
    max_iter: int = 10
    max_paths: int = 8
    enough: int = 0

    def _limits(self, phase: PhaseFlows, module: Module) -> Limits:
        """The limits of a phase: a link may be busy for its latency, or for `enough` per cent of the time that the
        phase computes."""
        rates = Rates.exact(module.machine, module.die)
        hidden = rates.link.capacity(rates.die.compute(phase.flops)) * self.enough / 100
        # A detour costs the latency of its links: what a link carries in less is not worth one.
        worth = rates.link.capacity(rates.link.latency)
        enough = int(max(hidden, worth))
        return Limits(max_iter=self.max_iter, max_paths=self.max_paths, enough_bytes=enough)

    def run(self, module: Module) -> Module:
        topology = topology_of(module.machine, module.dies)
        phases = module_flows(module)
        requests = [(p.flows, self._limits(p, module)) for p in phases]
        routings = route_phases(topology, requests, module.machine.channels, adaptive=self.adaptive)
        table = RouteTable()
        dies = np.asarray(module.dies, np.int64)
        routes: dict[str, dict[int, Ints]] = {p.name: {} for p in module.procedures}  # by channel
        for phase, routing in zip(phases, routings, strict=True):
            numbers = table.numbers(routing)
            routes[phase.procedure].update(_routes(phase, numbers, dies))
        for p in module.procedures:
            local = [s for s in p.body if isinstance(s, Transfer) and s.is_local]
            routes[p.name].update(_local(local, table, dies))
        procedures = tuple(_with(p, routes[p.name]) for p in module.procedures)
        return module.with_(procedures=procedures, routes=table.routes)


def _routes(phase: PhaseFlows, routes: DieArray, dies: DieArray) -> dict[int, Ints]:
    """The routes of each transfer of a phase, those of the flows of its messages (`routes`: by flow), by channel."""
    by_channel = {}
    known: dict[tuple[Kind, Ints], Ints] = {}  # the rounds of a stream go the same few ways
    for t in phase.transfers:
        key = phase.kind(t), t.to
        if key not in known:
            flows = phase.numbers(t, dies)
            known[key] = as_ints(np.where(flows == NOBODY, NOBODY, routes[flows]))
        by_channel[t.channel] = known[key]
    return by_channel


def _local(transfers: list[Transfer], table: RouteTable, dies: DieArray) -> dict[int, Ints]:
    """The routes of each transfer from dies to themselves, of one die each, by channel."""
    if not transfers:
        return {}
    numbers = table.stay(dies)
    known = {
        to: as_ints(np.where(as_array(to, len(dies)) == NOBODY, NOBODY, numbers))
        for to in {t.to for t in transfers}
    }
    return {t.channel: known[t.to] for t in transfers}


def _with(procedure: Procedure, routes: dict[int, Ints]) -> Procedure:
    body = tuple(
        replace(s, route=routes[s.channel]) if isinstance(s, Transfer) and s.channel in routes else s
        for s in procedure.body
    )
    return replace(procedure, body=body)
