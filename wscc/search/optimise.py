"""Compilation at `-O3`: the plan that a program leaves open is searched, and the best compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from wscc.diagnostics import Source
from wscc.driver.compile import Compiled, compile_source
from wscc.driver.pipeline import Insertion, Observer
from wscc.frontend.overrides import Overrides
from wscc.frontend.parse import parse
from wscc.frontend.resolve import leaves_strategy_open
from wscc.passes.choices import DEFAULT, Choices
from wscc.search import Progress, search
from wscc.search.candidates import LEVEL, Problem
from wscc.search.outcome import SearchResult, summary


def compile_searched(
    source: Source, overrides: Overrides, *, choices: Choices = DEFAULT, jobs: int = 1,
    observe: Observer = lambda name, module: None, progress: Progress = lambda words, done, of: None,
    insertions: Sequence[Insertion] = (),
) -> Compiled:  # fmt: skip
    """Compile a program; where it says `parallel auto`, with the best plan of a search, of which the report then has
    a `search`."""
    file = parse(source)
    if not leaves_strategy_open(file, overrides):
        return compile_source(
            source, overrides, LEVEL, choices=choices, observe=observe, insertions=insertions
        )
    problem = Problem(file, overrides, choices)
    result = search(problem, jobs=jobs, progress=progress)
    settled = problem.settled(result.best.plan)
    compiled = compile_source(source, settled, LEVEL, choices=choices, observe=observe, insertions=insertions)
    return _with_report(compiled, result)


def _with_report(compiled: Compiled, result: SearchResult) -> Compiled:
    report: dict[str, Any] = compiled.report | {"search": summary(result)}
    return replace(compiled, artifact=replace(compiled.artifact, report=report))
