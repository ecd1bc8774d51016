"""Plans of a search: settings beside degrees, pins, parts of large spaces, the front, and how good estimates are."""

from __future__ import annotations

from itertools import product
from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.search.test_search import DEGREES, MODEL, problem
from wscc.analysis.memory.array_layout import peak_array_bytes
from wscc.diagnostics import Code, CompileError, Source
from wscc.driver.compile import compile_file
from wscc.driver.proposals import changed
from wscc.driver.simulate import simulate
from wscc.files import read_source
from wscc.frontend.overrides import Overrides
from wscc.frontend.parse import parse
from wscc.search import search
from wscc.search.candidates import Problem, Refused, estimated
from wscc.search.coarse import Space
from wscc.search.explore import all_plans
from wscc.search.outcome import End
from wscc.search.space import Pins, Scale, is_leaner, plan_of, spell, whole_rounds
from wscc.search.validate import ranks, validate

OWN = {"microbatch": "2"}  # of the model


def test_settings_are_searched_with_degrees() -> None:
    """The best of all plans of two strategies, against each compiled and simulated by itself."""
    wafer, pins = ("wafer.mesh=1x2", "wafer.die.peak=1 TFLOP/s"), ("dp=2", "recompute=none")
    result = search(problem(*wafer, pins=pins), budget=100)
    steps = {}
    for m, z in product((1, 2, 4), (0, 1, 3)):
        sets = (*wafer, f"train.microbatch={m}", f"train.zero={z}")
        program = compile_file(MODEL, Overrides(sets=sets, parallel="dp=2"))
        steps[str(m), str(z)] = simulate(program.artifact).figures().step_seconds
    assert result.plans == len(steps)
    assert result.seconds == min(steps.values()) < steps["2", "0"]
    assert result.seconds == steps[result.best.plan["microbatch"], result.best.plan["zero"]]
    assert result.bound == result.seconds


def test_fewer_dies_are_looked_at_even_where_many_plans_have_all() -> None:
    """On three dies, two that share the sequences are faster than any three."""
    result = search(problem("wafer.mesh=1x3"), budget=2)
    assert result.dies == [3, 2, 1]
    two = compile_file(MODEL, Overrides(sets=("wafer.mesh=1x3",), parallel="dp=2"))
    assert result.seconds <= simulate(two.artifact).figures().step_seconds
    assert any(c.dies == 3 for c in result.others)


def test_a_setting_of_stages_means_nothing_without_them() -> None:
    sets = ("wafer.mesh=1x2", "train.interleave=2", "model.layers=4")
    result = search(problem(*sets, pins=(*DEGREES[:3], "interleave=2")), budget=10)
    chunks = {
        spell(c.strategy): c.plan["interleave"] for c in (*result.simulated, *result.slower, *result.others)
    }
    assert chunks == {"pp=2": "2", "pp=1": "1"} | dict.fromkeys(("dp=2", "sp=2", "tp=2", "tatp=2"), "1")
    assert not result.refused


@pytest.mark.parametrize("pins", [("tatp=2",), ("dp=2", "microbatch=1"), ("recompute=full", "zero=3")])
def test_what_is_pinned_is_not_varied(pins: tuple[str, ...]) -> None:
    """By the command line and by the language alike; a setting only where it matters."""
    one = search(problem("wafer.mesh=1x2", pins=pins), budget=1)
    text = read_source(MODEL).text.replace("auto", ", ".join(["auto", *pins]))
    two = search(Problem(parse(Source("m.wsl", text)), Overrides(sets=("wafer.mesh=1x2",))), budget=1)
    plans = [c.plan for c in (*one.simulated, *one.slower, *one.others)]
    assert plans == [c.plan for c in (*two.simulated, *two.slower, *two.others)]
    for key, value in (p.split("=") for p in pins):
        for plan in plans:
            words = {a: str(n) for a, n in plan.strategy} | dict(plan.settings)
            shared = "dp" in words or "sp" in words
            assert words.get(key, "1") == value or (key == "zero" and not shared)


@pytest.mark.parametrize(
    "pins",
    [
        pytest.param(("dp=3",), id="no batch of 8 in 3 parts"),
        pytest.param(("dp=2", "tp=4"), id="more dies than there are"),
        pytest.param(("microbatch=8", "dp=2"), id="more sequences than a replica has"),
    ],
)
def test_pins_that_no_plan_meets_are_refused_with_the_nearest_plan(pins: tuple[str, ...]) -> None:
    """It compiles, and gives up one pin alone."""
    with pytest.raises(CompileError) as refused:
        search(problem("wafer.mesh=2x2", pins=pins))
    (first, *_) = refused.value.diagnostics
    change = first.proposals[0]
    assert first.code is Code.NO_STRATEGY
    compile_file(MODEL, changed(Overrides(("wafer.mesh=2x2",)), change))
    has = {a: str(n) for a, n in change.parallel or ()} | {k.split(".")[1]: v for k, v in change.sets}
    given_up = [
        key for key, value in (p.split("=") for p in pins) if has.get(key, OWN.get(key, "1")) != value
    ]
    assert len(given_up) == 1


