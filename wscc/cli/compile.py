"""The command `wscc compile`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from wscc.api.program import Program, compiled, cores
from wscc.cli.common import ModelOptions, model_options
from wscc.cli.load_map import wafer_map
from wscc.cli.output import json_option, on_terminal, say, show_json
from wscc.cli.program import model_request
from wscc.cli.progress import Progress
from wscc.driver.graph_report import graph_words
from wscc.driver.pads import pads_words
from wscc.driver.report import circuits_words
from wscc.driver.storage import storage_words
from wscc.ir.module import Module
from wscc.ir.ops import OPS
from wscc.ir.text.print import to_text
from wscc.passes.registry import PASSES
from wscc.passes.stagger import Stagger

# The pass after which each level is complete.
LEVELS = {"graph": "differentiate", "sharded": "place", "fabric": "plan_memory"}


@click.command("compile")
@click.argument("model")
@click.option("-o", "--output", metavar="DIR", help="where to write the artifact (default: MODEL.out)")
@click.option(
    "-O",
    "level",
    type=click.IntRange(0, 3),
    default=2,
    show_default=True,
    help="0: for debugging; 1: fused, overlapping; 2: routes avoid what is full; 3: `parallel auto` is searched",
)
@click.option("--emit", type=click.Choice(list(LEVELS)), help="print a level and write nothing")
@click.option(
    "--print-after", type=click.Choice(list(PASSES)), multiple=True, help="print the module after a pass"
)
@click.option("--time-passes", is_flag=True, help="seconds of each pass, to stderr")
@model_options
@json_option
def compile_command(
    model: str, output: str | None, level: int, emit: str | None, print_after: tuple[str, ...], time_passes: bool,
    options: ModelOptions, as_json: bool,
) -> int:  # fmt: skip
    """Compile MODEL (a .wsl file) to an artifact: one instruction stream per die."""
    last = Stagger.name if emit == "fabric" and options.choices.stagger else LEVELS.get(emit or "", "")
    printed = {*print_after, *([last] if emit else [])}
    texts: dict[str, str] = {}  # shown at the end: a pass may run again, and with --json there is one object

    def observe(name: str, module: Module) -> None:
        if on_terminal():
            say(f"  {name}")
        if name in printed:
            texts[name] = to_text(module)

    try:
        program = compiled(
            model_request(model, options), level, jobs=cores(), observe=observe, progress=Progress().one
        )
    finally:
        if not as_json:
            _show_modules(texts, titled=len(printed) > 1)
    if time_passes:
        _show_times(program)
    if emit:
        if as_json:
            show_json({"modules": texts})
        return 0
    folder = Path(output) if output else Path(model).with_suffix(".out")
    program.save(folder)
    if as_json:
        show_json({**program.report} | ({"modules": texts} if texts else {}))
    elif not print_after:
        _show_summary(program, folder)
        for axis in program.report["placement"]["axes"].values():
            if axis["lies"] == "near" and axis["note"]:
                say(f"warning: shards travel over several links: {axis['note']}")
    return 0


def _show_modules(texts: dict[str, str], *, titled: bool) -> None:
    for name, text in texts.items():
        if titled:
            say(f"after {name}:")
        click.echo(text, nl=False)


def _show_times(program: Program) -> None:
    for name, seconds in program.report["compile_seconds"]["passes"].items():
        say(f"{name:<18}{seconds:8.3f} s")
    say(f"{'total':<18}{program.report['compile_seconds']['total']:8.3f} s")


def _groups(groups: list[dict[str, Any]], optimizer: str) -> list[tuple[str, str]]:
    """A row on each parameter group, if there are several."""

    def words(g: dict[str, Any]) -> str:
        if not g["lr"]:
            return f"{g['params']:,} frozen (lr 0)"
        decay = f", decay {g['weight_decay']:g}" if "weight_decay" in OPS[optimizer].attrs else ""
        return f"{g['params']:,} with lr {g['lr']:g}{decay}"

    return [("", words(g)) for g in groups] if len(groups) > 1 else []


def _stages(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A row on the layers of the pipeline stages, if there are any."""
    if "stages" not in report:
        return []
    made = report["stages"]
    layers = " ".join(map(str, made["layers"]))
    return [
        (
            "stages",
            f"{layers} layers, cut {made['cut']}; the fullest takes {made['unevenness']:.2f} times the mean",
        )
    ]


