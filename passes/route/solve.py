"""Routings of the phases of a module: equal phases are routed once, all over the same virtual channels."""

from __future__ import annotations

from collections.abc import Sequence

from wscc.analysis.link_loads import Flows
from wscc.machine.topology import Topology
from wscc.routing.initial import make_ways
from wscc.routing.limits import Limits
from wscc.routing.router import Routing, route


def route_phases(
    topology: Topology, phases: Sequence[tuple[Flows, Limits]], channels: int, *, adaptive: bool
) -> list[Routing]:
    """The routing of each phase within its limits, over at most `channels` virtual channels.

    The channels are the same for all phases: one may begin on some dies while another ends elsewhere. Raises
    `CompileError` W302 where no live path is left."""
    ends = {(f.source, f.destination) for flows, _ in phases for f in flows}
    shared = make_ways(topology, sorted(ends), channels)
    routings: dict[tuple[Flows, Limits], Routing] = {}
    for flows, limits in phases:
        if (flows, limits) not in routings:
            routings[flows, limits] = route(topology, flows, limits, adaptive=adaptive, channels=shared)
    return [routings[phase] for phase in phases]
