"""Simulation of a step of a compiled program, on the wafer and with the profile that its artifact holds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wscc.backends.artifact.files import Artifact
from wscc.backends.artifact.graph_checks import graph_module
from wscc.backends.interpreter.load_checks import check_dies
from wscc.backends.simulator.account import Account, account
from wscc.backends.simulator.calls import Builder
from wscc.backends.simulator.compose import Composer
from wscc.backends.simulator.costs import Costs
from wscc.backends.simulator.least_traffic import least_hbm_bytes
from wscc.backends.simulator.result import HbmTraffic, Result, result
from wscc.backends.simulator.trace import Trace
from wscc.diagnostics import Code, fail
from wscc.ir.streams.profile import Profile
from wscc.machine.links import CUT_THROUGH
from wscc.machine.wafer import Wafer


@dataclass(frozen=True, slots=True, eq=False)
class Simulated:
    """A simulated step: its calls, the profile and the account of time; `trace` is None unless asked for."""

    builder: Builder
    profile: Profile
    account: Account
    trace: Trace | None

    def figures(self) -> Result:
        """The numbers of the step that `wscc simulate` prints: times in seconds, energy in joules, shares of 1."""
        return result(self.account, self.profile.model_flops, self.builder.costs.wafer.live_links)

    def hbm_traffic(self) -> HbmTraffic:
        """Bytes a step of the die that has most."""
        amounts = [d.hbm_bytes for d in self.account.dies]
        fullest = amounts.index(max(amounts))
        return HbmTraffic(amounts[fullest], least_hbm_bytes(self.builder, fullest))


def simulate(
    artifact: Artifact, link_model: str = CUT_THROUGH, *, tracing: bool = False, bandwidth_factor: int = 1,
    wafer: Wafer | None = None,
) -> Simulated:  # fmt: skip
    """The simulation of a step on the wafer of the artifact, or on another `wafer`; links are
    `bandwidth_factor` times as fast as theirs.

    Raises `CompileError` W501 if the artifact does not fit itself, W502 if dies wait for one another.
    """
    profile = artifact.profile
    if profile is None:
        raise fail(
            Code.ARTIFACT,
            "the artifact has no profile.json, which says what its instructions are for",
            help="compile the model again",
        )
    builder = builder_of(artifact, link_model, bandwidth_factor=bandwidth_factor, wafer=wafer)
    trace = Trace(builder, profile) if tracing else None
    composer = Composer(builder, trace.observer if trace else None).run()
    return Simulated(builder, profile, account(composer, profile), trace)


def alike_seconds(artifact: Artifact, link_model: str) -> float | None:
    """Seconds of a step if all dies were as the wafer's `die`; None where they are."""
    wafer = graph_module(artifact.graph).machine
    alike = replace(wafer, unlike=())
    return simulate(artifact, link_model, wafer=alike).account.seconds if wafer.unlike else None


def builder_of(
    artifact: Artifact, link_model: str, *, bandwidth_factor: int = 1, wafer: Wafer | None = None
) -> Builder:
    """The streams of an artifact on its wafer. Raises `CompileError` W501 if they do not fit it."""
    check_dies(artifact.streams, artifact.manifest)
    wafer = wafer or graph_module(artifact.graph).machine
    wafer = wafer.with_faster_links(bandwidth_factor)
    die = wafer.weakest(artifact.streams.dies)
    if artifact.streams.arena_bytes > die.sram + die.hbm:
        raise fail(Code.ARTIFACT, "the arena of the artifact is larger than the memories of a die")
    return Builder(artifact.streams, Costs.of(wafer, link_model))
