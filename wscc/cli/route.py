"""The command `wscc route`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from wscc.cli.link_option import read_wafer
from wscc.cli.load_map import heat_maps, hottest_links
from wscc.cli.output import json_option, show_json
from wscc.files import read_source, to_json, write_file
from wscc.files.kinds import FLOWS
from wscc.machine.topology import Topology, mesh_topology
from wscc.machine.wafer import Wafer
from wscc.routing.bound import lower_bound
from wscc.routing.flow_file import FlowFile, read_flows
from wscc.routing.flows import legs_of
from wscc.routing.limits import Limits
from wscc.routing.loads import load_map
from wscc.routing.router import Routing, route


@dataclass(frozen=True, slots=True)
class _Outcome:
    routing: Routing
    seconds: float
    bound: int | None
    bound_seconds: float

    @property
    def gap_percent(self) -> float | None:
        """The largest load above the bound, in per cent of it; None without a bound."""
        if self.bound is None:
            return None
        most = self.routing.max_link_bytes
        return round(100 * (most / self.bound - 1), 3) if self.bound else (0.0 if most == 0 else None)


@click.command("route")
@click.option("--mesh", required=True, metavar="RxC", help="rows x columns of dies, e.g. 8x8")
@click.option(
    "--flows", "flow_file", required=True, metavar="FILE", help="lines: row,col row,col bytes [content]"
)
@click.option("--routes", metavar="FILE", help="write the routes: a JSON line for each path of each flow")
@click.option("--dead", multiple=True, metavar="WHAT", help="die:R,C or link:R,C-R,C; may be repeated")
@click.option("--routing", type=click.Choice(["xy", "adaptive"]), default="adaptive", show_default=True)
@click.option(
    "--max-iter", type=click.IntRange(1, 1000), default=10, show_default=True, help="rounds at most"
)
@click.option("--no-bound", is_flag=True, help="do not compute the lower bound")
@json_option
def route_command(
    mesh: str, flow_file: str, routes: str | None, dead: tuple[str, ...], routing: str, max_iter: int, no_bound: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Route plain flows over a mesh of dies, and tell how near to the least possible load that comes.

    The load is the bytes over the most loaded link in one direction. Flows from one die with the same content are
    the same bytes: over a link that several of them share they go once, where XY sends them one by one.
    """
    wafer = read_wafer(mesh, dead)
    topology = mesh_topology(wafer)
    flows = read_flows(read_source(flow_file, FLOWS), wafer, topology)
    outcome = _outcome(topology, flows, Limits(max_iter=max_iter), routing == "adaptive", not no_bound)
    if routes is not None:
        write_file(routes, _route_lines(wafer, flows, outcome.routing))
    if as_json:
        show_json(_as_json(outcome))
    else:
        _show(wafer, outcome)
    return 0


def _outcome(
    topology: Topology, flows: FlowFile, limits: Limits, adaptive: bool, with_bound: bool
) -> _Outcome:
    start = time.perf_counter()
    routing = route(topology, flows.flows, limits, adaptive=adaptive)
    routed = time.perf_counter()
    certificate = lower_bound(routing) if with_bound else None
    bound = None if certificate is None else certificate.bytes
    return _Outcome(routing, routed - start, bound, time.perf_counter() - routed if with_bound else 0.0)


def _route_lines(wafer: Wafer, flows: FlowFile, routing: Routing) -> Iterator[str]:
    for leg in legs_of(routing.flows, routing.pieces):
        entry = {
            "flow": flows.lines[leg.flow],
            "path": [list(wafer.place(d)) for d in leg.path],
            "share": leg.bytes / routing.flows[leg.flow].bytes,
            "channel": leg.channel,
        }
        yield to_json(entry) + "\n"


def _as_json(outcome: _Outcome) -> dict[str, Any]:
    return {
        "flows": len(outcome.routing.flows),
        "xy_max_link_bytes": outcome.routing.initial_max_link_bytes,
        "max_link_bytes": outcome.routing.max_link_bytes,
        "lp_bound_bytes": outcome.bound,
        "gap_percent": outcome.gap_percent,
        "seconds": outcome.seconds,
        "bound_seconds": outcome.bound_seconds,
    }


def _show(wafer: Wafer, outcome: _Outcome) -> None:
    routing = outcome.routing
    before, after = routing.initial_max_link_bytes, routing.max_link_bytes
    saved = f" ({100 * (after / before - 1):+.1f} %)" if before else ""
    bound = "not computed" if outcome.bound is None else f"{outcome.bound:,} bytes"
    gap = "" if outcome.gap_percent is None else f", gap {outcome.gap_percent:.2f} %"
    damage = f", {len(wafer.dead_dies)} dies and {len(wafer.dead_links)} links dead"
    split = len(routing.pieces) - len({p.demand.flows for p in routing.pieces})
    rows = [
        ("mesh", f"{wafer.size}{damage if wafer.dead_dies or wafer.dead_links else ''}"),
        (
            "flows",
            f"{len(routing.flows):,} in {len(routing.pieces):,} messages, {split:,} of them by splitting",
        ),
        ("XY", f"{before:,} bytes over the most loaded link"),
        ("routed", f"{after:,} bytes{saved} after {len(routing.rounds)} rounds in {outcome.seconds:.2f} s"),
        ("bound", f"{bound}{gap}"),
    ]
    for label, text in rows:
        click.echo(f"{label:<10}{text}")
    loads = load_map(routing.topology, routing.pieces)
    for lines in (
        hottest_links(wafer, routing.initial_load, loads),
        heat_maps(wafer, routing.topology.links, routing.initial_load, routing.load),
    ):
        if lines:
            click.echo()
            click.echo("\n".join(lines))
