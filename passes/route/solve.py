"""Routings of the phases of a module: equal phases are routed once, all over the same virtual channels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wscc.analysis.link_loads import Flows
from wscc.machine.topology import Topology
from wscc.routing.channels import Channel, make_channels
from wscc.routing.limits import Limits
from wscc.routing.live_paths import live_path
from wscc.routing.loads import link_numbers
from wscc.routing.router import Routing, route


def route_phases(
    topology: Topology, phases: Sequence[tuple[Flows, Limits]], channels: int, *, adaptive: bool
) -> list[Routing]:
    """The routing of each phase within its limits, over at most `channels` virtual channels.

    The channels are the same for all phases: one may begin on some dies while another ends elsewhere. Raises
    `CompileError` W302 where no live path is left."""
    shared = _shared_channels(topology, (flows for flows, _ in phases), channels)
    routings: dict[tuple[Flows, Limits], Routing] = {}
    for flows, limits in phases:
        if (flows, limits) not in routings:
            routings[flows, limits] = route(topology, flows, limits, adaptive=adaptive, channels=shared)
    return [routings[phase] for phase in phases]


def _shared_channels(topology: Topology, phases: Iterable[Flows], count: int) -> tuple[Channel, ...]:
    ends = {(f.source, f.destination) for flows in phases for f in flows}
    paths = [live_path(topology, a, b) for a, b in sorted(ends)]
    return make_channels(topology, link_numbers(topology), paths, count)
