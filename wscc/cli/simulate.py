"""The command `wscc simulate`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, replace

import click

from wscc.cli.common import ModelOptions, model_options
from wscc.cli.output import json_option, say, show_json
from wscc.cli.program import read_program
from wscc.driver.loaded import HbmTraffic, Result
from wscc.files import write_file
from wscc.machine.links import LINK_MODELS
from wscc.machine.wafer import Wafer

_LOSSES = {
    "model": "FLOPs of the model (the MFU)",
    "extra_flops": "FLOPs recomputed or repeated",
    "slow_dies": "computing on dies of a lower peak",
    "tile_rounding": "tiles that are not full",
    "hbm": "instructions that wait for HBM",
    "delayed": "starting later than others, on purpose",
    "bubble": "waiting for other stages",
    "idle": "waiting for dies of the stage",
    "unused_dies": "dies without a part",
}


@click.command("simulate")
@click.argument("program")
@click.option("--trace", metavar="FILE", help="write what happens when, for Perfetto or chrome://tracing")
@click.option("--link-model", type=click.Choice(LINK_MODELS), default=LINK_MODELS[0], show_default=True)
@model_options
@json_option
def simulate_command(
    program: str, trace: str | None, link_model: str, options: ModelOptions, as_json: bool
) -> int:
    """Tell how long a step of PROGRAM, an artifact folder or a .wsl file, takes on its wafer, and why.

    Fractions are of the time of all live dies; what is listed under `time` adds up to 1.
    """
    if options.choices.stagger:
        options = replace(options, choices=replace(options.choices, stagger=link_model))
    compiled = read_program(program, options)
    started = time.perf_counter()
    simulation = compiled.simulate(link_model, trace=bool(trace))
    figures, alike = simulation.figures, simulation.alike_seconds
    seconds = time.perf_counter() - started
    static = compiled.static_mesh_seconds(link_model)
    if trace:
        write_file(trace, [simulation.trace])
        if simulation.trace_cut:
            say(f"the trace is cut {simulation.trace_cut}")
    starts = compiled.report.get("stagger") if options.choices.stagger else None
    if as_json:
        hbm = {"hbm_bytes": simulation.hbm.bytes, "least_hbm_bytes": simulation.hbm.least}
        settings = hbm | {"link_model": link_model} | ({"stagger": starts} if starts else {})
        if alike is not None:
            settings["step_seconds_if_alike"] = alike
        if static is not None:
            settings["step_seconds_on_static_mesh"] = static
        show_json({k: v for k, v in asdict(figures).items()} | settings)
        return 0
    if starts:
        click.echo(f"{'staggered starts':<18}{starts['words']}")
    rows = [*_lines(figures, simulation.hbm, alike), *_circuits(compiled.wafer, figures, static)]
    for label, line in [*rows, *_losses(figures)]:
        click.echo(f"{label:<18}{line}")
    click.echo(f"{'simulated in':<18}{seconds:.2f} s")
    return 0


def _lines(r: Result, hbm: HbmTraffic, alike: float | None) -> Iterator[tuple[str, str]]:
    yield "step", f"{r.step_seconds:.6g} s on {r.dies_used} of {r.live_dies} live dies"
    yield "MFU", f"{r.mfu:.2%} of the peak of all live dies"
    yield "dies busy", f"{r.die_util['mean']:.1%} of the time on average, {r.die_util['min']:.1%} the least"
    yield "links busy", f"{r.link_util['mean']:.2%} of the time on average, {r.link_util['max']:.2%} the most"
    parts = ", ".join(f"{name} {joules:.4g}" for name, joules in r.energy.items())
    yield "energy", f"{r.energy_joules:.4g} J ({parts}; the machine gives none for memory)"
    bound = max(r.bound_seconds, key=lambda name: r.bound_seconds[name])
    parts = ", ".join(f"{name} {seconds:.4g}" for name, seconds in r.bound_seconds.items())
    ratio = f", the step is {r.step_seconds / r.bound:.3f} of it" if r.bound else ""
    yield "bound", f"{r.bound:.6g} s by {bound} ({parts}){ratio}"
    if hbm.bytes:
        yield "HBM traffic", hbm.words
    if alike is not None:
        lost = max(0.0, 1 - alike / r.step_seconds)
        yield (
            "slower dies",
            f"{lost:.1%} of the step is lost to them: {alike:.6g} s if all were as `die` says",
        )


def _circuits(wafer: Wafer, r: Result, static: float | None) -> Iterator[tuple[str, str]]:
    """Rows on the links that switches set up, beside the mesh on which all are up."""
    circuits = wafer.circuits
    if circuits is None:
        return
    took = f", in {circuits.reconfiguration * 1e6:g} us that no step has" if circuits.reconfiguration else ""
    yield "circuits", f"{circuits.pair}, set once before the first step{took}"
    if static is not None:
        share = f"{circuits.up}/{circuits.of} of the bandwidth"
        yield "static mesh", f"{static:.6g} s with all links up at {share}, compiled anew at -O2"
        yield "", f"the step takes {r.step_seconds / static:.3f} of that"


def _losses(r: Result) -> Iterator[tuple[str, str]]:
    rows = [(r.time[name], words) for name, words in _LOSSES.items()]
    rows += [
        (share, f"waiting for messages on their way: {kind}") for kind, share in r.time["exposed"].items()
    ]
    label = "time goes to"
    for share, words in sorted(rows, key=lambda row: (-row[0], row[1])):
        if share >= 5e-5:
            yield label, f"{share:7.2%}  {words}"
            label = ""
