"""The smallest changes of pins that no plan meets: one pin is given up, for the value nearest to it that is possible.

They are candidates for the help of a refusal, which tries each before it is proposed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf, log

from wscc.diagnostics import Proposal
from wscc.search.candidates import Problem
from wscc.search.coarse import Space
from wscc.search.explore import nearest
from wscc.search.space import CHOICES, Plan, plan_of


def nearest_wishes(problem: Problem) -> Iterator[Proposal]:
    """For each pin the plan without it that is nearest, by its value there, then by its bound; the nearest of all
    first."""
    pins, own = problem.pins, problem.own_settings
    found = [
        best
        for key in (*pins.degrees, *pins.settings)
        if (best := _nearest_without(problem, key, str(pins.degrees.get(key) or pins.settings[key])))
        is not None
    ]
    for _, _, plan in sorted(found):
        sets = tuple((f"train.{key}", value) for key, value in plan.settings if value != own[key])
        yield Proposal(plan.strategy, sets)


def _nearest_without(problem: Problem, key: str, wanted: str) -> tuple[float, float, Plan] | None:
    """The distance, the bound and the plan that is nearest to a pin without holding to it; None if there is none."""
    space = Space(replace(problem, unpinned=frozenset({key})))
    plans = ((_distance(_value(p, key), wanted), bound, p) for p, bound in _near_own(space) if bound < inf)
    return min(plans, default=None)


def _near_own(space: Space) -> Iterator[tuple[Plan, float]]:
    """Of each open strategy, the plan nearest to the program's settings that no rule refuses, with its bound."""
    own = space.problem.own_settings | dict(space.problem.wished.settings)
    for o in space.open.values():
        plan = plan_of(
            o.strategy, [nearest(own[c.key], values) for c, values in zip(CHOICES, o.values, strict=True)]
        )
        yield plan, inf if space.refusal(plan) else space.bound(plan).seconds


def _value(plan: Plan, key: str) -> str:
    settings = dict(plan.settings)
    return settings[key] if key in settings else str(dict(plan.strategy).get(key, 1))


def _distance(value: str, wanted: str) -> float:
    """How far a value is from another: of numbers, by how many times; of words, whether it is another."""
    if value.isdigit() and wanted.isdigit():
        return abs(log(max(1, int(value)) / max(1, int(wanted)))) + (value != wanted) * 1e-9
    return float(value != wanted)
