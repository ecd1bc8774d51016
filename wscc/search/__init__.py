"""The strategy search: which degrees of the axes make the shortest simulated step of a model on its wafer.

Two levels: estimates of all strategies, then simulation of the compiled programs of the best.

Dual-level search after TEMP (arXiv 2512.14256): a cheap model ranks, and what it ranks first is measured. The cost
model is never trusted: the winner is decided by simulated steps. Work is bounded by numbers of strategies, never by
time, so that the outcome is the same on any machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from statistics import geometric_mean
from typing import Final

from wscc.diagnostics import Code, CompileError, Diagnostic, UsageError
from wscc.driver.proposals import proposing, with_proposals
from wscc.machine.topology import mesh_topology
from wscc.search.candidates import Problem, Refused, compiled, estimated, refused, simulated, too_large
from wscc.search.closed_forms import Bound, ClosedForms
from wscc.search.outcome import Candidate, End, SearchResult, none_fits
from wscc.search.space import ONE_DIE, Strategy, replicas_of, strategies
from wscc.search.workers import Evaluators
from wscc.strategy import dies_of

BUDGET: Final = 8
# Strategies of fewer dies are considered until WIDE could fit; at most MOST_ESTIMATED are estimated.
WIDE: Final = 64
MOST_ESTIMATED: Final = 400
# Strategies that are compiled, and programs that are simulated, in one round: all on the same information.
_COMPILED_AT_ONCE: Final = 4
_SIMULATED_AT_ONCE: Final = 2
# Fewer strategies are not worth starting processes for.
_FEW: Final = 12

Progress = Callable[[str, int, int], None]


def search(
    problem: Problem, budget: int = BUDGET, jobs: int = 1,
    progress: Progress = lambda words, done, of: None,
) -> SearchResult:  # fmt: skip
    """The strategies of a program in order of time, of which at most `budget` are compiled, by `jobs` processes.

    Raises the program's own `CompileError`, W206 if no strategy fits, W006 for a call order.
    """
    if problem.choices.call_order is not None:
        message = "a call order is of one strategy, and the search looks at many"
        help = "leave out `--call-order`, or `parallel auto`"
        raise UsageError(Diagnostic(Code.OPTION, message, help=help))
    space = _Space(problem)
    result = SearchResult(space.live)
    fitting = space.fitting(result)
    with Evaluators(problem, jobs if len(fitting) > _FEW else 1) as workers:
        run = _Search(result, workers, progress)
        run.estimate(fitting)
        run.measure(budget)
    if not result.simulated:
        raise with_proposals(none_fits(result, space.base.machine.die), problem.trials())
    return result


@dataclass
class _Space:
    """The strategies of all live dies that reach each other, then of fewer."""

    problem: Problem
    forms: dict[Strategy, ClosedForms | Refused] = field(default_factory=dict)

    def __post_init__(self) -> None:
        with proposing(self.problem.trials(ONE_DIE)):
            self.base = self.problem.one_die()
        self.live = len(mesh_topology(self.base.machine).islands[0])

    def fitting(self, result: SearchResult) -> list[Candidate]:
        """Strategies whose replicas divide the batch and that may have room: the program's own, then by bound."""
        given = self.problem.given
        fitting: list[Candidate] = []
        for dies in range(self.live, 0, -1):
            if len(fitting) >= WIDE:
                break
            result.dies.append(dies)
            for strategy in strategies(dies):
                self._sort(strategy, fitting, result)
        if given is not None and dies_of(given) not in result.dies:
            self._sort(given, fitting, result)
        return sorted(fitting, key=lambda c: (not c.is_given, c.bound.seconds, -c.dies, c.strategy))

    def _sort(self, strategy: Strategy, fitting: list[Candidate], result: SearchResult) -> None:
        """Add the strategy to the fitting or to the refused ones."""
        bound = self._bound(strategy)
        if isinstance(bound, Refused):
            result.refused.append((strategy, bound))
        else:
            fitting.append(Candidate(strategy, bound, is_given=strategy == self.problem.given))

    def _bound(self, strategy: Strategy) -> Bound | Refused:
        replicas = replicas_of(strategy)
        if replicas not in self.forms:
            self.forms[replicas] = self._closed_forms(replicas)
        forms = self.forms[replicas]
        if isinstance(forms, Refused):
            return forms
        bound = forms.bound(strategy)
        return too_large(self.base, bound.bytes) or bound

    def _closed_forms(self, replicas: Strategy) -> ClosedForms | Refused:
        try:
            return ClosedForms.of(self.problem.graph(replicas), self.problem.differentiated(replicas))
        except CompileError as error:
            return refused(error)


