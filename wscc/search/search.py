"""The search, at two levels: estimates of all strategies, then simulation of the compiled programs of the best.

Dual-level search after TEMP (arXiv 2512.14256): a cheap model ranks, and what it ranks first is measured. The cost model is
never trusted: the winner is decided by simulated steps. Work is bounded by numbers of strategies, never by time, so that the
outcome is the same on any machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from wscc.diagnostics import Code, CompileError, fail
from wscc.machine.topology import mesh_topology
from wscc.passes.plan_memory_report import size
from wscc.search.candidates import Problem, Refused, Simulated, estimated, simulated, too_large
from wscc.search.closed_forms import Bound, ClosedForms
from wscc.search.space import ONE_DIE, Strategy, spell, strategies
from wscc.search.workers import Workers
from wscc.strategy import BATCH, dies_of, policy

BUDGET: Final = 8
# Strategies of fewer dies are looked at until so many could fit; so many are estimated at most.
WIDE: Final = 64
MOST_ESTIMATED: Final = 400
# Strategies that are compiled before what is known of the best counts.
ROUND: Final = 4
# Fewer are not worth starting processes for.
_FEW: Final = 24

Progress = Callable[[str, int, int], None]


class End(StrEnum):
    """Why the search stopped."""

    SIMULATED = "every strategy that compiles was simulated"
    BOUND = "no other strategy can be faster, by its bound"
    BUDGET = "the budget of compiled strategies was used up"


@dataclass(slots=True)
class Candidate:
    """A strategy that the closed forms let pass; `seconds` is the estimate, where it was sharded."""

    strategy: Strategy
    bound: Bound
    seconds: float | None = None
    figures: Simulated | None = None

    @property
    def dies(self) -> int:
        return dies_of(self.strategy)


@dataclass(slots=True)
class Found:
    """The outcome. `dies` are the numbers of dies that were looked at, `live` how many can reach each other;
    `simulated` is in order of time, `others` of estimate, without those that were refused."""

    live: int
    dies: list[int] = field(default_factory=list)
    simulated: list[Candidate] = field(default_factory=list)
    others: list[Candidate] = field(default_factory=list)
    refused: list[tuple[Strategy, Refused]] = field(default_factory=list)
    estimated: int = 0
    end: End = End.SIMULATED

    @property
    def best(self) -> Candidate:
        return self.simulated[0]

    @property
    def seconds(self) -> float:
        """Of the best simulated step."""
        assert self.best.figures is not None
        return self.best.figures.step_seconds

    @property
    def bound(self) -> float:
        """Seconds that no strategy of those looked at goes below."""
        return min([self.seconds, *(c.bound.seconds for c in self.others)])

    @property
    def strategies(self) -> int:
        return len(self.simulated) + len(self.others) + len(self.refused)


def search(
    problem: Problem, budget: int = BUDGET, jobs: int = 1,
    progress: Progress = lambda words, done, of: None,
) -> Found:  # fmt: skip
    """The strategies of a program. Raises the program's own `CompileError`, or W204 if none fits."""
    space = _Space(problem)
    found = Found(space.live)
    fitting = space.fitting(found)
    with Workers(problem, jobs if len(fitting) > _FEW else 1) as workers:
        ranked = _ranked(fitting, found, workers, progress)
        _measure(ranked, found, workers, budget, progress)
    if not found.simulated:
        raise _none_fits(found)
    return found


# ---- which there are


@dataclass
class _Space:
    """Strategies of all live dies that reach each other, then of fewer."""

    problem: Problem
    forms: dict[Strategy, ClosedForms | Refused] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.base = self.problem.graph(ONE_DIE)  # what is wrong with one die is wrong with the program
        self.live = len(mesh_topology(self.base.machine).islands[0])

    def fitting(self, found: Found) -> list[Candidate]:
        """Those whose replicas divide the batch and that may have room, the lowest bound first."""
        fitting: list[Candidate] = []
        for dies in range(self.live, 0, -1):
            if len(fitting) >= WIDE:
                break
            found.dies.append(dies)
            for strategy in strategies(dies):
                what = self._judged(strategy)
                if isinstance(what, Refused):
                    found.refused.append((strategy, what))
                else:
                    fitting.append(Candidate(strategy, what))
        return sorted(fitting, key=lambda c: (c.bound.seconds, -c.dies, c.strategy))

    def _judged(self, strategy: Strategy) -> Bound | Refused:
        forms = self._forms(tuple((a, n) for a, n in strategy if policy(a).seed == (BATCH,)))
        if isinstance(forms, Refused):
            return forms
        bound = forms.bound(strategy)
        return too_large(self.base, bound.bytes) or bound

    def _forms(self, replicas: Strategy) -> ClosedForms | Refused:
        """The graph depends on axes of replicas alone."""
        if replicas not in self.forms:
            try:
                self.forms[replicas] = ClosedForms.of(self.problem.graph(replicas))
            except CompileError as error:
                first = error.diagnostics[0]
                self.forms[replicas] = Refused(first.code, first.message)
        return self.forms[replicas]


