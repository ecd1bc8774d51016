"""The strategy search: which plan, degrees of the axes and settings, makes the shortest simulated step of a model.

Two levels: estimates of many plans, then simulation of the compiled programs of the best.

Dual-level search after TEMP (arXiv 2512.14256): a coarse filter, then a cheap model ranks, and what it ranks first is
measured. The cost model is never trusted: the winner is decided by simulated steps. Work is bounded by numbers of
plans, never by time, so that the outcome is the same on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import geometric_mean
from typing import Final

from wscc.diagnostics import Code, Diagnostic, UsageError
from wscc.driver.proposals import with_proposals
from wscc.search.candidates import Problem, Refused, compiled, estimated, simulated
from wscc.search.coarse import Space
from wscc.search.explore import TRUST, Exploration
from wscc.search.outcome import Candidate, End, SearchResult, none_fits
from wscc.search.space import Plan, is_leaner
from wscc.search.wishes import nearest_wishes
from wscc.search.workers import Evaluators

# Plans that are compiled at most, unless a budget is given: more of few dies, where one costs little, and where damage,
# which estimates do not know, weighs most.
BUDGET: Final = 8
_DIES_COMPILED: Final = 128  # of all plans together
_FEW_DIES: Final = 32
_MANY_DIES: Final = 64
# The part of a step by which estimates are off.
_OFF: Final = 0.2
MOST_ESTIMATED: Final = 400
# Plans that are compiled, and programs that are simulated, in one round: all on the same information.
_COMPILED_AT_ONCE: Final = 2
_SIMULATED_AT_ONCE: Final = 2
# Fewer plans are not worth starting processes for.
_FEW: Final = 12

Progress = Callable[[str, int, int], None]


def search(
    problem: Problem, budget: int | None = None, jobs: int = 1,
    progress: Progress = lambda words, done, of: None, limit: int = MOST_ESTIMATED,
) -> SearchResult:  # fmt: skip
    """The plans of a program in order of time, of which at most `limit` are estimated and `budget` compiled, by `jobs`
    processes; without a budget, only those whose estimates are near the best step.

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
        run = _Search(space, result, workers, progress, limit, inf if budget else _hope(space.live))
        most = budget or max(BUDGET, _DIES_COMPILED // space.live)
        run.explore(most)
        run.measure(most)
    if not result.simulated:
        refusal = none_fits(result, space.forms.die, nearest_wishes(problem))
        raise with_proposals(refusal, problem.trials())
    return result


@dataclass
class _Search:
    """A run of the search over a space, which fills the result."""

    space: Space
    result: SearchResult
    workers: Evaluators
    progress: Progress
    limit: int
    hope: float  # times the best step: what is not worth compiling by its corrected estimate
    exploration: Exploration = field(init=False)

    def __post_init__(self) -> None:
        self.exploration = Exploration(self.space, self._estimates, self.limit)

    def explore(self, budget: int) -> None:
        """Estimate plans: the program's own, so that the search does not end with a worse one, and what is worth it.
        Of a large space, the program's own is measured at once: it rules out what has a higher bound. Where there is
        none, estimates are trusted to rule out; what they should not have is looked at after all. The best of the most
        dies is measured before plans of fewer are estimated: it rules out most of them."""
        given, exploration = self.space.given(), self.exploration
        exploration.look([given] if given else [])
        if self.space.plans <= self.limit:
            exploration.all()
            self._take(given)
            return
        self._take(given)
        # One that leaves most dies unused rules out little.
        if budget > 1 and self.result.others and given is not None and 2 * given.dies > self.space.live:
            self.measure(1)
            exploration.enough = self.result.seconds
        exploration.trust = TRUST
        exploration.begin()
        self._take(given)
        if budget > self.result.compiled + 1:
            self.measure(self.result.compiled + 1)
            exploration.enough = self.result.seconds
        self._go_on(given)
        if budget > 1:
            self.measure(budget)
        if exploration.ruled_out < self.result.seconds < inf:
            exploration.enough, exploration.trust = self.result.seconds, inf
            exploration.begin()
            self._go_on(given)

    def _go_on(self, given: Plan | None) -> None:
        self.exploration.go_on()
        self._take(given)

    def _take(self, given: Plan | None) -> None:
        """Make candidates of the plans that were estimated, and note the refusals of those that were left out."""
        result, exploration = self.result, self.exploration
        known = {c.plan for c in (*result.simulated, *result.slower, *result.others)} | {
            p for p, _ in result.refused
        }
        for plan, seconds in exploration.seconds.items():
            if seconds is not None and plan not in known:
                result.others.append(Candidate(plan, self.space.bound(plan), plan == given, seconds))
        left_out = [(p, why) for p, why in exploration.left_out.items() if p not in known]
        result.refused += left_out
        result.left_out.update(why.code for _, why in left_out)
        self._order()

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
        """Compile in the order of estimates, but not what its bound rules out; simulate the best of what compiled.
        Beyond the budget, go on only until something has compiled. Rounds are of one size, however many processes there
        are, so that the information in each depends on the plans alone."""
        result = self.result
        while result.compiled < budget or not result.simulated:
            left = budget - result.compiled
            size = min(_COMPILED_AT_ONCE, left) if left > 0 else _COMPILED_AT_ONCE
            pending = [c for c in result.others if self._may_win(c)]
            if not pending:
                break
            round_ = self._round(pending, size)
            self._compile(round_, budget)
            self._simulate([c for c in round_ if c.program])
            self._order()
        result.slower.sort(key=_by_least)
        result.end = self._end(budget)

    def _round(self, ranked: Sequence[Candidate], size: int) -> list[Candidate]:
        """So many candidates: in turn the best, and the best of a strategy that was not measured: estimates are farther
        off between strategies than between settings of one."""
        known = {c.strategy for c in (*self.result.simulated, *self.result.slower)}
        round_: list[Candidate] = []
        while len(round_) < min(size, len(ranked)):
            left = [c for c in ranked if c not in round_]
            new = (c for c in left if c.strategy not in known)
            chosen = next(new, left[0]) if len(round_) % 2 else left[0]
            round_.append(chosen)
            known.add(chosen.strategy)
        return round_

    def _may_win(self, c: Candidate) -> bool:
        best = self.result.seconds
        return c.bound.seconds < best and (c.is_given or self._corrected(c) < self.hope * best)

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

    def _order(self) -> None:
        """Sort for compilation: the program's own plan unless its bound is far above, then by corrected estimate."""
        others = self.result.others
        near = TRUST * min((k.estimate for k in others), default=inf)

        def rank(c: Candidate) -> tuple[bool, float, int, Plan]:
            return not (c.is_given and c.bound.seconds < near), self._corrected(c), -c.dies, c.plan

        others.sort(key=rank)

    def _corrected(self, c: Candidate) -> float:
        """The estimate times the mean error of earlier ones: of as many dies with the same axes, or else of all, but
        then no more than the estimate: what makes some slower than estimated, as damage or little SRAM does, need not
        slow others. On many dies, where to be sure costs most, they are taken to be slower by as much."""
        if alike := self._alike(c):
            return c.estimate * _error(alike)
        error = _error(self._measured())
        return c.estimate * (error if self.space.live > _MANY_DIES else min(1.0, error))

    def _measured(self) -> list[Candidate]:
        return [k for k in (*self.result.simulated, *self.result.slower) if k.least]

    def _alike(self, c: Candidate) -> list[Candidate]:
        """The measured plans of as many dies with the same axes, but none that is slower than estimated and may be so
        because it stores more."""
        axes = {axis for axis, _ in c.strategy}
        alike = (k for k in self._measured() if k.dies == c.dies and {a for a, _ in k.strategy} == axes)
        return [k for k in alike if k.least <= k.estimate or not is_leaner(c.plan, k.plan)]

    def _end(self, budget: int) -> End:
        result = self.result
        if result.bound >= result.seconds:
            return End.BOUND if result.others or result.slower else End.SIMULATED
        return End.BUDGET if result.compiled >= budget else End.ESTIMATES


def _error(measured: Sequence[Candidate]) -> float:
    """The mean of simulated over estimated seconds."""
    return geometric_mean([c.least / c.estimate for c in measured] or [1.0])


def _hope(dies: int) -> float:
    """The times of the best step up to which a corrected estimate is worth compiling: estimates are a fifth off, but
    what a program costs grows with the dies; of the most, one costs as much as all estimates."""
    if dies <= _FEW_DIES:
        return 1 + max(_OFF, 1 / dies)
    return 1 + 1 / dies if dies <= _MANY_DIES else 1.0


def _by_least(c: Candidate) -> tuple[float, Plan]:
    return c.least, c.plan
