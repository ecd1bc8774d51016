"""The table and the plot of `wscc collective --sweep` and `--plot`: times by size and algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from wscc.cli.plot import new_figure, save_figure
from wscc.collectives.algorithms import ALGORITHMS
from wscc.collectives.choose import AUTO, collective
from wscc.collectives.plan import Request
from wscc.collectives.timing import LinkModel
from wscc.diagnostics import Code, CompileError

Rows = list[dict[str, Any]]

_FIRST = 1024


def sweep(request: Request, model: LinkModel, algorithms: Sequence[str]) -> Rows:
    """A row for 1 KiB, four times that and so on, and last the size of the request: seconds by algorithm (None where
    it does not exist on this mesh) and the bound.

    Raises `CompileError` as `collective` does, except for W303 of an algorithm."""
    sizes = [_FIRST]
    while sizes[-1] * 4 < request.bytes:
        sizes.append(sizes[-1] * 4)
    sizes = [*(s for s in sizes if s < request.bytes), request.bytes]
    return [_row(replace(request, bytes=size), model, algorithms) for size in sizes]


def _row(request: Request, model: LinkModel, algorithms: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = {"bytes": request.bytes, "seconds": {}}
    for name in algorithms:
        try:
            outcome = collective(request, model, name)
        except CompileError as error:
            if error.diagnostics[0].code is not Code.NO_PATH or name not in ALGORITHMS:
                raise
            row["seconds"][name] = None
            continue
        row["seconds"][name] = outcome.timed.seconds
        row["bound_seconds"] = model.seconds(outcome.bound.time)
        if name == AUTO:
            row["algorithm"] = outcome.algorithm
    return row


def show_sweep(rows: Rows) -> None:
    """Print the table."""
    names = list(rows[0]["seconds"])
    click.echo(f"{'bytes':>16}" + "".join(f"{n:>12}" for n in (*names, "bound")))
    for row in rows:
        cells = [*row["seconds"].values(), row.get("bound_seconds")]
        text = "".join(f"{'-' if c is None else format(c, '.4g'):>12}" for c in cells)
        click.echo(f"{row['bytes']:>16,}{text}  {row.get('algorithm', '')}".rstrip())


def plot_sweep(path: str, rows: Rows, title: str) -> None:
    """Plot time over size, both logarithmic. Raises `CompileError` W006 without matplotlib, W002 if it cannot write."""
    figure = new_figure()
    axes = figure.add_subplot()
    for name in rows[0]["seconds"]:
        points = [(r["bytes"], r["seconds"][name]) for r in rows if r["seconds"][name]]
        if points:
            axes.loglog(*zip(*points, strict=True), marker="o", label=name)
    axes.set(xlabel="bytes", ylabel="seconds", title=title)
    if axes.lines:
        axes.legend()
    save_figure(figure, path)
