"""Small variants of samples to simulate, on machines slower or faster than theirs."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from tests.support.paths import SAMPLES
from wscc.backends.artifact.files import Artifact
from wscc.backends.simulator.calls import Builder
from wscc.backends.simulator.costs import Costs
from wscc.driver.compile import compile_file
from wscc.frontend.overrides import Overrides
from wscc.machine.links import CUT_THROUGH
from wscc.machine.wafer import Wafer


@lru_cache
def compiled(sample: str, parallel: str, *sets: str) -> tuple[Artifact, Wafer]:
    """A small variant of a sample, and the wafer that it is for."""
    small = ("model.layers=4", "model.seq=16", *sets)
    done = compile_file(str(SAMPLES / f"{sample}.wsl"), Overrides(sets=small, parallel=parallel))
    return done.artifact, done.graph.machine


def on(wafer: Wafer, *, bandwidth: int = 1, latency: int = 1, peak: int = 1) -> Wafer:
    """The wafer with links of a `bandwidth`-th, `latency` times the latency, and `peak` times the FLOP/s."""
    link = replace(
        wafer.link, bandwidth=wafer.link.bandwidth // bandwidth, latency=wafer.link.latency * latency
    )
    return replace(wafer, link=link, die=replace(wafer.die, peak=wafer.die.peak * peak))


def builder(sample: tuple[Artifact, Wafer], kind: str = CUT_THROUGH, wafer: Wafer | None = None) -> Builder:
    artifact, own = sample
    return Builder(artifact.streams, Costs.of(wafer or own, kind))
