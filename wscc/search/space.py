"""The search space: plans, which are strategies (products of degrees of the axes) with settings of the training.

What a plan settles besides degrees is a row of `CHOICES`; all else reads that table: the space, pins, spelling, and the
moves of the search.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from wscc.ir.train import RECOMPUTE, ZERO
from wscc.strategy import (
    POLICIES,
    dies_of,
    divisors,
    holds_replicas,
    mesh_axes,
    repeats_model,
    splits_experts,
    stage_axes,
)

# The degrees of the axes above 1, in the order of the logical mesh.
Strategy = tuple[tuple[str, int], ...]
# Of each setting of `CHOICES` its value, as `--set train.KEY=VALUE` takes it, in the order of the table.
Settings = tuple[tuple[str, str], ...]
# Of each choice, the values that are open.
Values = tuple[Sequence[str], ...]

ONE_DIE: Final[Strategy] = ()
_MOST_CHUNKS: Final = 4  # of layers on a stage, that are looked at


@dataclass(frozen=True, slots=True)
class Scale:
    """What the values of choices depend on besides the strategy: the sequences of a step, the layers, and the experts
    (1: none) that axes may share out."""

    batch: int
    layers: int
    experts: int = 1


@dataclass(frozen=True, slots=True)
class Choice:
    """A setting of `train` that a plan settles: the values that may help under a strategy, in order. Where it does not
    matter, the first of `words` is its only value, or 1. `words` are all that it may be; none: any positive integer.
    `leaner`: the sign of the step in that order by which no die stores more, all else being equal; 0: none is sure."""

    key: str
    values: Callable[[Scale, Strategy], Sequence[str]]
    words: tuple[str, ...] = ()
    matters: Callable[[Strategy], bool] = lambda strategy: True
    leaner: int = 0

    def admitted(self, scale: Scale, strategy: Strategy, pinned: str | None) -> Sequence[str]:
        """The values to look at, of which there are none where the strategy allows none."""
        if not self.matters(strategy):
            return [*self.words, "1"][:1]
        values = self.values(scale, strategy)
        return values if pinned is None else [v for v in values if v == pinned]


def microbatches(scale: Scale, strategy: Strategy) -> list[str]:
    """Whole micro-batches in the share of a replica, which axes of experts share out; none if the batch is no multiple
    of the replicas, or the experts are none of those axes."""
    replicas = dies_of(replicas_of(strategy))
    shares = prod(degree for axis, degree in strategy if splits_experts(axis))
    if scale.batch % replicas or scale.experts % shares:
        return []
    return [str(m) for m in divisors(scale.batch // replicas) if m % shares == 0]


def _chunks(scale: Scale, strategy: Strategy) -> list[str]:
    """Chunks of layers on a stage, which are no more than there are layers."""
    return [str(n) for n in range(1, max(1, min(_MOST_CHUNKS, scale.layers // stages_of(strategy))) + 1)]


CHOICES: Final = (
    Choice("microbatch", microbatches, leaner=-1),
    Choice("recompute", lambda scale, strategy: RECOMPUTE, RECOMPUTE, leaner=1),
    Choice(
        "zero", lambda scale, strategy: tuple(map(str, ZERO)), tuple(map(str, ZERO)),
        matters=lambda strategy: any(holds_replicas(axis) for axis, _ in strategy),
    ),
    Choice("interleave", _chunks, matters=lambda strategy: stages_of(strategy) > 1),
)  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class Plan:
    """What a search settles: a strategy, and the value of each choice."""

    strategy: Strategy
    settings: Settings = ()

    @property
    def dies(self) -> int:
        return dies_of(self.strategy)

    @property
    def sets(self) -> tuple[str, ...]:
        """The settings as `--set` takes them."""
        return tuple(f"train.{key}={value}" for key, value in self.settings)

    def __getitem__(self, key: str) -> str:
        """The value of a choice."""
        return dict(self.settings)[key]

    def __str__(self) -> str:
        return " ".join([spell(self.strategy), *(f"{key}={value}" for key, value in self.settings)])


@dataclass(frozen=True, slots=True)
class Pins:
    """Degrees and settings that a search does not vary."""

    degrees: Mapping[str, int]
    settings: Mapping[str, str]

    def without(self, keys: Container[str]) -> Pins:
        """The pins but for some."""
        return Pins(
            {axis: n for axis, n in self.degrees.items() if axis not in keys},
            {key: value for key, value in self.settings.items() if key not in keys},
        )

    def admit(self, strategy: Strategy) -> bool:
        """Whether the strategy has the pinned degrees."""
        return all(dict(strategy).get(axis, 1) == n for axis, n in self.degrees.items())

    def values(self, scale: Scale, strategy: Strategy) -> Values:
        """Of each choice the values under a strategy: the pinned one, where the choice matters there."""
        return tuple(choice.admitted(scale, strategy, self.settings.get(choice.key)) for choice in CHOICES)


NO_PINS: Final = Pins({}, {})


def is_leaner(a: Plan, b: Plan) -> bool:
    """Whether no die stores more under plan `a` than under `b`, by the settings alone; never of two strategies."""
    steps = (
        (choice.leaner * (_place(choice, x) - _place(choice, y)), x == y)
        for choice, (_, x), (_, y) in zip(CHOICES, a.settings, b.settings, strict=True)
    )
    return a.strategy == b.strategy and all(step > 0 or same for step, same in steps)


def whole_rounds(scale: Scale, plan: Plan) -> bool:
    """Whether the micro-batches of a plan fill its pipeline in whole rounds, as interleaved chunks need them."""
    stages, replicas = stages_of(plan.strategy), dies_of(replicas_of(plan.strategy))
    return plan["interleave"] == "1" or scale.batch // (replicas * int(plan["microbatch"])) % stages == 0


def _place(choice: Choice, value: str) -> int:
    return choice.words.index(value) if choice.words else int(value)


def plan_of(strategy: Strategy, values: Sequence[str]) -> Plan:
    """The plan with these values of the choices, in the order of the table."""
    return Plan(strategy, tuple(zip((choice.key for choice in CHOICES), values, strict=True)))


def strategies(dies: int) -> Iterator[Strategy]:
    """Every way to write `dies` as a product of degrees, one for each axis; large degrees of the first axes last."""
    for degrees in _factorisations(dies, len(POLICIES)):
        yield mesh_axes(dict(zip(POLICIES, degrees, strict=True)))


def _factorisations(n: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (n,)
        return
    for first in divisors(n):
        for rest in _factorisations(n // first, parts - 1):
            yield first, *rest


def replicas_of(strategy: Strategy) -> Strategy:
    """The axes that repeat the model for sequences of their own: a graph depends on no others."""
    return tuple((axis, degree) for axis, degree in strategy if repeats_model(axis))


def stages_of(strategy: Strategy) -> int:
    """The number of pipeline stages of a strategy."""
    degrees = dict(strategy)
    return prod(degrees[a] for a in stage_axes(degrees))


def spell(strategy: Strategy) -> str:
    """The strategy as `--parallel` takes it."""
    return ",".join(f"{axis}={degree}" for axis, degree in strategy or ((next(iter(POLICIES)), 1),))
