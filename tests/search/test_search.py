"""The strategy search, against all strategies compiled and simulated one by one, and its bounds, against times."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import re
import signal
import sys
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import isclose, prod
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.paths import CASES
from wscc.cli import main
from wscc.diagnostics import Code, CompileError, fail
from wscc.driver.compile import compile_graph, load
from wscc.driver.simulate import simulate
from wscc.files import read_source
from wscc.frontend.overrides import Overrides
from wscc.frontend.parse import parse
from wscc.ir.array import Kind
from wscc.machine.wafer import Die, Wafer
from wscc.search import candidates, search, workers
from wscc.search.candidates import Compiled, Problem, compiled, estimated, simulated
from wscc.search.closed_forms import Bound, ClosedForms
from wscc.search.coarse import Space
from wscc.search.estimate import estimate
from wscc.search.outcome import End, SearchResult, refusals
from wscc.search.space import Scale, Strategy, Values, plan_of, spell, strategies

MODEL = str(CASES / "search.wsl")
AXES = ("pp", "dp", "sp", "tp", "tatp")
# One where products take the time and dies are small; one that waits for memory. Both have room on two dies and more.
BUSY = (
    "model.layers=1", "wafer.die.peak=1 GFLOP/s", "wafer.die.tile=4", "wafer.die.sram=32 kB", "wafer.die.hbm=30 kB",
    "wafer.link.bandwidth=10 GB/s",
)  # fmt: skip
STARVED = (
    "wafer.mesh=1x2", "wafer.die.peak=1 TFLOP/s", "wafer.die.sram=4 kB", "wafer.die.hbm=300 kB at 100 MB/s",
)  # fmt: skip
MACHINES = {"busy": BUSY, "starved": STARVED}
# Degrees alone are looked at: the settings are those of the file.
DEGREES = ("microbatch=2", "recompute=none", "zero=0", "interleave=1")
PINNED = [word for pin in DEGREES for word in ("--pin", pin)]


@dataclass(frozen=True)
class Outcomes:
    """The outcomes of strategies, as `--parallel` takes them: seconds of a step and bytes of a die, or the code of a
    refusal."""

    steps: dict[str, tuple[float, int]]
    refused: dict[str, str]


@lru_cache
def one_by_one(machine: str) -> Outcomes:
    """The outcomes of all strategies of up to as many dies as there are, with no part of the search."""
    sets = MACHINES[machine]
    most = 2 if "wafer.mesh=1x2" in sets else 4
    steps, refused = {}, {}
    for degrees in product(range(1, most + 1), repeat=len(AXES)):
        if prod(degrees) > most:
            continue
        text = ",".join(f"{a}={n}" for a, n in zip(AXES, degrees, strict=True) if n > 1) or "pp=1"
        try:
            # Not `compile_file`, which looks for a proposal with each refusal.
            program = compile_graph(load(MODEL, Overrides(sets=sets, parallel=text)))
            figures = simulate(program.artifact, wafer=program.graph.machine).figures()
            steps[text] = figures.step_seconds, program.report["memory"]["peak_bytes_per_die_max"]
        except CompileError as error:
            refused[text] = str(error.diagnostics[0].code)
    return Outcomes(steps, refused)


def problem(*sets: str, parallel: str | None = None, pins: tuple[str, ...] = DEGREES) -> Problem:
    return Problem(parse(read_source(MODEL)), Overrides(sets=sets, parallel=parallel, pins=pins))


@lru_cache
def searched(machine: str) -> SearchResult:
    return search(problem(*MACHINES[machine]), budget=100)


# ---- the space


@settings(deadline=None)
@given(st.integers(1, 60))
def test_strategies_are_all_products_once(dies: int) -> None:
    products = list(strategies(dies))
    assert len(products) == len(set(products))
    assert all(prod(n for _, n in s) == dies and all(n > 1 for _, n in s) for s in products)
    # Each prime factor in turn goes to one of six axes, equal ones in no order.
    count, n = 1, dies
    for p in range(2, dies + 1):
        power = 0
        while n % p == 0:
            n, power = n // p, power + 1
        count = count * prod(range(power + 1, power + 6)) // 120
    assert len(products) == count


# ---- against all of them


@pytest.mark.parametrize("machine", MACHINES)
def test_the_best_of_a_small_space_is_found(machine: str) -> None:
    expected = one_by_one(machine)
    result = searched(machine)
    assert result.seconds == min(seconds for seconds, _ in expected.steps.values())
    assert expected.steps[spell(result.best.strategy)][0] == result.seconds
    assert result.bound == result.seconds
    assert result.end is not End.BUDGET


@pytest.mark.parametrize("machine", MACHINES)
def test_every_strategy_is_accounted_for(machine: str) -> None:
    """Each is refused by both, or by none; one that bounds rule out may be either."""
    expected, result = one_by_one(machine), searched(machine)
    compiled_ = {spell(c.strategy) for c in (*result.simulated, *result.slower)}
    refused = {spell(p.strategy) for p, _ in result.refused}
    others = {spell(c.strategy) for c in result.others}
    assert compiled_ | refused | others == {*expected.steps, *expected.refused}
    assert len(compiled_) + len(refused) + len(others) == result.strategies
    assert compiled_ <= set(expected.steps)
    assert refused <= set(expected.refused)
    assert sum(r.count for r in refusals(result)) == len(refused)


@pytest.mark.parametrize("machine", MACHINES)
def test_bounds_are_below_what_they_bound(machine: str) -> None:
    """Those of the closed forms, of seconds and of memory, and those of compiled programs."""
    expected, result = one_by_one(machine), searched(machine)
    tight = 0
    for c in (*result.simulated, *result.slower, *result.others):
        if spell(c.strategy) in expected.steps:
            seconds, peak = expected.steps[spell(c.strategy)]
            assert c.bound.seconds <= c.least <= seconds
            assert c.bound.bytes <= peak
            tight += c.bound.seconds > seconds / 2
    assert tight or machine == "starved"
    for plan, r in result.refused:
        assert r.bytes == 0 or expected.refused[spell(plan.strategy)] == "W401"


def test_a_wrong_estimate_costs_work_and_not_the_winner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "estimate", lambda *given: 1 / estimate(*given))
    result = search(problem(*STARVED), budget=100)
    assert result.seconds == searched("starved").seconds
    assert result.best.estimate != min(c.estimate for c in result.simulated if c.estimate)


def test_reasons_are_counted_apart() -> None:
    """No die holds what rests on it; three replicas do not divide 8, nor three of `tatp` the sequence."""
    with pytest.raises(CompileError) as error:
        search(problem("wafer.die.sram=1 kB", "wafer.die.hbm=1 kB"))
    message = error.value.diagnostics[0].message
    assert re.match(r"none of 26 strategies of 4 to 1 dies fits: 25 W401, such as `\S+`: what rests", message)
    assert re.search(r"; 1 W201, such as `dp=3`: batch 8 .* = 6$", message)


def test_a_small_budget_is_kept_and_said() -> None:
    result = search(problem("wafer.mesh=1x2"), budget=1)
    assert (result.compiled, len(result.simulated), result.end) == (1, 1, End.BUDGET)
    assert result.bound < result.seconds


def test_the_strategy_of_the_program_takes_part() -> None:
    """Even if it uses fewer dies, and is the only one that the budget allows."""
    sets = ("wafer.mesh=1x2",)
    result = search(problem(*sets, parallel="tatp=2"), budget=1)
    assert spell(result.best.strategy) == "tatp=2"
    assert result.best.is_given


# ---- closed forms


@given(
    st.lists(st.floats(0.01, 1), min_size=1, max_size=6),
    st.integers(1, 12),
)
def test_no_division_of_layers_beats_the_bound_of_a_pipeline(work: list[float], calls: int) -> None:
    """Stage k starts after those before it, there and back, and does all its micro-batches."""
    wafer = Wafer("w", 1, len(work), die=Die(peak=1))
    forms = ClosedForms(
        wafer, Scale(calls, len(work)), flops=1_000_000, streamed=0, stored=dict.fromkeys(Kind, 0)
    )
    settled = values(microbatch=1)
    bound = forms.bound((("pp", len(work)),) if len(work) > 1 else (), settled).compute
    scale = 1_000_000 / calls / sum(work)
    longest = max(scale * (sum(work[:k]) + calls * w) for k, w in enumerate(work))
    assert bound <= longest * (1 + 1e-9)
    # The division that meets it: each stage does less by the share of one micro-batch.
    even = [(1 - 1 / calls) ** k for k in range(len(work))]
    scale = 1_000_000 / calls / sum(even)
    assert isclose(bound, max(scale * (sum(even[:k]) + calls * w) for k, w in enumerate(even)))


def test_bytes_by_hand() -> None:
    """Two micro-batches pass over 4 MB of 8 MB of weights twice; the update reads 4 + 4 + 8 and writes 4 + 8."""
    die = Die(sram=1_000_000, hbm=10**9, hbm_bandwidth=10**6)
    stored = {Kind.PARAM: 8_000_000, Kind.GRAD: 8_000_000, Kind.STATE: 16_000_000}
    forms = ClosedForms(Wafer("w", 2, 2, die=die), Scale(4, 1), flops=0, streamed=8_000_000, stored=stored)
    dp_tp, dp_sp = (("dp", 2), ("tp", 2)), (("dp", 2), ("sp", 2))
    bound = forms.bound(dp_tp, values(microbatch=1))
    assert bound.hbm == 2 * 2 * 3 + 15 + 11
    assert bound.bytes == 16_000_000
    assert forms.bound(dp_tp, values(zero=1)).bytes == 4_000_000 + 2_000_000 + 4_000_000
    assert forms.bound(dp_tp, values(zero=3)).bytes == 8_000_000
    assert forms.bound(dp_sp, values(zero=3)).bytes == 8_000_000
    several = (("1", "2"), ("none",), ("0", "3"), ("1",))
    assert forms.bound(dp_tp, several) == Bound(
        0, forms.bound(dp_tp, values(microbatch=2, zero=3)).hbm, 8_000_000
    )


def test_bytes_and_layers_of_stages_by_hand() -> None:
    """Two stages share 8 MB and have two and one micro-batches of 4 MB in flight, with half of the layers each: the
    fuller holds no less than where both hold as much, 8 MB and 6 MB for halves. Three layers are two and one."""
    wafer = Wafer("w", 1, 2, die=Die(peak=10**6, sram=10**9))
    stored = {Kind.PARAM: 8_000_000, Kind.GRAD: 0, Kind.STATE: 0}
    scale = Scale(4, 3)
    saved = {"none": 4_000_000, "full": 1_000_000}
    forms = ClosedForms(wafer, scale, 3_000_000, 0, stored, saved, layered=3_000_000)
    two = (("pp", 2),)
    assert isclose(forms.bound(two, values()).bytes, 2 / (1 / 8e6 + 1 / 6e6), rel_tol=1e-6)
    assert forms.bound((), values()).bytes == 12_000_000
    assert isclose(forms.bound(two, values(recompute="full")).bytes, 2 / (1 / 5e6 + 1 / 4.5e6), rel_tol=1e-6)
    assert isclose(forms.bound(two, values(interleave=2)).compute, 2.0)
    layered = replace(forms, saved={}, stored_layered={Kind.PARAM: 6_000_000})
    assert layered.bound(two, values()).bytes == 4_000_000  # half of all, or two layers of three
    assert replace(layered, scale=Scale(4, 5)).bound(two, values()).bytes == 4_000_000
    assert replace(layered, stored_layered=stored).bound(two, values()).bytes == 16_000_000 // 3


@pytest.mark.parametrize(
    ("sample", "layers", "strategy"),
    [("gpt-tiny", 3, (("pp", 2),)), ("moe-tiny", 3, (("pp", 2), ("sp", 2)))],
)
def test_no_die_holds_less_than_the_bound_of_its_layers(sample: str, layers: int, strategy: Strategy) -> None:
    """Three layers on two stages; `sp` shares out experts, too."""
    sets = (f"model.layers={layers}", "wafer.mesh=1x4", "wafer.die.hbm=1 GB")
    tried = Problem(parse(read_source(f"samples/{sample}.wsl")), Overrides(sets, "auto"))
    space = Space(tried)
    plan = plan_of(strategy, [v[0] for v in space.open[strategy].values])
    program = compiled(tried, plan)
    assert isinstance(program, Compiled)
    assert space.bound(plan).bytes <= program.peak_bytes_per_die_max


def values(microbatch: int = 1, recompute: str = "none", zero: int = 0, interleave: int = 1) -> Values:
    return tuple((str(v),) for v in (microbatch, recompute, zero, interleave))


# ---- processes


@pytest.mark.parametrize(("work", "doing"), [("estimated", "estimating"), ("compiled", "compiling")])
def test_a_search_ends_with_a_worker_that_is_killed(
    work: str, doing: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(workers.WORK, work, (killed, doing))
    monkeypatch.setattr(sys.modules["wscc.search"], "_FEW", 1)
    assert main(["search", MODEL, "--jobs", "2", "--json", *PINNED]) == 1
    out, err = capfd.readouterr()
    message = json.loads(out)["error"]["message"]
    assert re.fullmatch(
        rf"worker \d of 2 was ended by SIGKILL \(signal 9\) while {doing} `[\w=, ]+`", message
    )
    assert "Traceback" not in err
    assert not multiprocessing.active_children()


def killed(problem: Problem, plan: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_another_process_changes_nothing() -> None:
    one = problem("wafer.mesh=1x2")
    plan = one.own((("tatp", 2),))
    with workers.Evaluators(one, 2) as two:
        (seconds,) = two.results(estimated, [plan])
        (remote,) = two.results(compiled, [plan])
        assert isinstance(remote, Compiled)
        (figures,) = two.results(simulated, [remote])
    local = compiled(one, plan)
    assert isinstance(local, Compiled)
    assert seconds == estimated(one, plan)
    assert replace(local, artifact=remote.artifact) == remote
    assert local.artifact.manifest == remote.artifact.manifest
    assert local.artifact.graph == remote.artifact.graph
    assert figures == simulated(one, local)


def test_an_error_of_another_process_is_the_same() -> None:
    error = fail(Code.DEADLOCK, "dies wait", help="compile again")
    assert pickle.loads(pickle.dumps(error)).diagnostics == error.diagnostics


# ---- the command line


def test_o3_compiles_the_winner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--set", "wafer.mesh=1x2", "--json"]
    pinned = ["--parallel", "auto,microbatch=1,recompute=full"]
    assert main(["compile", MODEL, "-O3", "-o", str(tmp_path / "a"), *pinned, *options]) == 0
    report = json.loads(capsys.readouterr().out)["search"]
    assert (report["strategies"], report["plans"], report["refused"], report["dies"]) == (6, 10, {}, [2, 1])
    assert (report["settings"]["microbatch"], report["settings"]["recompute"]) == ("1", "full")
    options += [word for k, v in report["settings"].items() for word in ("--set", f"train.{k}={v}")]
    assert main(["compile", MODEL, "-o", str(tmp_path / "b"), "--parallel", report["best"], *options]) == 0
    assert "search" not in json.loads(capsys.readouterr().out)
    for file in (tmp_path / "b").iterdir():
        if file.name != "report.json":
            assert file.read_bytes() == (tmp_path / "a" / file.name).read_bytes()


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (["compile"], 1, ["W203", "wscc search", "-O3"]),
        (
            ["compile", "-O3", "--set", "wafer.die.sram=1 kB", "--set", "wafer.die.hbm=1 kB"],
            1,
            ["W206", "W401", "nearest"],
        ),
        (["search", "--set", "train.batch=3"], 1, ["W201", "microbatch"]),
        (["search", "--set", "wafer.mesh=1x1", "--dead", "die:0,0"], 1, ["W301", "all of them are dead", "`mesh 2"]),
        (["compile", "-O3", "--call-order", MODEL], 2, ["W006", "--call-order"]),
        (["search", "--parallel", "xp=2"], 2, ["xp"]),
        (["search", "--pin", "xp=2"], 2, ["xp", "microbatch"]),
        (["search", "--pin", "recompute=ful"], 2, ["did you mean `full`"]),
        (["search", "--pin", "microbatch=3"], 1, ["W201", "a batch of 8", "1, 2, 4, 8"]),
        (["search", "--pin", "tp=0.5"], 2, ["`tp`", "integer"]),
        (["search", "--pin", "tp"], 2, ["W001"]),
        (["search", "--parallel", "auto,tp=2,tp=4"], 2, ["W007", "tp"]),
        (["search", "--budget", "0"], 2, ["--budget"]),
    ],
)  # fmt: skip
def test_mistakes_are_named(
    args: list[str], status: int, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([args[0], MODEL, *args[1:]]) == status
    message = capsys.readouterr().err
    assert all(word in message for word in words), message
    assert "Traceback" not in message


def test_the_table_says_what_was_done(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["search", MODEL, "--set", "wafer.mesh=1x2", "--budget", "2", "--top", "3", *PINNED]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["plan", "dies", "estimate", "simulated", "bound", "MFU", "memory"]
    assert lines[4] == ""
    assert any("6 strategies of 2 to 1 dies" in line and "2 compiled" in line for line in lines)
    assert main([*words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["strategy"] for row in report["rows"]] == [line.split()[0] for line in lines[1:4]]
    assert lines[-1].split() == ["use", "--parallel", report["best"]]
    assert report["rows"][0]["step_seconds"] == report["step_seconds"] >= report["bound_seconds"]
