"""Wafers that exist or were published, by name. Facts and their sources are in `presets.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from math import prod
from typing import Any, Final

from wscc.diagnostics import Code, fail
from wscc.diagnostics.spelling import did_you_mean
from wscc.machine.wafer import OPEN, Die, Hub, Joint, Link, Torus, Wafer

Facts = Mapping[str, Any]


def preset(name: str) -> Wafer:
    """The wafer of that name, undamaged. Raises `CompileError` W008 with the names if there is none."""
    if name in PRESETS:
        return PRESETS[name]
    help = did_you_mean(name, PRESETS, f"the presets are {', '.join(PRESETS)}")
    raise fail(Code.UNKNOWN_NAME, f"unknown preset `{name}`", help=help)


def _load() -> dict[str, Wafer]:
    text = files("wscc.machine").joinpath("presets.json").read_text("utf-8")
    table = {name: facts for name, facts in json.loads(text).items() if not name.startswith("_")}
    return {name: _wafer(name, _with_base(facts, table)) for name, facts in table.items()}


def _with_base(facts: Facts, table: Mapping[str, Facts]) -> Facts:
    """The facts, completed by those of the preset named by `like`."""
    return {**_with_base(table[facts["like"]], table), **facts} if "like" in facts else facts


def _wafer(name: str, facts: Facts) -> Wafer:
    *planes, rows, cols = (1, *facts["dims"]) if len(facts["dims"]) == 1 else facts["dims"]
    die, link = Die(), Link()
    return Wafer(
        name,
        prod(planes) * rows,
        cols,
        Die(
            peak=facts["peak_bf16_flops"],
            sram=facts["local_mem_bytes"],
            hbm=facts.get("dram_bytes", 0),
            hbm_bandwidth=facts.get("dram_bw_Bps", 0),
            tile=facts.get("tile", die.tile),
            efficiency=_efficiency(facts, die.efficiency),
        ),
        Link(
            bandwidth=facts["link_bw_Bps"] * facts.get("links_per_neighbour", 1),
            latency=facts["hop_latency_s"],
            flit=facts.get("flit_bytes", link.flit),
            energy=facts["link_pj_per_bit"] / 1e12 if "link_pj_per_bit" in facts else link.energy,
            channels=facts.get("channels", link.channels),
        ),
        torus=Torus(rows=True, cols=True, planes=bool(planes)) if facts.get("torus") else OPEN,
        joint=_joint(facts, link) if "tile_dims" in facts else None,
        planes=sum(planes) or None,
        hub=Hub(facts.get("switch_Bps", 0), facts.get("switch_latency_s", 0.0))
        if len(facts["dims"]) == 1
        else None,
    )


def _joint(facts: Facts, link: Link) -> Joint:
    """What joins the edges of tiles."""
    joined = replace(link, bandwidth=facts["edge_Bps"], latency=facts["edge_latency_s"])
    rows, cols = facts["tile_dims"]
    return Joint(rows, cols, joined)


def _efficiency(facts: Facts, default: float) -> float:
    """FLOP/s per watt, from the power of the whole wafer where only that is known."""
    if "power_w" in facts and "flops_per_watt" not in facts:
        return float(facts["peak_bf16_flops"] * prod(facts["dims"]) / facts["power_w"])
    return float(facts.get("flops_per_watt", default))


# In the order of the file.
PRESETS: Final = _load()
