"""What `wscc search` finds by itself for the cases of `roof`, of all plans and of those of each rival."""

from __future__ import annotations

import time

from tests.bench.roof_cases import OURS, RIVALS, Case
from wscc.diagnostics import CompileError
from wscc.files import read_source
from wscc.frontend.overrides import Overrides
from wscc.frontend.parse import parse
from wscc.search import search
from wscc.search.candidates import Problem
from wscc.search.outcome import SearchResult


def found(case: Case, pins: tuple[str, ...]) -> SearchResult:
    """The result of a search with no strategy given, but for pins. Raises `CompileError`."""
    sets = (*case.sets, f"train.batch={case.batch}")
    return search(Problem(parse(read_source(case.sample)), Overrides(sets, "auto", pins=pins)))


def show_searched(case: Case, rivals: tuple[str, ...] = ()) -> None:
    """A row for the best plan of each of some rivals (none: of all): its step, its MFU, and what was looked at."""
    for name in rivals or (RIVALS if OURS in case.strategies else (OURS,)):
        begun = time.process_time()
        try:
            told = _told(case, found(case, RIVALS[name]))
        except CompileError as error:
            told = f"refused: {error.diagnostics[0].code} {error.diagnostics[0].message}"
        print(f"  {f'searched {name}':<18}{told} ({time.process_time() - begun:.0f} CPU s)", flush=True)


def _told(case: Case, result: SearchResult) -> str:
    figures = result.best.figures
    assert figures is not None, "the best was simulated"
    reached = "+" if figures.mfu >= case.goal else " "
    numbers = (
        f"{result.seconds:>9.4g}{100 * figures.mfu:>7.1f}{reached}{100 * case.goal:>6.0f}{result.bound:>9.4g}"
    )
    counts = f"{result.estimated} estimated, {result.compiled} compiled, {len(result.simulated)} simulated"
    return f"{result.best.plan!s:<74}{numbers}  {counts}"
