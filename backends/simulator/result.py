"""The figures that `wscc simulate` shows, from an account of a step."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from wscc.analysis.memory.report import format_bytes
from wscc.backends.simulator.account import Account
from wscc.backends.simulator.costs import SECOND


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of one step. Fractions, `mfu` among them, are of step x live dies of the wafer; those of `time` add
    up to 1.

    `mfu` counts `model_flops`. In `time`: *model* = mfu, or at the highest peak of the dies if they differ,
    *slow_dies* longer because a die has a lower one; *extra_flops* recomputed, or repeated on several dies;
    *tile_rounding* tiles that are not full; *hbm* instructions that are longer because of HBM; *exposed* a die waits
    for a message in flight, by kind; *delayed* it starts later on purpose; *bubble* it waits for another stage, *idle*
    for a die of its own stage, or for the end of the step; *unused_dies* have no part in the program. `die_util`
    is of the dies used, `link_util` of all live links. `bound_seconds` are lower bounds of the step by compute, HBM
    and links, for any order of its instructions.
    """

    step_seconds: float
    mfu: float
    bubble_fraction: float
    exposed_comm_fraction: float
    die_util: dict[str, float]
    link_util: dict[str, float]
    energy_joules: float
    energy: dict[str, float]
    time: dict[str, Any]
    bound_seconds: dict[str, float]
    dies_used: int
    live_dies: int

    @property
    def bound(self) -> float:
        return max(self.bound_seconds.values())


@dataclass(frozen=True, slots=True)
class HbmTraffic:
    """Bytes from and to the HBM of a die in a step, and the `least` that the calls of its program need."""

    bytes: int
    least: int

    @property
    def ratio(self) -> float:
        """The bytes over the least; 0 where none are needed."""
        return self.bytes / self.least if self.least else 0.0

    @property
    def words(self) -> str:
        """Both as text."""
        if not self.bytes:
            return "none"
        over = f", of which it is {self.ratio:.3f}" if self.least else ""
        least = f"its calls need at least {format_bytes(self.least)}{over}"
        return f"{format_bytes(self.bytes)} on the die with most; {least}"


def result(a: Account, model_flops: int, live_links: int) -> Result:
    """The figures of an account. `model_flops` are those of a step of the model; `live_links` counts each direction."""
    wafer, used = a.costs.wafer, len(a.dies)
    whole = a.end * wafer.live_dies

    def share(ticks: Fraction | int) -> float:
        return float(Fraction(ticks) / whole) if whole else 0.0

    model = model_flops / max(a.costs.dies[d.of_class].peak for d in a.dies) * SECOND
    ideal = sum(d.ideal for d in a.dies)
    exposed: dict[str, int] = {}
    for d in a.dies:
        for kind, ticks in d.exposed.items():
            exposed[kind] = exposed.get(kind, 0) + ticks
    busy = [share(d.busy * wafer.live_dies) for d in a.dies]
    links = [share(u.busy * wafer.live_dies) for u in a.links.values()]
    energy = a.energy()
    return Result(
        step_seconds=a.seconds,
        mfu=float(model_flops * SECOND / Fraction(a.end * wafer.peak)) if a.end else 0.0,
        bubble_fraction=share(sum(d.bubble for d in a.dies)),
        exposed_comm_fraction=share(sum(exposed.values())),
        die_util={"mean": sum(busy) / used, "min": min(busy)},
        link_util={"mean": sum(links) / live_links if live_links else 0.0, "max": max(links, default=0.0)},
        energy_joules=sum(energy.values()),
        energy=energy,
        time={
            "model": share(model),
            "extra_flops": share(ideal - model),
            "slow_dies": share(sum(d.slow for d in a.dies)),
            "tile_rounding": share(sum(d.tiling for d in a.dies)),
            "hbm": share(sum(d.hbm for d in a.dies)),
            "exposed": {kind: share(ticks) for kind, ticks in sorted(exposed.items()) if ticks},
            "delayed": share(sum(d.delayed for d in a.dies)),
            "bubble": share(sum(d.bubble for d in a.dies)),
            "idle": share(sum(d.idle for d in a.dies)),
            "unused_dies": share(a.end * (wafer.live_dies - used)),
        },
        bound_seconds={name: float(Fraction(ticks, SECOND)) for name, ticks in a.bounds().items()},
        dies_used=used,
        live_dies=wafer.live_dies,
    )