@dataclass
class _Search:
    """A run of the search over fitting strategies, which fills the result."""

    result: SearchResult
    workers: Evaluators
    progress: Progress

    def estimate(self, fitting: list[Candidate]) -> None:
        """Estimate and rank the strategies; those beyond `MOST_ESTIMATED` come last, without an estimate."""
        first, rest = fitting[:MOST_ESTIMATED], fitting[MOST_ESTIMATED:]
        ranked = []
        results = self.workers.results(estimated, [c.strategy for c in first])
        for candidate, seconds in zip(first, results, strict=True):
            self.result.estimated += 1
            self.progress("estimated", self.result.estimated, len(first))
            if isinstance(seconds, Refused):
                self.result.refused.append((candidate.strategy, seconds))
            else:
                candidate.estimate = seconds
                ranked.append(candidate)
        self.result.others = [*sorted(ranked, key=self._rank), *rest]

    def measure(self, budget: int) -> None:
        """Compile in the order of estimates, but not what its bound rules out, and simulate the best of what compiled;
        beyond the budget only as long as nothing has compiled. Rounds are of one size, however many processes there
        are, so that the information in each depends on the strategies alone."""
        result = self.result
        while result.compiled < budget or not result.simulated:
            left = budget - result.compiled
            size = min(_COMPILED_AT_ONCE, left) if left > 0 else _COMPILED_AT_ONCE
            pending = [
                c for c in result.others if c.estimate is not None and c.bound.seconds < result.seconds
            ]
            if not pending:
                break
            self._compile(pending[:size], budget)
            self._simulate([c for c in pending[:size] if c.program])
            result.others.sort(key=self._rank)
        result.slower.sort(key=_by_least)
        result.end = self._end()

    def _compile(self, round_: list[Candidate], budget: int) -> None:
        result = self.result
        programs = self.workers.results(compiled, [c.strategy for c in round_])
        for c, program in zip(round_, programs, strict=True):
            result.compiled += 1
            result.others.remove(c)
            self.progress("compiled", result.compiled, max(budget, result.compiled))
            if isinstance(program, Refused):
                result.refused.append((c.strategy, program))
            else:
                c.program, c.least = program, max(c.least, program.seconds)
                c.peak_bytes_per_die_max = program.peak_bytes_per_die_max

    def _simulate(self, programs: list[Candidate]) -> None:
        """Simulate programs, the lowest bound first, as long as it is below the best step."""
        waiting = sorted(programs, key=_by_least)
        while waiting:
            round_, waiting = waiting[:_SIMULATED_AT_ONCE], waiting[_SIMULATED_AT_ONCE:]
            for c in [c for c in round_ if c.least >= self.result.seconds]:
                round_.remove(c)
                self.result.slower.append(c)
            figures = self.workers.results(simulated, [c.program for c in round_ if c.program])
            for c, simulation in zip(round_, figures, strict=True):
                c.figures, c.least = simulation, simulation.step_seconds
                self.result.simulated.append(c)
            self.result.simulated.sort(key=_by_least)
        for c in programs:
            c.program = None  # large, and no longer needed

    def _rank(self, c: Candidate) -> tuple[bool, float, int, Strategy]:
        """The order of compilation: the program's own strategy, so that the search does not end with a worse one, then
        by estimate, times the mean error of earlier estimates: of strategies with the same axes, or else of all."""
        if c.estimate is None:
            return True, inf, -c.dies, c.strategy
        measured = [k for k in (*self.result.simulated, *self.result.slower) if k.estimate and k.least]
        alike = [k for k in measured if {a for a, _ in k.strategy} == {a for a, _ in c.strategy}]
        factor = geometric_mean([k.least / k.estimate for k in alike or measured if k.estimate] or [1.0])
        return not c.is_given, c.estimate * factor, -c.dies, c.strategy

    def _end(self) -> End:
        if self.result.bound >= self.result.seconds:
            return End.BOUND if self.result.others or self.result.slower else End.SIMULATED
        return End.BUDGET


def _by_least(c: Candidate) -> tuple[float, Strategy]:
    return c.least, c.strategy