def _replication(by_op: dict[str, int], whole: int) -> list[tuple[str, str]]:
    """A row on the FLOPs that dies repeat after one another, if any."""
    if not by_op:
        return []
    most = sorted(by_op, key=lambda n: (-by_op[n], n))[:3]
    more = f" and {len(by_op) - len(most)} more" if len(by_op) > len(most) else ""
    return [("replicated", f"{sum(by_op.values()) / whole:.0%} of the FLOPs: {', '.join(most)}{more}")]


def _searched(summary: dict[str, Any]) -> str:
    # Imported here: the search is as large as all that compiles.
    from wscc.cli.search import in_words

    return in_words(summary)


def _routes(phases: list[dict[str, Any]]) -> str:
    """Words on the busiest links of all phases, against initial routes and against the bound."""
    better = sum(p["max_link_bytes"] < p["xy_max_link_bytes"] for p in phases)
    bounded = [p for p in phases if p["lp_bound_bytes"]]
    least = sum(p["lp_bound_bytes"] for p in bounded)
    gap = f"{100 * (sum(p['max_link_bytes'] for p in bounded) / least - 1):.2f} %" if least else ""
    bound = f"busiest links {gap} above the bound" if least else "no bound computed"
    missing = (
        f" ({len(phases) - len(bounded)} phases without one)" if least and len(bounded) < len(phases) else ""
    )
    return f"{better} of {len(phases)} phases below XY; {bound}{missing}"


def _show_summary(program: Program, folder: Path) -> None:
    r = program.report
    strategy = " ".join(f"{a}={n}" for a, n in r["strategy"].items()) or "one die"
    memory, place = r["memory"], r["placement"]
    padded = pads_words(program.graph, r["pads"], r["flops_per_step"])
    rows = [
        ("strategy", f"{strategy} on {r['dies_used']} dies of {program.graph.machine.name}"),
        ("parameters", f"{r['params']:,}"),
        *_groups(r["parameter_groups"], program.graph.train.optimizer.kind),
        ("FLOPs per step", f"{r['flops_per_step']:,}"),
        *([("padded", padded)] if padded else []),
        *graph_words(r.get("graph", {})),
        ("memory per die", f"{memory['peak_bytes_per_die_max']:,} of {memory['capacity']:,} bytes"),
        *storage_words(r["storage"]),
        *([("weights", f"converted {r['weights_converted']}")] if "fit" in r["weights_converted"] else []),
        *([("searched", _searched(r["search"]))] if "search" in r else []),
        ("placement", f"{place['method']}: {place['rings']} rings, {place['paths']} paths"),
        *circuits_words(r.get("circuits", {})),
        *_stages(r),
        *_replication(r["replicated_flops"], r["flops_per_step"]),
        ("routes", _routes(r["phases"])),
        *([("staggered starts", r["stagger"]["words"])] if "stagger" in r else []),
        ("traffic per step", f"{r['traffic_bytes']:,} bytes x links"),
        ("instructions", f"{r['instructions']:,} in {len(program.artifact.streams.programs)} programs"),
        ("compiled in", f"{r['compile_seconds']['total']:.2f} s"),
        ("artifact", str(folder)),
    ]
    for label, text in rows:
        click.echo(f"{label:<18}{text}")
    drawn = wafer_map(program.passes["place"])
    if drawn:
        click.echo(f"{'the wafer':<18}{'.'.join(a for a, _ in program.graph.axes)} of each die, row by row")
        for line in drawn:
            click.echo(f"{'':<18}{line}")
