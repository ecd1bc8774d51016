"""The command `wscc faults`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import click

from wscc.cli.common import ModelOptions, model_options
from wscc.cli.output import json_option, on_terminal, say, show_json
from wscc.driver.compile import placing_errors
from wscc.driver.proposals import Trials, proposing
from wscc.faults.patterns import KINDS
from wscc.faults.study import MODEL, Row, Study
from wscc.files import read_source
from wscc.frontend.parse import parse

_RATE = re.compile(r"(?:(\d+(?:\.\d+)?)%?\.\.)?(\d+(?:\.\d+)?)%")


@click.command("faults")
@click.argument("model")
@click.option("--rate", default="0..25%", show_default=True, metavar="RATE", help="10%, or a range: 0..25%")
@click.option("--points", type=click.IntRange(2, 101), default=6, show_default=True, help="rates of a range")
@click.option(
    "--seeds",
    type=click.IntRange(1, 10_000),
    default=5,
    show_default=True,
    help="patterns of each kind and rate",
)
@click.option(
    "-O", "level", type=click.IntRange(0, 2), default=2, show_default=True, help="optimisation level"
)
@model_options
@json_option
def faults_command(
    model: str, rate: str, points: int, seeds: int, level: int, options: ModelOptions, as_json: bool
) -> int:
    """How much damage MODEL (a .wsl file) survives, and how fast it stays.

    Of the dies, or links, that the file leaves alive, RATE die: anywhere, or in clusters. Where fewer dies are alive
    than the file's strategy needs, the nearest smaller one that compiles is taken.
    """
    rates = _rates(rate, points)
    file = parse(read_source(model))
    with proposing(Trials(file, options.overrides, level, options.choices)):
        study = Study(file, options.overrides, level, options.choices)
        with placing_errors(study.span):
            step = study.whole
    progress = _Progress(sum(len(KINDS) * seeds if rate else 1 for rate in rates))
    rows = list(study.rows(rates, seeds, progress.one))
    progress.end()
    if as_json:
        show_json(_as_json(study, step, seeds, rows))
    else:
        _show(study, step, seeds, rows)
    return 0


class _Progress:
    """A count of patterns on one line of a terminal; it says nothing elsewhere."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.shown = total, 0, on_terminal()

    def one(self) -> None:
        self.done += 1
        if self.shown:
            click.echo(f"\r  {self.done} of {self.total} patterns", err=True, nl=False)

    def end(self) -> None:
        if self.shown:
            say("")


def _rates(text: str, points: int) -> list[float]:
    """Shares between 0 and 1: one, or `points` of them at equal distances."""
    match = _RATE.fullmatch(text)
    if not match or float(match[2]) > 100:
        raise click.BadParameter(
            f"`{text}` is no rate: write 10%, or a range such as 0..25%", param_hint="--rate"
        )
    last = float(match[2]) / 100
    if match[1] is None:
        return [last]
    first = float(match[1]) / 100
    if first > last:
        raise click.BadParameter(f"`{text}` runs backwards", param_hint="--rate")
    return [round(first + (last - first) * i / (points - 1), 6) for i in range(points)]


def _as_json(study: Study, step: float, seeds: int, rows: list[Row]) -> dict[str, Any]:
    return {
        "strategy": study.graph.sizes,
        "dies": study.graph.machine.dies,
        "dies_used": study.graph.dies_used,
        "seeds": seeds,
        "step_seconds": step,
        "model": MODEL,
        "rows": [
            {
                "rate": row.rate,
                "damage": row.kind,
                "dead": row.dead,
                "patterns": row.patterns,
                "compiled": row.compiled,
                "nearest": row.nearest,
                "refused": row.refused,
                "kept": {"median": row.median, "least": row.least, "mean": row.mean},
            }
            for row in rows
        ],
    }


def _show(study: Study, step: float, seeds: int, rows: list[Row]) -> None:
    wafer = study.graph.machine
    click.echo(
        f"{study.strategy} on {study.graph.dies_used} of {wafer.live_dies} live dies of {wafer.name}, "
        f"{step * 1e3:.4g} ms per step; {seeds} pattern{'s' * (seeds > 1)} of each kind"
    )
    click.echo(f"{'rate':>6}  {'damage':<17}{'dead':>5}{'compile':>11}{'median':>9}{'least':>8}{'mean':>8}")
    for row in rows:
        shares = "".join(
            f"{'-' if share is None else f'{share:.0%}':>{width}}"
            for share, width in ((row.median, 9), (row.least, 8), (row.mean, 8))
        )
        compiled = f"{row.compiled} of {row.patterns}"
        head = f"{row.rate:>6.1%}  {row.kind:<17}{row.dead:>5}{compiled:>11}{shares}"
        click.echo(f"{head}  {_why(row)}".rstrip())
    click.echo()
    for line in _legend(rows):
        click.echo(line)


def _legend(rows: list[Row]) -> Iterator[str]:
    """Lines that explain the columns of the table, as far as its rows need them."""
    yield "median, least, mean: throughput kept, of the patterns that compile; in the mean, a refused one keeps 0."
    if any(row.throughputs and row.throughputs[-1] > 1 for row in rows):
        yield "Over 100%: dies further apart than hops alone advise can leave the most loaded link less to carry."
    if any(row.nearest for row in rows):
        yield "as: fewer dies are alive than the file's strategy needs, and this is the nearest that compiles."
    if any(row.refused for row in rows):
        yield "W...: refused with this code; see `wscc explain`."
    yield f"Throughput is that of a {MODEL}."


def _why(row: Row) -> str:
    """Words on the patterns that took another strategy, and on those that were refused."""
    return "; ".join(
        [f"{n} as {strategy}" for strategy, n in row.nearest.items()]
        + [f"{n} {code}" for code, n in row.refused.items()]
    )
