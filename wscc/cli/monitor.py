"""The command `wscc monitor`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import click

from wscc.backends.artifact.files import Artifact
from wscc.backends.simulator.memory import memory_over_time
from wscc.cli.common import ModelOptions, model_options
from wscc.cli.monitor_facts import die_facts, grouped, link_facts, memory_facts
from wscc.cli.monitor_text import show
from wscc.cli.output import json_option, show_json
from wscc.cli.plot import plot
from wscc.cli.program import read_program
from wscc.diagnostics import Code, Diagnostic, UsageError
from wscc.driver.simulate import Simulated, simulate
from wscc.machine.wafer import Wafer

LINK, DIE, MEMORY = "link_util", "die_util", "memory"
METRICS: Final = (LINK, DIE, MEMORY)


@click.command("monitor")
@click.argument("program")
@click.option("--metric", type=click.Choice(METRICS), required=True, help="what to look at")
@click.option("--group", metavar="RxC", help="also blocks of so many rows and columns of dies")
@click.option("--plot", "picture", metavar="FILE", help="draw it; needs matplotlib")
@model_options
@json_option
def monitor_command(
    program: str, metric: str, group: str | None, picture: str | None, options: ModelOptions, as_json: bool
) -> int:
    """Show where a step of PROGRAM, an artifact folder or a .wsl file, loads its wafer."""
    block = _block(group)
    artifact = read_program(program, options).artifact
    simulated = simulate(artifact)
    wafer = simulated.account.costs.wafer
    facts = {
        "metric": metric, "mesh": list(wafer.extents), "step_seconds": simulated.account.seconds,
        **_facts(metric, artifact, simulated),
    }  # fmt: skip
    if block:
        reduction = "mean" if metric == DIE else "max"
        facts["groups"] = grouped(wafer, _by_die(wafer, facts), *block, reduction)
    if picture:
        plot(picture, wafer, facts)
    if as_json:
        show_json(facts)
    else:
        show(wafer, facts)
    return 0


def _block(group: str | None) -> tuple[int, int] | None:
    if group is None:
        return None
    match = re.fullmatch(r"([1-9][0-9]{0,5})x([1-9][0-9]{0,5})", group.lower())
    if not match:
        raise UsageError(
            Diagnostic(Code.OPTION, f"`--group {group}` is not ROWSxCOLUMNS", help="write `--group 4x8`")
        )
    return int(match[1]), int(match[2])


def _facts(metric: str, artifact: Artifact, simulated: Simulated) -> dict[str, Any]:
    if metric == DIE:
        return die_facts(simulated)
    if metric == MEMORY:
        return memory_facts(
            simulated, memory_over_time(simulated.builder, artifact.manifest, simulated.profile)
        )
    facts = link_facts(simulated)
    if facts["hot"]:
        faster = simulate(artifact, bandwidth_factor=2).account.seconds
        facts["step_seconds_at_twice_the_bandwidth"] = faster
    return facts


def _by_die(wafer: Wafer, facts: Mapping[str, Any]) -> dict[int, float]:
    """The value of each die; of links, that of the busiest that leaves it."""
    values: dict[int, float] = {}
    for fact in facts.get("links", facts.get("dies", ())):
        die = wafer.vertex(tuple(fact.get("from", fact.get("die"))))
        values[die] = max(values.get(die, 0.0), fact["util"])
    return values
