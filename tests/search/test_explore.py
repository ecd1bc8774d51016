"""Where an exploration comes to, on landscapes that are given: no plan is sharded."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from wscc.files import read_source
from wscc.frontend.overrides import Overrides
from wscc.frontend.parse import parse
from wscc.search.candidates import Problem
from wscc.search.coarse import Space
from wscc.search.explore import Exploration
from wscc.search.space import Plan

# Of a program with micro-batches of 4.
SETS = ("wafer.mesh=2x4", "train.batch=64", "train.microbatch=4")


def beyond_a_ridge(plan: Plan) -> float:
    """Only with single sequences is `tp` any good: all that leads there takes longer."""
    tp, sequences = dict(plan.strategy).get("tp", 1), int(plan["microbatch"])
    return 1.0 if (tp, sequences) == (8, 1) else 10.0 - dict(plan.strategy).get("dp", 1) / 10 + tp * sequences


def down_the_slope(plan: Plan) -> float:
    """Single sequences are good, but the best lies between them and the settings of the program, of one strategy."""
    if plan.strategy != (("tp", 8),):
        return 6.0 if plan["microbatch"] == "1" else 20.0
    return {"1": 9.0, "2": 5.0, "4": 8.0}.get(plan["microbatch"], 30.0)


@pytest.mark.parametrize(("landscape", "best"), [(beyond_a_ridge, 1.0), (down_the_slope, 5.0)])
def test_an_exploration_finds_the_valley(landscape: Callable[[Plan], float], best: float) -> None:
    space = Space(Problem(parse(read_source("samples/gpt-tiny.wsl")), Overrides(SETS, "auto")))
    looked_at: list[Plan] = []

    def estimates(plans: Sequence[Plan]) -> list[float]:
        looked_at.extend(plans)
        return [landscape(plan) for plan in plans]

    exploration = Exploration(space, estimates, limit=400)
    exploration.begin()
    assert min(s for s in exploration.seconds.values() if s is not None) == best
    assert len(looked_at) < space.plans / 4
