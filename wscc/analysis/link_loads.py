"""Loads of links: bytes that cross each in each phase of a routed module, and lower bounds of the largest."""

from __future__ import annotations

from collections import Counter
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
from wscc.ir.per_die import NOBODY, Ints
from wscc.ir.routes import Hop, crossings
from wscc.ir.step import calls
from wscc.machine.corner import is_whole, topology_of
from wscc.machine.topology import Topology
from wscc.routing.bound import lower_bound
from wscc.routing.flows import Flow
from wscc.routing.limits import Limits
from wscc.routing.live_paths import live_path
from wscc.routing.loads import in_byte_times, link_numbers, sums_by_link
from wscc.routing.router import Routing

# Links x sources of all phases of which the bound is computed: a second or two on 2 cores for each million.
_WORK: Final = 4_000_000


@dataclass(frozen=True, slots=True)
class PhaseLoad:
    """Loads of one phase of one procedure (`name` is `procedure/phase`), for one call of it.

    `max_link_bytes` is the load of the most loaded directed link (bytes of a link with another bandwidth than the
    wafer's own count by their time), `xy_max_link_bytes` the same on initial routes,
    `lp_bound_bytes` a lower bound of it for any routing, rounded down, and `gap_percent` how far the load is above the
    bound; these two are None where the bound was not computed.
    """

    name: str
    xy_max_link_bytes: int
    max_link_bytes: int
    lp_bound_bytes: int | None = None
    gap_percent: float | None = None


def phase_loads(module: Module, *, bounds: bool = False) -> tuple[PhaseLoad, ...]:
    """The loads of a routed module that still has its transfers, in order of procedures and phases.

    With `bounds`, lower bounds are computed too, of the highest loads first, as many as take some seconds.
    """
    topology = topology_of(module.machine, module.dies)
    links = _Links(module, topology)
    phases = module_flows(module)
    carried = {p.flows: links.loads(p.transfers) for p in phases}
    initial = {flows: int(_initial(topology, flows, links).max()) for flows in carried}
    bounds_by_flows = _bounds(module, topology, carried, _WORK) if bounds else {}
    loads = []
    for phase in phases:
        largest, bound = int(carried[phase.flows].max()), bounds_by_flows.get(phase.flows)
        gap = 100 * (largest / bound - 1) if bound else None
        loads.append(PhaseLoad(phase.name, initial[phase.flows], largest, bound, gap))
    return tuple(loads)


def _bounds(
    module: Module, topology: Topology, carried: dict[Flows, DieArray], work: int
) -> dict[Flows, int | None]:
    """Lower bounds of the largest load by set of flows, highest loads first, until `work` (links x sources) is used
    up. None in a corner of a wafer: what holds in it does not bound what all links could do."""
    bounds: dict[Flows, int | None] = {}
    if not is_whole(topology, module.machine):
        return bounds
    for flows, load in sorted(carried.items(), key=lambda item: -int(item[1].max())):
        sources = {f.source for f in flows if not f.pinned}
        work -= len(sources) * len(topology.links)
        if not sources or work >= 0:
            bounds[flows] = least_load(topology, flows, load)
    return bounds


@dataclass(frozen=True, slots=True)
class ProcedureLoad:
    """Loads of one call of a procedure: `max_link_bytes` is the sum over its phases of the load of the most loaded
    link, `lp_bound_bytes` a lower bound of it as if all its phases were one; None if not computed."""

    name: str
    max_link_bytes: int
    lp_bound_bytes: int | None


