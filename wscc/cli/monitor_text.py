"""The text of `wscc monitor` on a terminal: maps, tables and bars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click
import numpy as np

from wscc.cli.load_map import die_map, heat_map
from wscc.machine.topology import mesh_topology
from wscc.machine.wafer import Wafer

Facts = Mapping[str, Any]

_BARS: Final = "▁▂▃▄▅▆▇█"
_SHOWN: Final = 8
_UNITS: Final = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3))


def show(wafer: Wafer, facts: Facts) -> None:
    """Print the map, then the table behind it."""
    parts = {"link_util": _links, "die_util": _dies, "memory": _memory}[facts["metric"]]
    for line in (f"step {facts['step_seconds']:.6g} s", *parts(wafer, facts), *_groups(facts)):
        click.echo(line)


def _links(wafer: Wafer, facts: Facts) -> Iterator[str]:
    shares = {(_number(wafer, f["from"]), _number(wafer, f["to"])): f["util"] for f in facts["links"]}
    links = mesh_topology(wafer).links
    load = np.array([round(1e9 * shares[link]) for link in links], np.int64)
    top = int(load.max(initial=0))
    if not top:
        yield "no link carries anything"
        return
    if wafer.hub is None and wafer.rows <= 24 and wafer.cols <= 25:
        yield f"tenths of the busiest link, which is busy {top / 1e9:.2%} of the step; the larger of both directions"
        yield from heat_map(wafer, links, load, top)
    yield ""
    head = f"{'busiest links':<18}{'of step':>9}{'of a call':>10}  {'in call':<18}"
    yield f"{head}{'bytes':>18}{'queueing':>12}{'conflicts':>10}"
    for f in sorted(facts["links"], key=lambda f: (-f["util"], f["from"], f["to"]))[:_SHOWN]:
        if f["bytes"]:
            yield _link_row(f)
    for f in facts["hot"][:_SHOWN]:
        yield ""
        yield f"over 90 %: {_name(f)}, {max(f['util'], f['peak_util']):.1%} of `{f['peak_call']}`"
        for t in f["traffic"]:
            yield f"  {t['bytes'] / max(1, f['bytes']):6.1%}  {_origin(t)} in `{t['procedure']}`"
        for words in f["relief"]:
            yield f"  relief: {words}"
    if "step_seconds_at_twice_the_bandwidth" in facts:
        faster = facts["step_seconds_at_twice_the_bandwidth"]
        yield ""
        yield f"with links twice as fast the step takes {faster:.6g} s ({faster / facts['step_seconds'] - 1:+.1%})"


def _link_row(f: Facts) -> str:
    queue = f"{f['queueing_seconds']:.3g} s"
    return (
        f"{_name(f):<18}{f['util']:>9.2%}{f['peak_util']:>10.1%}  {f['peak_call']:<18}"
        f"{f['bytes']:>18,}{queue:>12}{f['conflicts']:>10,}"
    )


def _dies(wafer: Wafer, facts: Facts) -> Iterator[str]:
    yield from _die_map(wafer, facts, "tenths of the step in which a die computes")
    yield f"{'least busy dies':<18}{'busy':>8}{'FLOPs':>8}{'HBM':>8}{'bubble':>8}{'idle':>8}{'exposed':>9}"
    for f in sorted(facts["dies"], key=lambda f: (f["util"], f["die"]))[:_SHOWN]:
        numbers = "".join(f"{f[k]:>8.1%}" for k in ("util", "flops", "hbm", "bubble", "idle"))
        most = max(f["exposed"], key=lambda k: f["exposed"][k], default="")
        yield f"{_place(f['die']):<18}{numbers}{sum(f['exposed'].values()):>9.1%}  {most}".rstrip()


def _memory(wafer: Wafer, facts: Facts) -> Iterator[str]:
    yield from _die_map(wafer, facts, f"tenths of {_size(facts['capacity'])} that are live at the peak")
    for f in facts["stages"]:
        stage = f"stage {f['stage']}: " if len(facts["stages"]) > 1 else ""
        yield f"{stage}{_size(f['live_peak_bytes'])} live in `{f['peak_call']}` at {f['peak_seconds']:.6g} s"
        yield f"  over time  {_bars(f['over_time'])}"
        for item in f["at_peak"][:_SHOWN]:
            place = f"  {_origin(item)}" if "op" in item else ""
            yield f"  {_size(item['bytes']):>9}  {item['what']}{place}"
        rest = f["at_peak"][_SHOWN:]
        if rest:
            yield f"  {_size(sum(i['bytes'] for i in rest)):>9}  in {len(rest)} more"


def _bars(points: Sequence[Facts], width: int = 60) -> str:
    """One character for a stretch of calls, as high as its fullest one; the highest is the peak."""
    live = [p["resident"] + p["kept"] + p["locals"] for p in points]
    size = -(-len(live) // width)
    tops = [max(live[i : i + size]) for i in range(0, len(live), size)]
    return "".join(_BARS[(len(_BARS) - 1) * t // max(1, *tops)] for t in tops)


def _die_map(wafer: Wafer, facts: Facts, title: str) -> Iterator[str]:
    drawn = die_map(wafer, {_number(wafer, f["die"]): f["util"] for f in facts["dies"]})
    if drawn:
        yield title
        yield from drawn
        yield ""


def _groups(facts: Facts) -> Iterator[str]:
    if "groups" in facts:
        yield ""
        for g in facts["groups"]:
            (by,) = (k for k in g if k != "first_die")
            value = "no die of the program" if g[by] is None else f"{by} {g[by]:.2%}"
            yield f"block from {_place(g['first_die']):<10}{value}"


def _origin(o: Facts) -> str:
    source = f" ({o['file']}:{o['line']})" if o["line"] else ""
    return f"{o['kind']} {o['op']}".strip() + source


def _name(f: Facts) -> str:
    return f"{_place(f['from'])} - {_place(f['to'])}"


def _place(place: Sequence[int]) -> str:
    return ",".join(map(str, place))


def _number(wafer: Wafer, place: Sequence[int]) -> int:
    return wafer.vertex(tuple(place))


def _size(n: int) -> str:
    for unit, scale in _UNITS:
        if n >= scale:
            return f"{n / scale:.3g} {unit}"
    return f"{n} B"
