"""The load of links: bytes that cross each of them in each phase of a routed module, and the least there can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd
from typing import Final

import numpy as np

from wscc.analysis.phase_flows import module_flows, unphased_flows
from wscc.ir.die_arrays import DieArray, as_array
from wscc.ir.fabric import Transfer
from wscc.ir.module import Module
from wscc.ir.per_die import NOBODY
from wscc.ir.routes import Hop, crossings
from wscc.machine.topology import Topology, mesh_topology
from wscc.routing.bound import lower_bound
from wscc.routing.flows import Flow, Ints
from wscc.routing.limits import Limits
from wscc.routing.loads import link_numbers
from wscc.routing.router import Routing

# Links x sources of all phases of which the bound is computed: a second or two on 2 cores for each million.
_WORK: Final = 4_000_000


@dataclass(frozen=True, slots=True)
class PhaseLoad:
    """One phase of one procedure (`name` is `procedure/phase`), for one call of it.

    `xy_max_link_bytes` is what the most loaded directed link would carry on initial routes, `max_link_bytes`
    what it carries, `lp_bound_bytes` what no routing can be below, rounded down (`gap_percent` is how far above it
    the load is); these two are None where the bound was not computed.
    """

    name: str
    xy_max_link_bytes: int
    max_link_bytes: int
    lp_bound_bytes: int | None = None
    gap_percent: float | None = None


def phase_loads(module: Module, *, bounds: bool = False) -> tuple[PhaseLoad, ...]:
    """The loads of a routed module that still has its transfers, in order of procedures and phases. Of `bounds`,
    those of the highest loads are computed, as many as take some seconds."""
    topology = mesh_topology(module.machine)
    links = _Links(module, topology)
    phases = module_flows(module)
    carried = {p.flows: links.carried(p.transfers) for p in phases}
    initial = {flows: int(_initial(topology, flows, links).max()) for flows in carried}
    least = _bounds(topology, carried, _WORK) if bounds else {}
    loads = []
    for phase in phases:
        most, bound = int(carried[phase.flows].max()), least.get(phase.flows)
        gap = 100 * (most / bound - 1) if bound else None
        loads.append(PhaseLoad(phase.name, initial[phase.flows], most, bound, gap))
    return tuple(loads)


def _bounds(topology: Topology, carried: dict[Flows, DieArray], left: int) -> dict[Flows, int | None]:
    """Of the highest loads first, until the work is used up."""
    found = {}
    for flows, load in sorted(carried.items(), key=lambda item: -int(item[1].max())):
        free = {f.source for f in flows if not f.pinned}
        left -= len(free) * len(topology.links)
        if not free or left >= 0:
            found[flows] = least_load(topology, flows, load)
    return found


@dataclass(frozen=True, slots=True)
class ProcedureLoad:
    """One call of a procedure: `max_link_bytes` is the sum over its phases of what the most loaded link carries,
    `lp_bound_bytes` what some link carries at least even if all its phases were one; None if not computed."""

    name: str
    max_link_bytes: int
    lp_bound_bytes: int | None


def procedure_loads(module: Module, phases: Sequence[PhaseLoad]) -> tuple[ProcedureLoad, ...]:
    """Each procedure of a routed module, of whose `phases` the loads are known."""
    topology = mesh_topology(module.machine)
    links = _Links(module, topology)
    sums: dict[str, int] = {}
    for phase in phases:
        name = phase.name.rpartition("/")[0]
        sums[name] = sums.get(name, 0) + phase.max_link_bytes
    whole = unphased_flows(module)
    least = _bounds(topology, {p.flows: links.carried(p.transfers) for p in whole}, _WORK // 4)
    return tuple(ProcedureLoad(p.procedure, sums[p.procedure], least.get(p.flows)) for p in whole)


def link_bytes(module: Module, transfers: Sequence[Transfer], senders: range | None = None) -> dict[Hop, int]:
    """The bytes that each directed link (two physical dies) carries for these transfers; of some senders only,
    if they are given."""
    topology = mesh_topology(module.machine)
    carried = _Links(module, topology).carried(transfers, senders)
    return {link: n for link, n in zip(topology.links, carried.tolist(), strict=True) if n}


def _initial(topology: Topology, flows: Flows, links: _Links) -> DieArray:
    load = np.zeros(len(topology.links), np.int64)
    for flow in flows:
        path = topology.xy_or_shortest(flow.source, flow.destination)
        assert path is not None, "a routed message has a live path"
        load[[links.numbers[hop] for hop in pairwise(path)]] += flow.bytes
    return load


class _Links:
    """The directed links of a wafer, and which of them each route of a module adds bytes to."""

    def __init__(self, module: Module, topology: Topology) -> None:
        self.module = module
        self.numbers = link_numbers(topology)
        self.crossed = crossings(module.routes)

    def carried(self, transfers: Sequence[Transfer], senders: range | None = None) -> DieArray:
        """Bytes by link, in the order of `Topology.links`."""
        load = np.zeros(len(self.numbers), np.int64)
        own = slice(None) if senders is None else slice(senders.start, senders.stop)
        routes = self.module.routes
        sent: dict[int, DieArray] = {}  # by size of a message, how many take each route
        for t in transfers:
            route = as_array(t.route, self.module.dies_used)[own]
            times = np.bincount(route[route != NOBODY], minlength=len(routes))
            amount = t.read.bytes
            sent[amount] = sent[amount] + times if amount in sent else times
        for amount, times in sent.items():
            for number in np.flatnonzero(times).tolist():
                parts = routes[number].parts(amount)
                for leg, hop in self.crossed[number]:
                    load[self.numbers[hop]] += parts[leg] * times[number]
        return load


Flows = tuple[Flow, ...]


def least_load(topology: Topology, flows: Flows, load: Ints) -> int | None:
    """The bytes that the most loaded link carries at least, however the flows are routed; None if not computed.
    `load`: what links carry, in the order of `topology.links`.

    Where every flow is too small to be cut, all loads are multiples of what divides all flows, and so is the bound.
    """
    unit = gcd(*(f.bytes for f in flows)) if all(f.bytes < 2 * Limits().part_bytes for f in flows) else 1
    proof = lower_bound(Routing(topology, flows, (), (), load, load), unit)
    if proof is None:
        return None
    return -(-proof.bytes // unit) * unit