def test_a_large_space_is_looked_at_in_part_and_alike_by_any_number_of_processes() -> None:
    one, two = (search(problem("wafer.mesh=3x5", pins=()), budget=1, jobs=jobs, limit=16) for jobs in (1, 2))
    assert one.estimated == 16 < one.plans
    assert [(c.plan, c.estimate) for c in one.others] == [(c.plan, c.estimate) for c in two.others]
    assert one.bound < one.seconds
    assert one.end is End.BUDGET


def test_an_early_measurement_is_alike_by_any_number_of_processes() -> None:
    """What it rules out depends on no process, and neither do the rounds behind it."""
    one, two = (search(problem("wafer.mesh=3x5", pins=()), budget=3, jobs=jobs, limit=20) for jobs in (1, 2))
    assert one.compiled == two.compiled == 3
    assert [(c.plan, c.least) for c in one.simulated] == [(c.plan, c.least) for c in two.simulated]
    assert [(c.plan, c.estimate) for c in one.others] == [(c.plan, c.estimate) for c in two.others]
    assert all(c.bound.seconds < one.simulated[-1].least for c in one.others)


def test_chunks_without_whole_rounds_are_refused_before_they_are_estimated() -> None:
    sets, pins = ("wafer.mesh=1x2", "model.layers=4"), ("pp=2", "recompute=none", "interleave=2")
    result = search(problem(*sets, pins=pins), budget=9)
    expected = set()
    for m in (1, 2, 4, 8):
        try:
            compile_file(MODEL, Overrides((*sets, f"train.microbatch={m}", "train.interleave=2"), "pp=2"))
        except CompileError as error:
            expected.add((str(m), error.diagnostics[0].code))
    assert {(p["microbatch"], r.code) for p, r in result.refused} == expected == {("8", Code.DEGREE)}
    assert result.removed["plans_divisibility"] == 1
    assert (result.estimated, len(result.simulated) + len(result.slower)) == (3, 3)


def test_a_refusal_of_a_degree_leaves_out_others_that_do_not_compile_and_no_more() -> None:
    """Refused: three dies for two sequences of 16 positions, alone and beside any other axis."""
    sets, pins = ("wafer.mesh=2x3", "model.seq=16", "train.batch=12"), DEGREES[1:]
    space = Space(problem(*sets, pins=pins))
    plans = [p for o in space.open.values() for p in all_plans(o)]
    found = {p: estimated(space.problem, p) for p in plans}
    refused = {p: r for p, r in found.items() if isinstance(r, Refused)}
    before = {p for p in plans if space.refusal(p)}
    first = next(p for p in refused if p not in before and len(p.strategy) == 2)
    space.learn(first, refused[first])
    left_out = {p for p in plans if space.refusal(p)} - before
    assert {p.strategy for p in left_out} > {first.strategy}
    assert left_out <= refused.keys()
    assert len({p["microbatch"] for p in left_out}) == 1


def test_leaner_settings_store_no_more() -> None:
    """Of all plans of two strategies, in the sharded program: the search leaves out what stores more than too much."""
    one = problem("model.layers=4", pins=())
    for strategy in ((("pp", 2), ("dp", 2)), (("dp", 2), ("tp", 2))):
        values = Pins({}, {}).values(Scale(8, 4), strategy)
        plans = [plan_of(strategy, v) for v in product(*values)]
        plans = [p for p in plans if whole_rounds(Scale(8, 4), p) and int(p["interleave"]) < 3]
        stored = {p: peak_array_bytes(one.sharded(p)) for p in plans}
        pairs = [(a, b) for a in plans for b in plans if a != b and is_leaner(a, b)]
        assert len(pairs) > len(plans)
        assert all(stored[a] <= stored[b] for a, b in pairs)


def test_the_front_has_what_nothing_beats() -> None:
    result = search(problem("wafer.mesh=1x2"), budget=10)
    needs = [(c.least, c.peak_bytes_per_die_max or 0, c.dies) for c in result.simulated]
    best = [all(any(x < y for x, y in zip(n, m, strict=True)) or n == m for m in needs) for n in needs]
    assert [c in result.front for c in result.simulated] == best
    assert result.best in result.front
    assert result.best.figures is not None
    assert isclose(sum(result.best.figures.shares.values()), 1)


# ---- the estimate


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_equal_values_share_the_mean_of_their_ranks(values_: list[int]) -> None:
    expected = [sum(v < x for v in values_) + (1 + sum(v == x for v in values_)) / 2 for x in values_]
    assert ranks(values_) == expected


def test_ranks_of_two_plans_say_nothing() -> None:
    found = validate(problem("wafer.mesh=1x2", pins=("recompute=none", "zero=0")), samples=2)
    assert len(found.measured) == 2
    assert found.rank_correlation is None


def test_ranks_of_estimates_agree_with_those_of_simulated_steps() -> None:
    """Simulated by themselves; the goal of the correlation on such a small wafer."""
    found = validate(problem("wafer.mesh=2x2", pins=("recompute=none", "zero=0")), samples=14)
    for m in found.measured[:2]:
        program = compile_file(MODEL, Overrides(sets=m.plan.sets, parallel=spell(m.plan.strategy)))
        assert simulate(program.artifact).figures().step_seconds == m.step
    assert len({m.plan for m in found.measured}) == 14
    assert len({frozenset(a for a, _ in m.plan.strategy) for m in found.measured}) > 8
    assert found.rank_correlation is not None
    assert found.rank_correlation > 0.95
    assert found.median_error < 0.3
