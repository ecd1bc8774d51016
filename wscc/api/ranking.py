"""The ranking of plans that a search for the shortest step returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wscc.api.arguments import whole
from wscc.api.program import Progress, cores
from wscc.api.request import ALLGATHER, MAPPER, Degrees, Model, Request, Values, link_model_of, request
from wscc.api.results import Ranked, Ranking, Refusal
from wscc.frontend.parse import parse
from wscc.machine.links import CUT_THROUGH
from wscc.search import search as find
from wscc.search.candidates import Problem
from wscc.search.outcome import Candidate, SearchResult, refusals, summary
from wscc.search.space import spell


def search(
    program: Model, overrides: Values | None = None, *, parallel: Degrees | None = None, dtype: str | None = None,
    dead: Sequence[str] = (), pins: Values | None = None, mapper: str = MAPPER, routing: str = "",
    allgather: str = ALLGATHER, budget: int | None = None, jobs: int | None = None, link_model: str = CUT_THROUGH,
) -> Ranking:  # fmt: skip
    """The ranking of the plans of a program by the seconds of a step on its wafer.

    `pins` are degrees and settings that are not varied: `{"tatp": 8, "microbatch": 2}`. `budget` plans are compiled,
    in `jobs` processes (default: those near the best by their estimates; one process for each core); other
    arguments are those of `compile`. Raises the program's own `CompileError`, W206 if no plan fits,
    `UsageError` W006 for a wrong argument.
    """
    inputs = request(
        program, overrides, parallel=parallel, dtype=dtype, dead=dead, mapper=mapper, routing=routing,
        allgather=allgather, stagger=False, call_order=None, passes=(), pins=pins,
    )  # fmt: skip
    number = whole("jobs", jobs, 1, 64) if jobs is not None else cores()
    return ranked(
        inputs, whole("budget", budget, 1) if budget is not None else None, number, link_model_of(link_model)
    )


def ranked(
    inputs: Request,
    budget: int | None,
    jobs: int,
    link_model: str,
    progress: Progress = lambda words, done, of: None,
) -> Ranking:
    """The ranking of a request. Raises as `search`."""
    problem = Problem(parse(inputs.source), inputs.overrides, inputs.choices, link_model)
    return _ranking(find(problem, budget, jobs, progress), problem.own_settings)


def _ranking(result: SearchResult, own: Mapping[str, str]) -> Ranking:
    candidates = (*result.simulated, *result.slower, *result.others)
    front = set(map(id, result.front))
    rows = tuple(_row(c, own, id(c) in front) for c in candidates)
    refused = tuple(Refusal(str(r.code), r.count, r.example, r.message) for r in refusals(result))
    return Ranking(rows, refused, result.bound, summary(result))


def _row(c: Candidate, own: Mapping[str, str], is_on_front: bool) -> Ranked:
    changed = {key: value for key, value in c.plan.settings if own[key] != value}
    return Ranked(
        spell(c.strategy), dict(c.plan.settings), changed, c.dies, c.is_given, c.bound.seconds, c.least, c.estimate,
        c.figures.step_seconds if c.figures else None, c.figures.mfu if c.figures else None,
        c.peak_bytes_per_die_max, is_on_front,
    )  # fmt: skip
