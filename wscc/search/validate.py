"""The validation of the estimate: plans of all kinds, estimated and simulated, and how well the two agree.

Spearman's rank correlation is that of the ranks, where equal values share the mean of theirs (C. Spearman, "The Proof
and Measurement of Association between Two Things", 1904); errors are those of the estimate over the simulated step.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import log
from statistics import correlation, median
from typing import Final

from wscc.diagnostics import Code, fail
from wscc.search.candidates import Compiled, Problem, Refused, compiled, estimated, simulated
from wscc.search.coarse import Open, Space
from wscc.search.explore import all_plans
from wscc.search.space import Plan
from wscc.search.workers import Evaluators

SAMPLES: Final = 30
_SEED: Final = 0
_FEWEST: Final = 3  # of two plans the ranks agree or do not, whatever the estimate
_TRIED: Final = 4  # plans that are tried for each that is wanted: some are refused
_ROUND: Final = 8


@dataclass(frozen=True, slots=True)
class Measured:
    """A plan with its estimated and its simulated seconds of a step."""

    plan: Plan
    estimate: float
    step: float

    @property
    def error(self) -> float:
        """The relative error of the estimate."""
        return self.estimate / self.step - 1


@dataclass(frozen=True, slots=True)
class Validation:
    """The plans that were measured, the worst estimates first; `plans` is how many there are in the space."""

    plans: int
    measured: tuple[Measured, ...]

    @property
    def rank_correlation(self) -> float | None:
        """Spearman's rank correlation of estimated and simulated seconds; None if all of either are equal, or there are
        fewer than three plans."""
        estimates, steps = ranks([m.estimate for m in self.measured]), ranks([m.step for m in self.measured])
        if len(self.measured) < _FEWEST or len(set(estimates)) < 2 or len(set(steps)) < 2:
            return None
        return correlation(estimates, steps)

    @property
    def median_error(self) -> float:
        """The median of the relative errors, without their sign."""
        return median(abs(m.error) for m in self.measured)

    @property
    def worst_error(self) -> float:
        """The relative error that is farthest off, as a ratio."""
        return self.measured[0].error


def validate(
    problem: Problem, samples: int = SAMPLES, jobs: int = 1,
    progress: Callable[[str, int, int], None] = lambda words, done, of: None,
) -> Validation:  # fmt: skip
    """The estimates of up to `samples` plans against simulation: all of a small space, else as many of each set of
    axes, drawn from a seed. Raises as `search` does for the program, and W206 if no plan compiles."""
    space = Space(problem)
    wanted = list(_drawn(list(space.open.values()), samples * _TRIED))
    tried = len(wanted)
    measured: list[Measured] = []
    with Evaluators(problem, jobs) as workers:
        while wanted and len(measured) < samples:
            round_, wanted = wanted[:_ROUND], wanted[_ROUND:]
            measured += _measured(round_, workers)
            progress("simulated", min(len(measured), samples), samples)
    if not measured:
        raise fail(
            Code.NO_STRATEGY,
            f"none of the {tried:,} plans that were tried, of {space.plans:,}, compiles",
            help="run `wscc search`",
        )
    worst_first = sorted(measured[:samples], key=lambda m: (-abs(log(m.estimate / m.step)), m.plan))
    return Validation(space.plans, tuple(worst_first))


def _measured(plans: Sequence[Plan], workers: Evaluators) -> list[Measured]:
    estimates = {
        p: seconds
        for p, seconds in zip(plans, workers.results(estimated, plans), strict=True)
        if not isinstance(seconds, Refused)
    }
    programs = [p for p in workers.results(compiled, list(estimates)) if isinstance(p, Compiled)]
    figures = workers.results(simulated, programs)
    return [
        Measured(p.plan, estimates[p.plan], f.step_seconds) for p, f in zip(programs, figures, strict=True)
    ]


def _drawn(open_: Sequence[Open], count: int) -> Iterator[Plan]:
    """All plans if they are few; else one of each set of axes in turn, drawn from a seed, without repetition."""
    if sum(o.plans for o in open_) <= count:
        for o in open_:
            yield from all_plans(o)
        return
    random_ = random.Random(_SEED)
    kinds: dict[frozenset[str], list[Open]] = {}
    for o in open_:
        kinds.setdefault(frozenset(axis for axis, _ in o.strategy), []).append(o)
    seen: set[Plan] = set()
    for _ in range(count):
        for kind in sorted(kinds, key=sorted):
            plan = random_.choice(list(all_plans(random_.choice(kinds[kind]))))
            if plan not in seen and len(seen) < count:
                seen.add(plan)
                yield plan


def ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value from 1; equal ones have the mean of theirs."""
    ordered = sorted(values)
    first = {v: i for i, v in reversed(list(enumerate(ordered)))}
    last = {v: i for i, v in enumerate(ordered)}
    return [1 + (first[v] + last[v]) / 2 for v in values]
