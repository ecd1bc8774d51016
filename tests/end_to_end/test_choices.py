"""What the command line chooses for routes and gathers changes where bytes go, and no result."""

from __future__ import annotations

from functools import lru_cache

import pytest

from tests.support.models import Shape, gpt
from wscc.diagnostics import Code, CompileError
from wscc.driver.compile import Compiled, compile_graph
from wscc.driver.train import RunOptions, Trainer, run
from wscc.ir.routes import ALONE
from wscc.machine.wafer import Wafer
from wscc.passes.choices import ALLGATHERS, Choices
from wscc.passes.lower_collectives import LowerCollectives
from wscc.passes.registry import default_passes
from wscc.passes.route import Route

HURT = Wafer("w", 3, 4, dead_dies=frozenset({(1, 1)}), dead_links=frozenset({((0, 2), (0, 3))}))
AXES = {"dp": 2, "tp": 4}


@lru_cache
def compiled(choices: Choices, level: int = 2) -> Compiled:
    return compile_graph(gpt(AXES, Shape(d=32, heads=4, vocab=32), wafer=HURT), level, choices=choices)


@pytest.mark.parametrize(
    ("routing", "allgather"), [("xy", "multicast"), *(("adaptive", gather) for gather in ALLGATHERS)]
)
def test_results_are_those_of_one_device_whatever_is_chosen(routing: str, allgather: str) -> None:
    made = compiled(Choices(routing=routing, allgather=allgather))
    check = run(made.artifact, RunOptions(steps=1), check=True).check
    assert check is not None
    assert check.ok, check
    merged = any(route.merged != ALONE for route in made.artifact.streams.routes)
    assert merged == (allgather == "multicast" and routing == "adaptive")


def test_bytes_that_links_carry_are_those_of_the_report_with_trees_and_detours() -> None:
    made = compiled(Choices(allgather="multicast"))
    trainer = Trainer(made.artifact, RunOptions(steps=1))
    assert len([*trainer.steps()]) == 1
    measured = sum(trainer.machine.traffic().values())
    assert measured == made.report["traffic_bytes"]
    apart = compiled(Choices(allgather="multicast", routing="xy"))
    assert measured < apart.report["traffic_bytes"]


def test_the_optimisation_level_decides_where_nothing_is_chosen() -> None:
    for level, choices, adaptive in (
        (1, Choices(), False),
        (2, Choices(), True),
        (2, Choices(routing="xy"), False),
        (0, Choices(routing="adaptive"), True),
    ):
        (route,) = [p for p in default_passes(level, choices) if isinstance(p, Route)]
        assert route.adaptive == adaptive


def test_an_unknown_way_to_gather_is_refused() -> None:
    module = compiled(Choices()).modules["place"]
    with pytest.raises(CompileError) as caught:
        LowerCollectives("tree").run(module)
    assert caught.value.diagnostics[0].code is Code.OPTION


def test_the_search_for_routes_ends_when_it_is_told_to() -> None:
    fullest = [
        sum(p["max_link_bytes"] for p in compiled(choices).report["phases"])
        for choices in (Choices(), Choices(max_iter=1), Choices(routing="xy"))
    ]
    assert fullest[0] <= fullest[1] <= fullest[2]
    (route,) = [p for p in default_passes(2, Choices(max_iter=3, enough=70)) if isinstance(p, Route)]
    assert (route.max_iter, route.enough) == (3, 70)