def procedure_loads(module: Module, phases: Sequence[PhaseLoad]) -> tuple[ProcedureLoad, ...]:
    """The loads of each procedure that sends anything in a routed module, from those of its `phases`."""
    topology = topology_of(module.machine, module.dies)
    links = _Links(module, topology)
    sums: dict[str, int] = {}
    for phase in phases:
        name = phase.name.rpartition("/")[0]
        sums[name] = sums.get(name, 0) + phase.max_link_bytes
    procedures = unphased_flows(module)
    bounds = _bounds(module, topology, {p.flows: links.loads(p.transfers) for p in procedures}, _WORK // 4)
    return tuple(ProcedureLoad(p.procedure, sums[p.procedure], bounds.get(p.flows)) for p in procedures)


def link_bytes(module: Module, transfers: Sequence[Transfer], senders: range | None = None) -> dict[Hop, int]:
    """Bytes of the transfers by directed link (two physical dies), of all senders or of the logical dies `senders`."""
    topology = topology_of(module.machine, module.dies)
    carried = _Links(module, topology).carried(transfers, senders)
    return {link: n for link, n in zip(topology.links, carried.tolist(), strict=True) if n}


def traffic_bytes(module: Module) -> int:
    """Bytes that all links together carry in one step of a routed module."""
    links = _Links(module, topology_of(module.machine, module.dies))
    each = module.dies_used // module.stages
    total = 0
    for stage, step in enumerate(module.steps()):
        own = range(stage * each, (stage + 1) * each)
        times: dict[str, int] = {}
        for call, count in calls(step):
            times[call.procedure] = times.get(call.procedure, 0) + count
        for name, count in times.items():
            transfers = [s for s in module.procedure(name).body if isinstance(s, Transfer)]
            if transfers:
                total += count * int(links.carried(transfers, own).sum())
    return total


def _initial(topology: Topology, flows: Flows, links: _Links) -> DieArray:
    """Byte times by link on initial routes."""
    paths = ((f.bytes, pairwise(live_path(topology, f.source, f.destination))) for f in flows)
    return in_byte_times(topology, sums_by_link(links.numbers, paths))


class _Links:
    """The directed links of a wafer by number, and the links that each route of a module crosses."""

    def __init__(self, module: Module, topology: Topology) -> None:
        self.module, self.topology = module, topology
        self.numbers = link_numbers(topology)
        self.crossed = crossings(module.routes)
        # The crossings of all routes that take a message whole, as columns: route and link.
        whole = [
            (number, self.numbers[hop])
            for number, (route, crossed) in enumerate(zip(module.routes, self.crossed, strict=True))
            if len(route.legs) == 1
            for _, hop in crossed
        ]
        self.route, self.link = np.asarray(whole, np.int64).reshape(-1, 2).T
        self.in_parts = [number for number, route in enumerate(module.routes) if len(route.legs) > 1]

    def loads(self, transfers: Sequence[Transfer]) -> DieArray:
        """Byte times by link, in the order of `Topology.links`."""
        return in_byte_times(self.topology, self.carried(transfers))

    def carried(self, transfers: Sequence[Transfer], senders: range | None = None) -> DieArray:
        """Bytes by link, in the order of `Topology.links`."""
        load = np.zeros(len(self.numbers), np.int64)
        selection = slice(None) if senders is None else slice(senders.start, senders.stop)
        routes = self.module.routes
        by_amount: dict[int, Counter[Ints]] = {}
        for t in transfers:
            by_amount.setdefault(t.read.bytes, Counter())[t.route] += 1
        sent = np.zeros(len(routes), np.int64)  # bytes of whole messages
        for amount, times in by_amount.items():
            counts = np.zeros(len(routes), np.int64)
            for ints, count in times.items():
                route = as_array(ints, self.module.dies_used)[selection]
                counts += count * np.bincount(route[route != NOBODY], minlength=len(routes))
            sent += amount * counts
            for number in self.in_parts:
                if counts[number]:
                    parts = routes[number].parts(amount)
                    for leg, hop in self.crossed[number]:
                        load[self.numbers[hop]] += parts[leg] * counts[number]
        np.add.at(load, self.link, sent[self.route])
        return load


Flows = tuple[Flow, ...]


def least_load(topology: Topology, flows: Flows, load: DieArray) -> int | None:
    """A lower bound in bytes of the largest load of a link under any routing of the flows; None if not computed.

    `load`: byte times by link of a routing, in the order of `topology.links`. Where every flow is too small to be cut,
    and all links are alike, loads are multiples of the greatest common divisor of the flows, and so is the bound.
    """
    is_whole = topology.byte_times is None and all(f.bytes < 2 * Limits().part_bytes for f in flows)
    unit = gcd(*(f.bytes for f in flows)) if is_whole else 1
    proof = lower_bound(Routing(topology, flows, (), (), load, load), unit)
    if proof is None:
        return None
    return -(-proof.bytes // unit) * unit
