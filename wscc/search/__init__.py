"""The strategy search: which plan, degrees of the axes and settings, makes the shortest simulated step of a model.

Two levels: estimates of many plans, then simulation of the compiled programs of the best.

Dual-level search after TEMP (arXiv 2512.14256): a coarse filter, then a cheap model ranks, and what it ranks first is
measured. The cost model is never trusted: the winner is decided by simulated steps. Work is bounded by numbers of
plans, never by time, so that the outcome is the same on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Final

from wscc.diagnostics import Code, Diagnostic, UsageError
from wscc.driver.proposals import with_proposals
from wscc.search.candidates import Problem, Refused, compiled, estimated, simulated
from wscc.search.coarse import Space
from wscc.search.explore import Exploration
from wscc.search.outcome import Candidate, End, SearchResult, none_fits
from wscc.search.space import Plan
from wscc.search.workers import Evaluators

BUDGET: Final = 8
MOST_ESTIMATED: Final = 400
# Plans that are compiled, and programs that are simulated, in one round: all on the same information.
_COMPILED_AT_ONCE: Final = 4
_SIMULATED_AT_ONCE: Final = 2
# Fewer plans are not worth starting processes for.
_FEW: Final = 12

Progress = Callable[[str, int, int], None]


def search(
    problem: Problem, budget: int = BUDGET, jobs: int = 1,
    progress: Progress = lambda words, done, of: None, limit: int = MOST_ESTIMATED,
) -> SearchResult:  # fmt: skip
    """The plans of a program in order of time, of which at most `limit` are estimated and `budget` compiled, by `jobs`
    processes.

    Raises the program's own `CompileError`, W206 if no plan fits, W006 for a call order, and for pins W007, W008, W005
    and W010.
    """
    if problem.choices.call_order is not None:
        message = "a call order is of one strategy, and the search looks at many"
        help = "leave out `--call-order`, or `parallel auto`"
        raise UsageError(Diagnostic(Code.OPTION, message, help=help))
    space = Space(problem)
    result = SearchResult(space.live, space.open, list(space.refused))
    with Evaluators(problem, jobs if space.plans > _FEW else 1) as workers:
        run = _Search(space, result, workers, progress, limit)
        run.explore(budget)
        run.measure(budget)
    if not result.simulated:
        raise with_proposals(none_fits(result, space.forms.wafer.die), problem.trials())
    return result


@dataclass
class _Search:
    """A run of the search over a space, which fills the result."""

    space: Space
    result: SearchResult
    workers: Evaluators
    progress: Progress
    limit: int

    def explore(self, budget: int) -> None:
        """Estimate plans: the program's own, so that the search does not end with a worse one, and what is worth it.
        Of a large space, what begins best is measured early: its step rules out all that has a higher bound."""
        given = self.space.given()
        exploration = Exploration(self.space, self._estimates, self.limit)
        exploration.begin([given] if given else [])
        self._take(exploration, given)
        if self.space.plans <= self.limit:
            return
        if budget > 1 and self.result.others:
            self.measure(1)
        exploration.go_on(self.result.seconds)
        self._take(exploration, given)

    def _take(self, exploration: Exploration, given: Plan | None) -> None:
        """Make candidates of the plans that were estimated, and note the refusals of those that were left out."""
        result = self.result
        known = {c.plan for c in (*result.simulated, *result.slower, *result.others)} | {
            p for p, _ in result.refused
        }
        for plan, seconds in exploration.seconds.items():
            if seconds is not None and plan not in known:
                result.others.append(Candidate(plan, self.space.bound(plan), plan == given, seconds))
        result.refused += [(p, why) for p, why in exploration.left_out.items() if p not in known]
        result.others.sort(key=self._rank)

    def _estimates(self, plans: Sequence[Plan]) -> Sequence[float | None]:
        found: list[float | None] = []
        for plan, seconds in zip(plans, self.workers.results(estimated, plans), strict=True):
            self.result.estimated += 1
            self.progress("estimated", self.result.estimated, min(self.space.plans, self.limit))
            if isinstance(seconds, Refused):
                self.result.refused.append((plan, seconds))
                self.space.learn(plan, seconds)
            found.append(None if isinstance(seconds, Refused) else seconds)
        return found

    def measure(self, budget: int) -> None:
        """Compile in the order of estimates, a plan of each strategy first, but not what its bound rules out; simulate
        the best of what compiled. Beyond the budget, go on only until something has compiled. Rounds are of one size,
        however many processes there are, so that the information in each depends on the plans alone."""
        result = self.result
        while result.compiled < budget or not result.simulated:
            left = budget - result.compiled
            size = min(_COMPILED_AT_ONCE, left) if left > 0 else _COMPILED_AT_ONCE
            pending = [c for c in result.others if c.bound.seconds < result.seconds]
            if not pending:
                break
            round_ = _of_many_strategies(pending)[:size]
            self._compile(round_, budget)
            self._simulate([c for c in round_ if c.program])
            result.others.sort(key=self._rank)
        result.slower.sort(key=_by_least)
        result.end = self._end()

    def _compile(self, round_: list[Candidate], budget: int) -> None:
        result = self.result
        programs = self.workers.results(compiled, [c.plan for c in round_])
        for c, program in zip(round_, programs, strict=True):
            result.compiled += 1
            result.others.remove(c)
            self.progress("compiled", result.compiled, max(budget, result.compiled))
            if isinstance(program, Refused):
                result.refused.append((c.plan, program))
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

    def _rank(self, c: Candidate) -> tuple[bool, float, int, Plan]:
        """The order of compilation: the program's own plan, then by estimate, times the mean error of earlier
        estimates: of plans with the same axes, or else of all."""
        measured = [k for k in (*self.result.simulated, *self.result.slower) if k.least]
        alike = [k for k in measured if {a for a, _ in k.strategy} == {a for a, _ in c.strategy}]
        factor = geometric_mean([k.least / k.estimate for k in alike or measured] or [1.0])
        return not c.is_given, c.estimate * factor, -c.dies, c.plan

    def _end(self) -> End:
        if self.result.bound >= self.result.seconds:
            return End.BOUND if self.result.others or self.result.slower else End.SIMULATED
        return End.BUDGET


def _of_many_strategies(ranked: Sequence[Candidate]) -> list[Candidate]:
    """The candidates, the best of each strategy before others: what one measures says little of other strategies."""
    best = {c.strategy: c for c in reversed(ranked)}
    return sorted(ranked, key=lambda c: best[c.strategy] is not c)


def _by_least(c: Candidate) -> tuple[float, Plan]:
    return c.least, c.plan
