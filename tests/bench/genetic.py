"""A plain genetic algorithm beside the exploration of the search: `python -m tests.bench.genetic [WORD ...]`.

Both take estimates of the same space, as many of either, and from the same estimator; nothing is compiled. A row has
the best estimate of the exploration, and of the genetic algorithm from each of three seeds, as times of it.

The algorithm is the textbook one (J. H. Holland, "Adaptation in Natural and Artificial Systems", 1975): a plan is a
degree of each axis and a value of each setting; parents win tournaments of three, a child takes each gene from one of
two, and a gene mutates with chance 1/5: a prime factor moves between axes, or a setting takes another value. The best
two live on. Children that are no plan of the space cost nothing, and refused ones an estimate, as in the exploration.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from typing import Final

from wscc.files import read_source
from wscc.frontend.overrides import Overrides
from wscc.frontend.parse import parse
from wscc.search.candidates import Problem, Refused, estimated
from wscc.search.coarse import Space
from wscc.search.explore import Exploration
from wscc.search.space import Plan, plan_of
from wscc.strategy import POLICIES, dies_of, divisors, mesh_axes

ROOT: Final = Path(__file__).parents[2]
SEEDS: Final = (0, 1, 2)
_POPULATION, _TOURNAMENT, _ELITE, _MUTATION = 24, 3, 2, 0.2
_BARREN: Final = 20_000  # children in succession that are no new plan: the space is used up

CASES: Final = (
    ("gpt-tiny 2x4", "samples/gpt-tiny.wsl", ()),
    ("llama2-7b 2x4", "samples/llama2-7b.wsl", ("wafer.mesh=2x4", "train.batch=64")),
    ("llama2-7b 4x8", "samples/llama2-7b.wsl", ()),
    ("gpt3-175b 6x8", "samples/gpt3-175b.wsl", ()),
)


@dataclass(slots=True)
class Estimates:
    """Estimates of plans, each made once; how many were made."""

    problem: Problem
    known: dict[Plan, float] = field(default_factory=dict)

    def of(self, plan: Plan) -> float:
        """The seconds of a plan; infinite for one that is refused."""
        if plan not in self.known:
            seconds = estimated(self.problem, plan)
            self.known[plan] = inf if isinstance(seconds, Refused) else seconds
        return self.known[plan]

    def many(self, plans: Sequence[Plan]) -> list[float | None]:
        return [seconds if (seconds := self.of(p)) < inf else None for p in plans]


def explored(space: Space, limit: int) -> tuple[float, int]:
    """The best estimate of the exploration, and how many it took."""
    estimates = Estimates(space.problem)
    exploration = Exploration(space, estimates.many, limit)
    exploration.begin()
    exploration.go_on()
    return min(estimates.known.values()), len(estimates.known)


@dataclass(slots=True)
class Genetic:
    """The genetic algorithm, of at most `limit` estimates."""

    space: Space
    limit: int
    random: random.Random
    estimates: Estimates = field(init=False)

    def __post_init__(self) -> None:
        self.estimates = Estimates(self.space.problem)

    def best(self) -> float:
        """The best estimate after all that may be made."""
        population = self._new(self._drawn, _POPULATION)
        while population and len(self.estimates.known) < self.limit:
            ranked = sorted(population, key=self.estimates.of)
            children = self._new(partial(self._child, ranked), _POPULATION - _ELITE)
            if not children:
                break
            population = ranked[:_ELITE] + children
        return min(self.estimates.known.values(), default=inf)

    def _new(self, make: Callable[[], Plan | None], count: int) -> list[Plan]:
        """So many plans that were not estimated yet, now estimated."""
        found: list[Plan] = []
        for _ in range(_BARREN):
            if len(found) == count or len(self.estimates.known) >= self.limit:
                break
            plan = make()
            if plan is not None and plan not in self.estimates.known and self.space.refusal(plan) is None:
                self.estimates.of(plan)
                found.append(plan)
        return found

    def _drawn(self) -> Plan:
        o = self.random.choice(list(self.space.open.values()))
        return plan_of(o.strategy, [self.random.choice(list(v)) for v in o.values])

    def _child(self, ranked: Sequence[Plan]) -> Plan | None:
        """A child of two parents, if it is a plan of the space."""
        a, b = (self._parent(ranked) for _ in range(2))
        degrees = {axis: dict(self.random.choice((a, b)).strategy).get(axis, 1) for axis in POLICIES}
        if self.random.random() < _MUTATION:
            self._move(degrees)
        if dies_of(tuple(degrees.items())) > self.space.live:
            return None
        o = self.space.open.get(mesh_axes(degrees))
        if o is None:
            return None
        values = []
        for (key, mine), many in zip(a.settings, o.values, strict=True):
            value = self.random.choice((mine, b[key]))
            is_new = value not in many or self.random.random() < _MUTATION
            values.append(self.random.choice(list(many)) if is_new else value)
        return plan_of(o.strategy, values)

    def _parent(self, ranked: Sequence[Plan]) -> Plan:
        return ranked[min(self.random.randrange(len(ranked)) for _ in range(_TOURNAMENT))]

    def _move(self, degrees: dict[str, int]) -> None:
        """Move a prime factor from one axis, or from the dies that are unused, to another axis or to those."""
        source, target = (self.random.choice([*POLICIES, ""]) for _ in range(2))
        n = degrees.get(source, self.space.live)
        primes = [p for p in divisors(n) if len(divisors(p)) == 2]
        if primes:
            p = self.random.choice(primes)
            if source:
                degrees[source] //= p
            if target:
                degrees[target] *= p


def show(words: list[str]) -> None:
    """Print a row for each case whose name has all words."""
    print(f"{'case':<16}{'plans':>9}{'estimates':>11}{'explored s':>12}   genetic, times of it   CPU s")
    for name, model, sets in CASES:
        if not all(word in name for word in words):
            continue
        begun = time.process_time()
        space = Space(Problem(parse(read_source(model)), Overrides(sets, parallel="auto")))
        best, count = explored(space, 400)
        found = [Genetic(space, count, random.Random(seed)).best() / best for seed in SEEDS]
        times = " ".join(f"{x:7.3f}" for x in found)
        print(
            f"{name:<16}{space.plans:>9,}{count:>11}{best:>12.4g}   {times}  {time.process_time() - begun:8.0f}"
        )


if __name__ == "__main__":
    os.chdir(ROOT)
    show(sys.argv[1:])
