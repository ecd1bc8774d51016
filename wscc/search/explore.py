"""The plans that are estimated: all of a small space; of a large one, some of every kind, and what is near the best.

A kind is a set of axes and a class of numbers of dies (powers of two). Of each, plans are estimated in the order of
their bounds until one is possible: with the settings of the program, then with those that need the least memory.
Then, in rounds, the neighbours of the best that were not looked around yet: one prime factor of a degree goes to
another axis, is left out, or comes in; or one setting changes. The best of each strategy goes first, so that a round is
not spent on one. It ends where all that is near the best was looked around, or where some rounds brought nothing
shorter. Then so once more, from the best of each kind with the smallest micro-batch: what fits the SRAM there may take
half the time, and no step in between need be shorter. The kinds with the most dies do so by themselves first: the best
of them rules out much of the others by its bound. Rounds are of one size and never end by time, so that the outcome
depends neither on that nor on processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import inf
from typing import Final

from wscc.search.candidates import Refused
from wscc.search.coarse import Open, Space
from wscc.search.space import CHOICES, Plan, Strategy, plan_of
from wscc.strategy import POLICIES, dies_of, divisors, mesh_axes

# Plans whose neighbours are estimated in one round.
_AROUND: Final = 4
# Times the best estimate: the neighbours of what takes longer are not worth a look.
_NEAR: Final = 1.05
# So many rounds that together bring nothing shorter than so many times the best end it: estimates are no better than
# that, and much of what is near differs in settings that hardly matter.
_IDLE: Final = 3
_SHORTER: Final = 0.99
# Times the best estimate: bounds of more rule out, until a step is measured that is longer.
TRUST: Final = 1.5
_STARTS: Final = 6  # rounds in which a kind may find a plan that is possible
_PRIMES: Final = (2, 3, 5, 7)  # by which a degree grows

# The class of a number of dies, and axes.
Kind = tuple[int, frozenset[str]]
# The seconds estimated for each plan; None for one that is refused.
Estimates = Callable[[Sequence[Plan]], Sequence[float | None]]


@dataclass(slots=True)
class Exploration:
    """An exploration of a space, of which at most `limit` plans are estimated. Those that take at least `enough`
    seconds by their bound are not looked at, nor those of `trust` times the best estimate; `ruled_out` is the lowest
    bound of the latter. `seconds` of a plan that is refused are None; `left_out` are those that were refused without an
    estimate."""

    space: Space
    estimates: Estimates
    limit: int
    enough: float = inf
    trust: float = inf
    ruled_out: float = inf
    seconds: dict[Plan, float | None] = field(default_factory=dict)
    left_out: dict[Plan, Refused] = field(default_factory=dict)
    _kinds: dict[Kind, list[Plan]] = field(default_factory=dict)
    _around: set[Plan] = field(default_factory=set)
    _best: float = inf

    def all(self) -> None:
        """Estimate all plans."""
        self.look([p for o in self.space.open.values() for p in all_plans(o)])

    def begin(self) -> None:
        """Estimate some plans of each kind with the most dies, then what is near the best of them."""
        self._kinds.clear()
        for o in sorted(
            self.space.open.values(), key=lambda o: (o.bound.seconds, _widest(o.strategy), o.strategy)
        ):
            self._kinds.setdefault(_kind(o.strategy), []).extend((self._near_own(o), _lean(o)))
        most = max((size for size, _ in self._kinds), default=0)
        self._start({kind for kind in self._kinds if kind[0] == most})
        self._look_around()
        self._look_at_small_parts()

    def go_on(self) -> None:
        """Estimate some plans of all other kinds, then what is near the best of those: all else near it was looked
        around, or brought too little."""
        self._around.update(self.seconds)
        self._start(set(self._kinds))
        self._look_around()
        self._look_at_small_parts()

    def _look_around(self) -> None:
        idle, before = 0, self._best
        while idle < _IDLE and self._left > 0 and (centres := self._centres()):
            self._around.update(centres)
            self.look([n for c in centres for n in self._neighbours(c)])
            idle += 1
            if self._best < _SHORTER * before:
                idle, before = 0, self._best

    @property
    def _left(self) -> int:
        return self.limit + len(self.left_out) - len(self.seconds)

    def look(self, wanted: Sequence[Plan]) -> None:
        """Estimate the plans that may win, that no rule refuses, and that were not estimated yet."""
        fresh = [p for p in dict.fromkeys(wanted) if p not in self.seconds and self._may_win(p)]
        why = {p: self.space.refusal(p) for p in fresh}
        possible = [p for p in fresh if why[p] is None][: max(0, self._left)]
        refused = {p: r for p, r in why.items() if r is not None}
        self.left_out |= refused
        self.seconds |= dict.fromkeys(refused)
        self.seconds.update(zip(possible, self.estimates(possible), strict=True))
        self._best = min([self._best, *(s for p in possible if (s := self.seconds[p]) is not None)])

    def _may_win(self, plan: Plan) -> bool:
        bound = self.space.bound(plan).seconds
        if bound < self.enough and bound >= self.trust * self._best:
            self.ruled_out = min(self.ruled_out, bound)
            return False
        return bound < self.enough

    def _start(self, kinds: set[Kind]) -> None:
        """Estimate plans of each kind until one is possible."""
        for _ in range(_STARTS):
            heads = {kind: of for kind, of in self._kinds.items() if kind in kinds and of}
            for kind, of in heads.items():
                heads[kind] = self._possible(of)
            self.look([head for of in heads.values() for head in of[:1]])
            for kind, of in heads.items():
                if of and self.seconds.get(of.pop(0)) is not None:
                    self._kinds[kind] = []

    def _possible(self, plans: list[Plan]) -> list[Plan]:
        """The plans from the first on that may win and that no rule refuses; in place."""
        while plans and (not self._may_win(plans[0]) or self.space.refusal(plans[0]) is not None):
            plans.pop(0)
        return plans

    def _look_at_small_parts(self) -> None:
        """Estimate the best of each kind with the smallest micro-batch, then what is near the best."""
        known = sorted((s, p) for p, s in self.seconds.items() if s is not None)
        best = {_kind(p.strategy): p for _, p in reversed(known)}
        self.look([self._in_small_parts(p) for p in best.values()])
        self._look_around()

    def _in_small_parts(self, plan: Plan) -> Plan:
        """The plan with the smallest micro-batch."""
        values = self.space.open[plan.strategy].values
        return plan_of(
            plan.strategy,
            [
                many[0] if key == "microbatch" else v
                for (key, v), many in zip(plan.settings, values, strict=True)
            ],
        )

    def _near_own(self, o: Open) -> Plan:
        """The plan of a strategy with the settings that are nearest to the program's."""
        own = self.space.problem.own_settings
        return plan_of(o.strategy, [nearest(own[c.key], v) for c, v in zip(CHOICES, o.values, strict=True)])

    def _centres(self) -> list[Plan]:
        """The best plans that were not looked around: those that are the best of their strategy first."""
        known = {p: s for p, s in self.seconds.items() if s is not None}
        near = _NEAR * min(known.values(), default=0.0)
        ranked = sorted((s, p) for p, s in known.items() if s <= near)
        best = {p.strategy: p for _, p in reversed(ranked)}
        ordered = sorted(ranked, key=lambda r: (best[r[1].strategy] != r[1], r))
        return [p for _, p in ordered if p not in self._around][:_AROUND]

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
                    [nearest(v, many) for (_, v), many in zip(plan.settings, o.values, strict=True)],
                )


def all_plans(o: Open) -> Iterator[Plan]:
    """All plans of a strategy."""
    return (plan_of(o.strategy, values) for values in product(*o.values))


def _lean(o: Open) -> Plan:
    """The plan of a strategy that needs the least memory."""
    return plan_of(o.strategy, [v[-1] if c.words else v[0] for c, v in zip(CHOICES, o.values, strict=True)])


def _kind(strategy: Strategy) -> Kind:
    return dies_of(strategy).bit_length(), frozenset(axis for axis, _ in strategy)


def _widest(strategy: Strategy) -> int:
    return max((n for _, n in strategy), default=1)


def nearest(value: str, values: Sequence[str]) -> str:
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
