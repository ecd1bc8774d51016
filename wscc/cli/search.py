"""The command `wscc search`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

import click

from wscc.analysis.memory.report import format_bytes
from wscc.api.program import cores
from wscc.api.ranking import ranked
from wscc.api.results import Ranked, Ranking
from wscc.cli.common import ModelOptions, model_options
from wscc.cli.output import json_option, show_json
from wscc.cli.program import model_request
from wscc.cli.progress import Progress
from wscc.frontend.parse import parse
from wscc.machine.links import LINK_MODELS
from wscc.search.candidates import Problem
from wscc.search.outcome import spoken
from wscc.search.validate import SAMPLES, Validation, validate

_REASONS = 6  # of refusals, that the table names; --json has all


@click.command("search")
@click.argument("model")
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="plans to show")
@click.option(
    "--pin", "pins", multiple=True, metavar="NAME=VALUE", help="not varied, e.g. tatp=8, microbatch=2"
)
@click.option(
    "--budget",
    type=click.IntRange(1),
    help="plans to compile (default: some that are near by their estimates)",
)
@click.option(
    "--validate",
    "samples",
    type=click.IntRange(1),
    is_flag=False,
    flag_value=SAMPLES,
    metavar="[N]",
    help=f"measure the estimate instead, by N plans that are simulated (default: {SAMPLES})",
)
@click.option("--jobs", type=click.IntRange(1, 64), help="processes (default: one for each core)")
@click.option("--link-model", type=click.Choice(LINK_MODELS), default=LINK_MODELS[0], show_default=True)
@model_options
@json_option
def search_command(
    model: str, top: int, pins: tuple[str, ...], budget: int | None, samples: int | None, jobs: int | None,
    link_model: str, options: ModelOptions, as_json: bool,
) -> int:  # fmt: skip
    """Find the plan under which a step of MODEL (a .wsl file) is shortest on its wafer.

    A plan is the degrees of all axes, on any number of dies, with microbatch, recompute, zero and interleave. Of a
    large space a part is estimated; the best by estimate, and the plan that the file gives, are compiled and simulated.
    For each the least that any program of it takes is shown: a gap between that and the simulated step is not closed.
    """
    progress = Progress()
    request = model_request(model, options)
    request = replace(request, overrides=replace(request.overrides, pins=pins))
    if samples is not None:
        problem = Problem(parse(request.source), request.overrides, request.choices, link_model)
        validation = validate(problem, samples, jobs or cores(), progress.one)
        progress.end()
        _show_validation(validation, top, as_json)
        return 0
    ranking = ranked(request, budget, jobs or cores(), link_model, progress.one)
    progress.end()
    if as_json:
        show_json(_as_json(ranking, top))
    else:
        _show(ranking, top)
    return 0


def _show_validation(v: Validation, top: int, as_json: bool) -> None:
    if as_json:
        rows = [
            {"plan": str(m.plan), "estimate_seconds": m.estimate, "step_seconds": m.step} for m in v.measured
        ]
        errors = {"median_error": v.median_error, "worst_error": v.worst_error}
        show_json({"plans": v.plans, "rank_correlation": v.rank_correlation, **errors, "measured": rows})
        return
    worst = v.measured[:top]
    width = max(28, *(len(str(m.plan)) + 1 for m in worst))
    ranks = (
        "undefined: too few plans, or all alike;"
        if v.rank_correlation is None
        else f"{v.rank_correlation:.3f}"
    )
    click.echo(f"rank correlation  {ranks} of {len(v.measured)} of {v.plans:,} plans")
    click.echo(f"error             median {v.median_error:.1%}, worst {v.worst_error:+.1%}\n")
    click.echo(f"{'worst estimates':<{width}}{'estimate':>12}{'simulated':>14}{'error':>9}")
    for m in worst:
        click.echo(f"{m.plan!s:<{width}}{f'{m.estimate:.4g} s':>12}{f'{m.step:.4g} s':>14}{m.error:>+9.1%}")


def in_words(summary: Mapping[str, Any]) -> str:
    """The summary of a search in one line."""
    count = f"{summary['strategies']:,} {'strategies' if summary['strategies'] > 1 else 'strategy'}"
    plans = f"{summary['plans']:,} plan{'s' * (summary['plans'] > 1)}"
    done = f"{summary['estimated']:,} estimated, {summary['compiled']} compiled, {summary['simulated']} simulated"
    return f"{count} of {spoken(summary['dies'])}, {plans}: {done}; {summary['ended']}"


def _as_json(ranking: Ranking, top: int) -> dict[str, Any]:
    rows = [asdict(row) for row in ranking.rows[:top]]
    return {**ranking.summary, "rows": rows, "refusals": [asdict(r) for r in ranking.refusals]}


def _show(ranking: Ranking, top: int) -> None:
    head = f"{'dies':>5}{'estimate':>12}{'simulated':>14}{'bound':>12}{'MFU':>9}{'memory':>10}"
    rows = ranking.rows[:top]
    width = max(28, *(len(c.plan) + 1 for c in rows))
    click.echo(f"{'plan':<{width}}{head}")
    for c in rows:
        click.echo(_row(c, width))
    click.echo()
    for label, text in _facts(ranking):
        click.echo(f"{label:<12}{text}")


def _row(c: Ranked, width: int) -> str:
    estimate = f"{c.estimate_seconds:.4g} s" if c.estimate_seconds is not None else ""
    step = mfu = memory = ""
    if c.peak_bytes_per_die_max is not None:
        step, memory = f">{c.least_seconds:.4g} s", format_bytes(c.peak_bytes_per_die_max)
    if c.step_seconds is not None and c.mfu is not None:
        step, mfu = f"{c.step_seconds:.4g} s", f"{c.mfu:.2%}"
    row = f"{c.plan:<{width}}{c.dies_used:>5}{estimate:>12}{step:>14}{f'{c.bound_seconds:.4g} s':>12}"
    return f"{row}{mfu:>9}{memory:>10}{'  front' * c.front}{'  given' * c.given}".rstrip()


def _gap(ranking: Ranking) -> str:
    if ranking.bound_seconds == ranking.seconds:
        return ", which the best takes"
    return (
        f"; the best takes {ranking.seconds / ranking.bound_seconds:.3g} times that"
        if ranking.bound_seconds
        else ""
    )


def _facts(ranking: Ranking) -> Iterator[tuple[str, str]]:
    yield "looked at", in_words(ranking.summary)
    yield "left out", _removed(ranking.summary["removed"])
    bound = f"no plan of these strategies takes less than {ranking.bound_seconds:.4g} s{_gap(ranking)}"
    yield "bound", bound
    shares = sorted(ranking.summary["shares"].items(), key=lambda share: -share[1])
    yield (
        "binds",
        ", ".join(f"{what.replace('_', ' ')} {share:.1%}" for what, share in shares if share >= 0.001),
    )
    label = "refused"
    for r in ranking.refusals[:_REASONS]:
        yield label, f"{r.count} {r.code}, such as `{r.example}`: {r.message}"
        label = ""
    yield "use", " ".join([f"--parallel {ranking.best.strategy}", *_sets(ranking.best)])


def _removed(removed: Mapping[str, int]) -> str:
    """What each rule of the coarse filter removed, in one line."""
    rules = {
        "divisibility": "divisibility",
        "memory": "memory",
        "work": "work beyond the best step",
        "hbm": "reads from HBM",
    }
    strategies = ", ".join(f"{removed[key]:,} by {words}" for key, words in rules.items())
    plans = f"{removed['plans_divisibility']:,} by divisibility, {removed['plans_memory']:,} by memory"
    return f"strategies: {strategies}; plans of the others: {plans}"


def _sets(best: Ranked) -> Iterator[str]:
    return (f"--set {key}={value}" for key, value in best.overrides.items())
