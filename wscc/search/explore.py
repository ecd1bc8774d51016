"""The plans that are estimated: all of a small space; of a large one, some of every kind, and what is near the best.

A kind is a set of axes and a class of numbers of dies (powers of two). Of each, plans are estimated in the order of
their bounds until one is possible: with the settings of the program, then with those that need the least memory. Then,
in rounds, the neighbours of the best that were not looked around yet: one prime factor of a degree goes to another
axis, is left out, or comes in; or one setting changes. The best of each strategy goes first, so that a round is not
spent on one. Rounds are of one size and numbers of plans end them, so that the outcome depends neither on time nor on
processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Final

from wscc.search.coarse import Open, Space
from wscc.search.space import CHOICES, Plan, Strategy, plan_of
from wscc.strategy import POLICIES, dies_of, divisors, mesh_axes

# Plans whose neighbours are estimated in one round.
_AROUND: Final = 4
_STARTS: Final = 6  # rounds in which a kind may find a plan that is possible
_PRIMES: Final = (2, 3, 5, 7)  # by which a degree grows

# The seconds estimated for each plan; None for one that is refused.
Estimates = Callable[[Sequence[Plan]], Sequence[float | None]]


@dataclass(slots=True)
class Exploration:
    """An exploration of a space, of which at most `limit` plans are estimated."""

    space: Space
    estimates: Estimates
    limit: int
    seconds: dict[Plan, float | None] = field(default_factory=dict)

    def run(self, first: Sequence[Plan]) -> None:
        """Estimate the `first` plans, then what is worth it."""
        self._estimate(first)
        if self.space.plans <= self.limit:
            self._estimate([p for o in self.space.open.values() for p in all_plans(o)])
            return
        self._start()
        around: set[Plan] = set()
        while len(self.seconds) < self.limit and (centres := self._centres(around)):
            around.update(centres)
            self._estimate([n for c in centres for n in self._neighbours(c)])

    def _estimate(self, wanted: Sequence[Plan]) -> None:
        fresh = [p for p in dict.fromkeys(wanted) if p not in self.seconds]
        fresh = fresh[: max(0, self.limit - len(self.seconds))]
        self.seconds.update(zip(fresh, self.estimates(fresh), strict=True))

    def _start(self) -> None:
        """Estimate plans of each kind until one is possible."""
        kinds: dict[tuple[frozenset[str], int], list[Plan]] = {}
        for o in sorted(
            self.space.open.values(), key=lambda o: (o.bound.seconds, _widest(o.strategy), o.strategy)
        ):
            kind = frozenset(axis for axis, _ in o.strategy), dies_of(o.strategy).bit_length()
            kinds.setdefault(kind, []).extend((self._near_own(o), _lean(o)))
        for _ in range(_STARTS):
            heads = {kind: of.pop(0) for kind, of in kinds.items() if of}
            self._estimate(list(heads.values()))
            for kind, head in heads.items():
                if self.seconds.get(head) is not None:
                    del kinds[kind]

    def _near_own(self, o: Open) -> Plan:
        """The plan of a strategy with the settings that are nearest to the program's."""
        own = self.space.problem.own_settings
        return plan_of(o.strategy, [_nearest(own[c.key], v) for c, v in zip(CHOICES, o.values, strict=True)])

    def _centres(self, around: set[Plan]) -> list[Plan]:
        """The best plans that were not looked around: those that are the best of their strategy first."""
        ranked = sorted((s, p) for p, s in self.seconds.items() if s is not None)
        best = {p.strategy: p for _, p in reversed(ranked)}
        ordered = sorted(ranked, key=lambda r: (best[r[1].strategy] != r[1], r))
        return [p for _, p in ordered if p not in around][:_AROUND]

    def _neighbours(self, plan: Plan) -> Iterator[Plan]:
        values = self.space.open[plan.strategy].values
        for i, (choice, open_) in enumerate(zip(CHOICES, values, strict=True)):
            for value in _next_to(plan.settings[i][1], open_, is_ordered=not choice.words):
                yield plan_of(
                    plan.strategy, [value if j == i else v for j, (_, v) in enumerate(plan.settings)]
                )
        for strategy in _moved(plan.strategy):
            if (o := self.space.open.get(strategy)) is not None:
                yield plan_of(
                    strategy,
                    [_nearest(v, many) for (_, v), many in zip(plan.settings, o.values, strict=True)],
                )


def all_plans(o: Open) -> Iterator[Plan]:
    """All plans of a strategy."""
    return (plan_of(o.strategy, values) for values in product(*o.values))


def _lean(o: Open) -> Plan:
    """The plan of a strategy that needs the least memory."""
    return plan_of(o.strategy, [v[-1] if c.words else v[0] for c, v in zip(CHOICES, o.values, strict=True)])


def _widest(strategy: Strategy) -> int:
    return max((n for _, n in strategy), default=1)


def _nearest(value: str, values: Sequence[str]) -> str:
    """The value, or where it is not open, the largest below it; words are in an order of their own."""
    if value in values or not value.isdigit():
        return value if value in values else values[0]
    return max((v for v in values if int(v) <= int(value)), key=int, default=values[0])


def _next_to(value: str, values: Sequence[str], *, is_ordered: bool) -> list[str]:
    if not is_ordered:
        return [v for v in values if v != value]
    place = values.index(value)
    return [*values[max(0, place - 1) : place], *values[place + 1 : place + 2]]


def _moved(strategy: Strategy) -> Iterator[Strategy]:
    """The strategies that differ in one prime factor: it belongs to another axis, to none, or is new."""
    degrees = dict(strategy)
    for axis, n in strategy:
        for p in (d for d in divisors(n)[1:] if len(divisors(d)) == 2):
            without = degrees | {axis: n // p}
            yield mesh_axes(without)
            yield from (mesh_axes(without | {b: without.get(b, 1) * p}) for b in POLICIES if b != axis)
    for axis, p in product(POLICIES, _PRIMES):
        yield mesh_axes(degrees | {axis: degrees.get(axis, 1) * p})
