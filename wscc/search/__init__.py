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

from wscc.diagnostics import Code, CompileError, Diagnostic
from wscc.frontend.overrides import UsageError
from wscc.machine.topology import mesh_topology
from wscc.search.candidates import Problem, Refused, compiled, estimated, refused, simulated, too_large
from wscc.search.closed_forms import Bound, ClosedForms
from wscc.search.outcome import Candidate, End, Found, none_fits
from wscc.search.space import Strategy, replicas_of, strategies
from wscc.search.workers import Workers
from wscc.strategy import dies_of

BUDGET: Final = 8
# Strategies of fewer dies are looked at until so many could fit; so many are estimated at most.
WIDE: Final = 64
MOST_ESTIMATED: Final = 400
# Strategies that are compiled, and programs that are simulated, before what they tell counts.
_COMPILED_AT_ONCE: Final = 4
_SIMULATED_AT_ONCE: Final = 2
# Fewer are not worth starting processes for.
_FEW: Final = 12

Progress = Callable[[str, int, int], None]


def search(
    problem: Problem, budget: int = BUDGET, jobs: int = 1,
    progress: Progress = lambda words, done, of: None,
) -> Found:  # fmt: skip
    """The strategies of a program, of which `budget` are compiled at most. Raises the program's own `CompileError`, or
    W206 if none fits, W006 for a call order."""
    if problem.choices.call_order is not None:
        message = "a call order is of one strategy, and the search looks at many"
        help = "leave out `--call-order`, or `parallel auto`"
        raise UsageError(Diagnostic(Code.OPTION, message, help=help))
    space = _Space(problem)
    found = Found(space.live)
    fitting = space.fitting(found)
    with Workers(problem, jobs if len(fitting) > _FEW else 1) as workers:
        run = _Search(found, workers, progress)
        run.estimate(fitting)
        run.measure(budget)
    if not found.simulated:
        raise none_fits(found)
    return found


@dataclass
class _Space:
    """Strategies of all live dies that reach each other, then of fewer."""

    problem: Problem
    forms: dict[Strategy, ClosedForms | Refused] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.base = self.problem.one_die()
        self.live = len(mesh_topology(self.base.machine).islands[0])

    def fitting(self, found: Found) -> list[Candidate]:
        """Those whose replicas divide the batch and that may have room: the program's own, then by bound."""
        own = self.problem.given
        fitting: list[Candidate] = []
        for dies in range(self.live, 0, -1):
            if len(fitting) >= WIDE:
                break
            found.dies.append(dies)
            for strategy in strategies(dies):
                self._sort_out(strategy, fitting, found)
        if own is not None and dies_of(own) not in found.dies:
            self._sort_out(own, fitting, found)
        return sorted(fitting, key=lambda c: (not c.is_given, c.bound.seconds, -c.dies, c.strategy))

    def _sort_out(self, strategy: Strategy, fitting: list[Candidate], found: Found) -> None:
        what = self._judged(strategy)
        if isinstance(what, Refused):
            found.refused.append((strategy, what))
        else:
            fitting.append(Candidate(strategy, what, is_given=strategy == self.problem.given))

    def _judged(self, strategy: Strategy) -> Bound | Refused:
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
    found: Found
    workers: Workers
    progress: Progress

    def estimate(self, fitting: list[Candidate]) -> None:
        """Rank by estimate, as the others; those beyond `MOST_ESTIMATED` come last, without one."""
        first, rest = fitting[:MOST_ESTIMATED], fitting[MOST_ESTIMATED:]
        ranked = []
        results = self.workers.results(estimated, [c.strategy for c in first])
        for candidate, seconds in zip(first, results, strict=True):
            self.found.estimated += 1
            self.progress("estimated", self.found.estimated, len(first))
            if isinstance(seconds, Refused):
                self.found.refused.append((candidate.strategy, seconds))
            else:
                candidate.estimate = seconds
                ranked.append(candidate)
        self.found.others = [*sorted(ranked, key=self._rank), *rest]

    def measure(self, budget: int) -> None:
        """Compile in the order of estimates, but not what its bound rules out, and simulate the best of what compiled;
        beyond the budget only as long as nothing has compiled. Rounds are of one size, however many processes there
        are, so that what is known in each depends on the strategies alone."""
        found = self.found
        while found.compiled < budget or not found.simulated:
            left = budget - found.compiled
            size = min(_COMPILED_AT_ONCE, left) if left > 0 else _COMPILED_AT_ONCE
            open_ = [c for c in found.others if c.estimate is not None and c.bound.seconds < found.seconds]
            if not open_:
                break
            self._compile(open_[:size], budget)
            self._simulate([c for c in open_[:size] if c.program])
            found.others.sort(key=self._rank)
        found.slower.sort(key=_by_least)
        found.end = self._end()

    def _compile(self, turn: list[Candidate], budget: int) -> None:
        found = self.found
        for c, made in zip(turn, self.workers.results(compiled, [c.strategy for c in turn]), strict=True):
            found.compiled += 1
            found.others.remove(c)
            self.progress("compiled", found.compiled, max(budget, found.compiled))
            if isinstance(made, Refused):
                found.refused.append((c.strategy, made))
            else:
                c.program, c.least = made, max(c.least, made.seconds)
                c.peak_bytes_per_die_max = made.peak_bytes_per_die_max

    def _simulate(self, programs: list[Candidate]) -> None:
        """The lowest bound first, as long as it is below the best step."""
        waiting = sorted(programs, key=_by_least)
        while waiting:
            turn, waiting = waiting[:_SIMULATED_AT_ONCE], waiting[_SIMULATED_AT_ONCE:]
            for c in [c for c in turn if c.least >= self.found.seconds]:
                turn.remove(c)
                self.found.slower.append(c)
            figures = self.workers.results(simulated, [c.program for c in turn if c.program])
            for c, what in zip(turn, figures, strict=True):
                c.figures, c.least = what, what.step_seconds
                self.found.simulated.append(c)
            self.found.simulated.sort(key=_by_least)
        for c in programs:
            c.program = None  # large, and no longer needed

    def _rank(self, c: Candidate) -> tuple[bool, float, int, Strategy]:
        """The program's own is compiled first, so that the search does not end with a worse one. Then by estimate, so
        much longer as those of what was compiled turned out: of strategies with the same axes, or else of all."""
        if c.estimate is None:
            return True, inf, -c.dies, c.strategy
        known = [k for k in (*self.found.simulated, *self.found.slower) if k.estimate and k.least]
        alike = [k for k in known if {a for a, _ in k.strategy} == {a for a, _ in c.strategy}]
        factor = geometric_mean([k.least / k.estimate for k in alike or known if k.estimate] or [1.0])
        return not c.is_given, c.estimate * factor, -c.dies, c.strategy

    def _end(self) -> End:
        if self.found.bound >= self.found.seconds:
            return End.BOUND if self.found.others or self.found.slower else End.SIMULATED
        return End.BUDGET


def _by_least(c: Candidate) -> tuple[float, Strategy]:
    return c.least, c.strategy
