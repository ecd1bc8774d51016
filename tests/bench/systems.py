"""all_reduce over systems of wafers: the bound of their cuts, the hierarchical plan as exported and replayed, and a
flat ring, all simulated."""

from __future__ import annotations

import time

from tests.oracles.replayed_plan import Links, seconds_of_all_reduce
from wscc.collectives.choose import collective, make_request
from wscc.collectives.plan import Op
from wscc.collectives.plan_file import plan_lines
from wscc.collectives.timing import LinkModel
from wscc.machine.topology import mesh_topology
from wscc.machine.wafer import Joint, Link, Wafer

# Wafers, and dies of each.
_SYSTEMS = (((1, 2), (4, 4)), ((2, 2), (4, 4)), ((1, 4), (4, 4)), ((2, 2), (8, 8)))
_SIZE = 16 * 10**9
_EDGE = Link(bandwidth=9 * 10**12, latency=1.5e-6)


def show_systems(quick: bool) -> None:
    print(
        f"all_reduce of {_SIZE / 1e9:g} GB over wafers joined by edges of 9 TB/s: ms, and ratios to the bound"
    )
    print(f"{'':<20}{'bound ms':>10}{'plan':>8}{'replayed':>10}{'flat ring':>11}{'CPU':>9}")
    for wafers, dies in _SYSTEMS[:-1] if quick else _SYSTEMS:
        _show(wafers, dies)


def system(wafers: tuple[int, int], dies: tuple[int, int]) -> Wafer:
    return Wafer("s", wafers[0] * dies[0], wafers[1] * dies[1], joint=Joint(*dies, _EDGE))


def _show(wafers: tuple[int, int], dies: tuple[int, int]) -> None:
    start, wafer = time.process_time(), system(wafers, dies)
    model = LinkModel.of(wafer.link.bandwidth, wafer.link.latency, wafer.link.flit).with_system(wafer)
    request = make_request(Op.ALL_REDUCE, mesh_topology(wafer), _SIZE)
    found = collective(request, model)
    took = time.process_time() - start
    least = model.seconds(found.bound.time)
    replayed = seconds_of_all_reduce(plan_lines(request, found.timed), Links.of(wafer), _SIZE)
    ring = collective(request, model, "ring").ratio
    name = f"{wafers[0]} x {wafers[1]} of {dies[0]} x {dies[1]}"
    ratios = f"{found.ratio:>8.3f}{replayed / least:>10.3f}{ring:>11.3f}"
    print(f"{name:<20}{least * 1e3:>10.3f}{ratios}{took:>7.1f} s", flush=True)