# ---- the two levels


def _ranked(
    fitting: list[Candidate], found: Found, workers: Workers, progress: Progress
) -> list[Candidate]:
    """The candidates by estimate; those beyond `MOST_ESTIMATED` stay without one, among the others."""
    first, found.others = fitting[:MOST_ESTIMATED], fitting[MOST_ESTIMATED:]
    found.estimated = len(first)
    ranked = []
    results = workers.results(estimated, [c.strategy for c in first])
    for done, (candidate, seconds) in enumerate(zip(first, results, strict=True), 1):
        progress("estimated", done, len(first))
        if isinstance(seconds, Refused):
            found.refused.append((candidate.strategy, seconds))
        else:
            candidate.seconds = seconds
            ranked.append(candidate)
    return sorted(ranked, key=lambda c: (c.seconds, -c.dies, c.strategy))


def _measure(
    ranked: list[Candidate], found: Found, workers: Workers, budget: int, progress: Progress
) -> None:
    """Compile and simulate in rounds of one size, however many processes there are: so that it depends on the
    strategies alone what is known when a round is chosen. Beyond the budget only as long as nothing has compiled."""
    waiting, used = ranked, 0
    while waiting and (used < budget or not found.simulated):
        wanted = [c for c in waiting if not found.simulated or c.bound.seconds < found.seconds]
        turn = wanted[: min(ROUND, budget - used) if used < budget else ROUND]
        if not turn:
            break
        for c, figures in zip(turn, workers.results(simulated, [c.strategy for c in turn]), strict=True):
            used += 1
            progress("simulated", used, budget)
            if isinstance(figures, Refused):
                found.refused.append((c.strategy, figures))
            else:
                c.figures = figures
                found.simulated.append(c)
        waiting = [c for c in waiting if c not in turn]
        found.simulated.sort(key=_seconds)
    found.others = waiting + found.others
    if found.simulated and found.others:
        found.end = End.BOUND if found.bound >= found.seconds else End.BUDGET


def _seconds(c: Candidate) -> float:
    assert c.figures is not None
    return c.figures.step_seconds


def _none_fits(found: Found) -> CompileError:
    """W204 with how many were refused for what, and the one that is nearest to fitting."""
    words = "; ".join(f"{r.count} {r.code}, such as `{r.example}`: {r.message}" for r in refusals(found))
    message = f"none of {found.strategies} strategies of {spoken(found.dies)} fits: {words}"
    short = [(r.bytes, s) for s, r in found.refused if r.bytes]
    help = "enlarge the mesh, or change `batch` and `microbatch`"
    if short:
        needed, strategy = min(short)
        help = f"`{spell(strategy)}` is nearest: it needs {size(needed)} on each die; " + help
    return fail(Code.NO_STRATEGY, message, help=help)


# ---- what is told of it


@dataclass(frozen=True, slots=True)
class Refusals:
    """Strategies refused with one code, and the first of them."""

    code: Code
    count: int
    example: str
    message: str


def refusals(found: Found) -> list[Refusals]:
    """By code, the most frequent first."""
    by_code: dict[Code, list[tuple[Strategy, Refused]]] = {}
    for strategy, r in found.refused:
        by_code.setdefault(r.code, []).append((strategy, r))
    rows = [
        Refusals(code, len(all_), spell(all_[0][0]), all_[0][1].message) for code, all_ in by_code.items()
    ]
    return sorted(rows, key=lambda r: (-r.count, r.code))


def spoken(dies: list[int]) -> str:
    return f"{dies[0]} dies" if len(dies) == 1 else f"{dies[0]} to {dies[-1]} dies"
