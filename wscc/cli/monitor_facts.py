"""Facts of `wscc monitor`, by metric, as objects of plain numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from statistics import fmean
from typing import Any, Final

from wscc.backends.simulator.account import Account, DieTotal, LinkTotal
from wscc.backends.simulator.costs import SECOND
from wscc.backends.simulator.memory import MemoryUse, Moment
from wscc.backends.simulator.records import Link
from wscc.driver.simulate import Simulated
from wscc.ir.streams.profile import Origin
from wscc.machine.topology import mesh_topology
from wscc.machine.wafer import Wafer

Facts = dict[str, Any]

HOT: Final = 0.9
_POINTS: Final = 200  # of a time line
_LINES: Final = 5  # of the traffic of a link
_ROOM: Final = 0.3  # how much less neighbours carry where rerouting can help


def link_facts(simulated: Simulated) -> Facts:
    """Every live link: shares of the step and of the call in which it is busiest, and what queued for it."""
    a, wafer = simulated.account, simulated.account.costs.wafer
    links = [_link(a, wafer, link, a.links.get(link, LinkTotal())) for link in mesh_topology(wafer).links]
    hot = [link for link, use in a.links.items() if max(use.peak, _share(use.busy, a.end)) > HOT]
    hot.sort(key=lambda link: (-a.links[link].busy, link))
    return {
        "links": links,
        "hot": [_hot(simulated, link) for link in hot],
    }


def _link(a: Account, wafer: Wafer, link: Link, use: LinkTotal) -> Facts:
    return {
        "from": list(wafer.place(link[0])),
        "to": list(wafer.place(link[1])),
        "util": _share(use.busy, a.end),
        "peak_util": use.peak,
        "peak_call": use.peak_call,
        "bytes": use.bytes,
        "messages": use.messages,
        "queueing_seconds": seconds(use.queueing),
        "conflicts": use.conflicts,
    }


def _hot(simulated: Simulated, link: Link) -> Facts:
    a = simulated.account
    use, wafer = a.links[link], a.costs.wafer
    traffic = sorted(use.traffic.items(), key=lambda t: (-t[1], t[0][0], t[0][1].op))
    return {
        **_link(a, wafer, link, use),
        "traffic": [
            {"procedure": name, **origin_facts(origin, simulated.profile.file), "bytes": n}
            for (name, origin), n in traffic[:_LINES]
        ],
        "relief": list(_relief(a, link, use)),
    }


def _relief(a: Account, link: Link, use: LinkTotal) -> Iterator[str]:
    """Advice on a full link, from the numbers: other links, other times, or wider links."""
    meeting = {o.op for (name, o), _ in use.traffic.items() if name == use.peak_call}
    if use.conflicts and len(meeting) > 1:
        yield f"{use.conflicts:,} messages queued: {len(meeting)} ops meet in `{use.peak_call}`; start them apart"
    beside = [
        a.links.get(other, LinkTotal()).busy
        for other in mesh_topology(a.costs.wafer).links
        if other != link and (other[0] == link[0] or other[1] == link[1])
    ]
    spare = 1 - fmean(beside) / use.busy if beside else 0.0
    if spare > _ROOM:
        yield (
            f"links beside it carry {spare:.0%} less: other routes (`--routing adaptive`) "
            "or another place (`--mapper`) can share the load"
        )
    else:
        yield "links beside it are as full: only fewer bytes or wider links help"


def origin_facts(origin: Origin, file: str) -> Facts:
    return {"op": origin.op, "kind": origin.kind, "file": file if origin.line else "", "line": origin.line}


def die_facts(simulated: Simulated) -> Facts:
    """Every used die: the share of the step in which it computes, and for what it waits."""
    a, wafer = simulated.account, simulated.account.costs.wafer
    places = simulated.builder.streams.dies
    return {"dies": [_die(a, wafer, places[i], total) for i, total in enumerate(a.dies)]}


def _die(a: Account, wafer: Wafer, physical: int, total: DieTotal) -> Facts:
    return {
        "die": list(wafer.place(physical)),
        "util": _share(total.busy, a.end),
        "flops": _share(total.ideal, a.end),
        "slow": _share(total.slow, a.end),
        "tile_rounding": _share(total.tiling, a.end),
        "hbm": _share(total.hbm, a.end),
        "delayed": _share(total.delayed, a.end),
        "bubble": _share(total.bubble, a.end),
        "idle": _share(total.idle, a.end),
        "exposed": {kind: _share(n, a.end) for kind, n in sorted(total.exposed.items()) if n},
    }


def memory_facts(simulated: Simulated, uses: tuple[MemoryUse, ...]) -> Facts:
    """Every used die: the most bytes that are live at once; and, by stage, when that is and what they are."""
    wafer, builder = simulated.account.costs.wafer, simulated.builder
    die = wafer.weakest(builder.streams.dies)
    capacity = die.sram + die.hbm
    dies = [
        {
            "die": list(wafer.place(physical)),
            "live_peak_bytes": uses[stage].peak.live,
            "util": uses[stage].peak.live / capacity,
        }
        for physical, stage in zip(builder.streams.dies, builder.stages, strict=True)
    ]
    return {"capacity": capacity, "dies": dies, "stages": [_stage(u, simulated.profile.file) for u in uses]}


def _stage(use: MemoryUse, file: str) -> Facts:
    peak = use.peak
    return {
        "stage": use.stage,
        "live_peak_bytes": peak.live,
        "peak_seconds": seconds(peak.begin),
        "peak_call": peak.procedure,
        "resident": use.resident,
        "at_peak": [
            {"bytes": n, "what": words, **(origin_facts(origin, file) if origin else {})}
            for n, words, origin in use.at_peak
        ],
        "over_time": [
            {"seconds": seconds(m.begin), "resident": m.resident, "kept": m.kept, "locals": m.locals}
            for m in thinned(use.moments)
        ],
    }


def thinned(moments: tuple[Moment, ...], points: int = _POINTS) -> list[Moment]:
    """At most so many of them, each the fullest of its stretch of calls."""
    size = -(-len(moments) // points)
    return [max(moments[i : i + size], key=lambda m: m.live) for i in range(0, len(moments), size)]


def grouped(wafer: Wafer, values: Mapping[int, float], rows: int, columns: int, by: str) -> list[Facts]:
    """Blocks of rows x columns dies, row by row: the mean or the maximum of their values (None: no die has one)."""
    blocks = []
    for r in range(0, wafer.rows, rows):
        for c in range(0, wafer.cols, columns):
            inside = [
                values[n]
                for y in range(r, min(r + rows, wafer.rows))
                for x in range(c, min(c + columns, wafer.cols))
                if (n := wafer.number((y, x))) in values
            ]
            value = None if not inside else fmean(inside) if by == "mean" else max(inside)
            blocks.append({"first_die": list(wafer.place_of((r, c))), by: value})
    return blocks


def seconds(ticks: int) -> float:
    return float(Fraction(ticks, SECOND))


def _share(ticks: int, of: int) -> float:
    return ticks / of if of else 0.0
