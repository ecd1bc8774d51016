"""`wscc search`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from wscc.analysis.memory.report import size
from wscc.cli.common import ModelOptions, json_option, model_options, on_terminal, say, show_json
from wscc.frontend.parse import parse
from wscc.frontend.scan import read_source
from wscc.machine.links import LINK_MODELS
from wscc.search import BUDGET, search
from wscc.search.candidates import Problem
from wscc.search.outcome import Candidate, SearchResult, refusals, spoken, summary
from wscc.search.space import spell

_REASONS = 6  # of refusals, that the table names; --json has all


@click.command("search")
@click.argument("model")
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="strategies to show")
@click.option(
    "--budget",
    type=click.IntRange(1),
    default=BUDGET,
    show_default=True,
    help="strategies to compile at most",
)
@click.option("--jobs", type=click.IntRange(1, 64), help="processes (default: one for each core)")
@click.option("--link-model", type=click.Choice(LINK_MODELS), default=LINK_MODELS[0], show_default=True)
@model_options
@json_option
def search_command(
    model: str, top: int, budget: int, jobs: int | None, link_model: str, options: ModelOptions, as_json: bool
) -> int:
    """Find the strategy under which a step of MODEL (a .wsl file) is shortest on its wafer.

    All degrees of all axes are looked at whose product is the number of live dies, and of fewer where few fit. Most are
    only estimated; the best by estimate, and the one that the file or --parallel gives, are compiled and simulated. For
    each the least that any program of it takes is shown: a gap between that and the simulated step is not closed.
    """
    problem = Problem(parse(read_source(model)), options.overrides, options.choices, link_model)
    progress = Progress()
    found = search(problem, budget, jobs or cores(), progress.one)
    progress.end()
    if as_json:
        show_json(_as_json(found, top))
    else:
        _show(found, top)
    return 0


def cores() -> int:
    return os.cpu_count() or 1


class Progress:
    """Counts strategies on one line of a terminal; says nothing elsewhere."""

    def __init__(self) -> None:
        self.shown = on_terminal()

    def one(self, words: str, done: int, of: int) -> None:
        if self.shown:
            click.echo(f"\r  {done} of {of} strategies {words} ", err=True, nl=False)

    def end(self) -> None:
        if self.shown:
            say("")


def in_words(told: dict[str, Any]) -> str:
    """A summary in one line."""
    count = f"{told['strategies']:,} {'strategies' if told['strategies'] > 1 else 'strategy'}"
    done = f"{told['estimated']:,} estimated, {told['compiled']} compiled, {told['simulated']} simulated"
    return f"{count} of {spoken(told['dies'])}: {done}; {told['ended']}"


def _best(found: SearchResult, top: int) -> list[Candidate]:
    return [*found.simulated, *found.slower, *found.others][:top]


def _as_json(found: SearchResult, top: int) -> dict[str, Any]:
    rows = [
        {
            "strategy": spell(c.strategy),
            "dies_used": c.dies,
            "given": c.is_given,
            "estimate_seconds": c.estimate,
            "bound_seconds": c.bound.seconds,
            "least_seconds": c.least,
            "step_seconds": c.figures.step_seconds if c.figures else None,
            "mfu": c.figures.mfu if c.figures else None,
            "peak_bytes_per_die_max": c.peak_bytes_per_die_max,
        }
        for c in _best(found, top)
    ]
    return summary(found) | {"rows": rows, "refusals": [asdict(r) for r in refusals(found)]}


def _show(found: SearchResult, top: int) -> None:
    head = f"{'dies':>5}{'estimate':>12}{'simulated':>14}{'bound':>12}{'MFU':>9}{'memory':>10}"
    click.echo(f"{'strategy':<28}{head}")
    for c in _best(found, top):
        click.echo(_row(c))
    click.echo()
    for label, text in _facts(found):
        click.echo(f"{label:<12}{text}")


def _row(c: Candidate) -> str:
    estimate = f"{c.estimate:.4g} s" if c.estimate is not None else ""
    step = mfu = memory = ""
    if c.peak_bytes_per_die_max is not None:
        step, memory = f">{c.least:.4g} s", size(c.peak_bytes_per_die_max)
    if c.figures:
        step, mfu = f"{c.figures.step_seconds:.4g} s", f"{c.figures.mfu:.2%}"
    row = f"{spell(c.strategy):<28}{c.dies:>5}{estimate:>12}{step:>14}{f'{c.bound.seconds:.4g} s':>12}"
    return f"{row}{mfu:>9}{memory:>10}{'  given' * c.is_given}".rstrip()


def _gap(found: SearchResult) -> str:
    if found.bound == found.seconds:
        return ", which the best takes"
    return f"; the best takes {found.seconds / found.bound:.3g} times that" if found.bound else ""


def _facts(found: SearchResult) -> Iterator[tuple[str, str]]:
    yield "looked at", in_words(summary(found))
    yield "bound", f"none of them takes less than {found.bound:.4g} s{_gap(found)}"
    label = "refused"
    for r in refusals(found)[:_REASONS]:
        yield label, f"{r.count} {r.code}, such as `{r.example}`: {r.message}"
        label = ""
    yield "use", f"--parallel {spell(found.best.strategy)}"
