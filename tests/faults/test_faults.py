"""`wscc faults`: patterns of damage, outcomes that the compiler confirms, and the load model worked by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.hash_seed import printed_under_two_hash_seeds
from tests.support.models import Shape, gpt
from tests.support.paths import SAMPLES
from wscc.cli import main
from wscc.diagnostics import Code, CompileError
from wscc.driver.compile import compile_graph, load
from wscc.driver.pipeline import Pipeline
from wscc.faults.patterns import KINDS, damaged
from wscc.faults.study import NO_DAMAGE, Study, step_seconds
from wscc.files import read_source
from wscc.frontend.overrides import Overrides
from wscc.frontend.parse import parse
from wscc.ir.module import Module
from wscc.machine.presets import PRESETS
from wscc.machine.topology import mesh_topology
from wscc.machine.wafer import Link, Wafer
from wscc.passes.route import Route

MODEL = str(SAMPLES / "gpt-tiny.wsl")
SMALL = ("model.layers=1", "model.seq=8", "model.d=16", "model.vocab=32")
OPTIONS = [word for s in SMALL for word in ("--set", s)]

WAFERS = st.builds(
    lambda rows, cols, dead: Wafer("w", rows, cols, dead_dies=frozenset({(dead % rows, dead % cols)})),
    rows=st.integers(2, 6),
    cols=st.integers(2, 6),
    dead=st.integers(0, 35),
)


def study(*sets: str, parallel: str | None = None) -> Study:
    return Study(parse(read_source(MODEL)), Overrides(sets=(*SMALL, *sets), parallel=parallel))


# ---- patterns


@settings(max_examples=30, deadline=None)
@given(WAFERS, st.sampled_from(KINDS), st.floats(0, 1), st.floats(0, 1), st.integers(0, 9))
def test_damage_is_of_its_kind_and_rate_and_grows_with_it(
    wafer: Wafer, kind: str, one: float, other: float, seed: int
) -> None:
    low, high = (damaged(wafer, kind, rate, seed) for rate in sorted((one, other)))
    assert wafer.dead_dies <= low.dead_dies <= high.dead_dies
    assert wafer.dead_links <= low.dead_links <= high.dead_links
    if kind.endswith("cores"):
        assert (high.dead_dies, high.dead_links) == (wafer.dead_dies, wafer.dead_links)
        peaks = [[w.die_at(d).peak for d in range(w.dies)] for w in (wafer, low, high)]
        assert all(0 < c <= b <= a for a, b, c in zip(*peaks, strict=True))
        # A core of each die is left, whatever is drawn.
        assert low.peak / wafer.peak == pytest.approx(1 - min(one, other), abs=1 / 64)
    elif kind.endswith("dies"):
        assert low.dead_links == wafer.dead_links
        count = min(round(max(one, other) * wafer.live_dies), wafer.live_dies - 1)
        assert len(high.dead_dies - wafer.dead_dies) == count
    else:
        assert low.dead_dies == wafer.dead_dies
        live = [(r, c) for r in range(wafer.rows) for c in range(wafer.cols) if (r, c) not in wafer.dead_dies]
        links = {(a, b) for a in live for b in live if b in ((a[0], a[1] + 1), (a[0] + 1, a[1]))}
        assert high.dead_links <= links
        assert len(high.dead_links) == round(max(one, other) * len(links))


def beside(wafer: Wafer) -> int:
    """Pairs of dead dies that share an edge."""
    return sum(b in wafer.dead_dies for r, c in wafer.dead_dies for b in ((r, c + 1), (r + 1, c)))


def test_clustered_damage_lies_together() -> None:
    wafer = Wafer("w", 12, 12)
    pairs = {
        kind: sum(beside(damaged(wafer, f"{kind} dies", 0.1, s)) for s in range(20))
        for kind in ("random", "clustered")
    }
    assert pairs["clustered"] > 3 * pairs["random"]


_PROBE = """
from wscc.faults.patterns import KINDS, damaged
from wscc.machine.wafer import Wafer
for kind in KINDS:
    wafer = damaged(Wafer("w", 6, 7), kind, 0.3, 4)
    print(sorted(wafer.dead_dies), sorted(wafer.dead_links), wafer.unlike)
"""


def test_a_seed_means_the_same_damage_under_any_hash_seed() -> None:
    answers = printed_under_two_hash_seeds(_PROBE)
    assert answers[0] == answers[1]
    assert len(set(answers[0].splitlines())) == 5


# ---- outcomes


def compiled(wafer: Wafer, parallel: str) -> Module | Code:
    """The routed module of the same program on that wafer, or the code of its refusal."""
    dead = [f"die:{r},{c}" for r, c in sorted(wafer.dead_dies)]
    dead += [f"link:{a[0]},{a[1]}-{b[0]},{b[1]}" for a, b in sorted(wafer.dead_links)]
    try:
        changes = Overrides(sets=(*SMALL, "wafer.mesh=3x4"), parallel=parallel, dead=tuple(dead))
        return Pipeline.default(2).until(Route).run(load(MODEL, changes))
    except CompileError as error:
        return error.diagnostics[0].code


def test_an_outcome_is_what_the_compiler_says() -> None:
    """Alive or cut apart, the strategy of the file or the nearest that fits."""
    subject = study("wafer.mesh=3x4", parallel="dp=2,tatp=4")
    row = frozenset((1, c) for c in range(4))
    damage = [
        Wafer("tray", 3, 4, dead_dies=row),  # two islands of four
        Wafer("tray", 3, 4, dead_dies=frozenset({(0, 1), (2, 2)})),
        Wafer("tray", 3, 4, dead_dies=frozenset({(0, 1), (1, 2), (2, 1), (1, 1), (0, 0)})),  # seven left
    ]
    outcomes = []
    for wafer in (replace(subject.graph.machine, dead_dies=w.dead_dies) for w in damage):
        outcome = subject.outcome(wafer) if subject.whole else None
        assert outcome is not None
        expected = compiled(wafer, outcome.strategy)
        assert (outcome.refusal is None) == isinstance(expected, Module)
        if isinstance(expected, Module):
            sharded = subject._sharded[outcome.strategy]
            assert isinstance(sharded, Module)
            assert outcome.seconds == step_seconds(sharded, expected)
        else:
            assert outcome.refusal is expected
        outcomes.append((outcome.strategy, outcome.is_nearest, outcome.refusal))
    assert outcomes[0] == ("dp=2,tatp=4", False, Code.DISCONNECTED)
    assert outcomes[1] == ("dp=2,tatp=4", False, None)
    assert outcomes[2] == ("tatp=4", True, None)


def test_a_smaller_strategy_must_fit_in_memory_too() -> None:
    """With little more memory than four dies need, no smaller strategy compiles."""
    plain = study(parallel="tatp=4")
    assert plain.whole > 0
    peak = compile_graph(plain.graph).report["memory"]["peak_bytes_per_die_max"]
    tight = study(
        "wafer.die.sram=64 B", f"wafer.die.hbm={peak * 21 // 20} B", "wafer.mesh=2x2", parallel="tatp=4"
    )
    assert tight.whole > 0
    assert next(tight.rows([0.25], 1)).refused == {str(Code.OUT_OF_MEMORY): 1}


def test_one_die_runs_as_long_as_one_is_alive() -> None:
    for row in study(parallel="dp=1").rows([1.0], 1):
        assert row.throughputs == [pytest.approx(1 / 64) if row.kind == "random cores" else 1.0]


def test_no_damage_is_one_row_that_keeps_everything() -> None:
    rows = list(study().rows([0.0, 0.13], 1))
    assert [r.kind for r in rows] == [NO_DAMAGE, *KINDS]
    assert (rows[0].patterns, rows[0].throughputs, rows[0].dead) == (1, [1.0], 0)
    for row in rows:
        assert row.compiled + sum(row.refused.values()) == row.patterns
        assert row.compiled == len(row.throughputs)
        assert sum(row.nearest.values()) == (row.compiled if row.kind.endswith("dies") else 0)
        assert all(0 < k <= 1.0001 for k in row.throughputs)


# ---- the load model


def seconds(module: Module) -> float:
    modules = compile_graph(module).modules
    return step_seconds(modules["fuse"], modules["route"])


def test_one_die_computes_and_two_also_exchange() -> None:
    """One: FLOPs over peak (of the embedding's gradient too, which the report leaves out). Two replicas: half of
    that, and what they exchange at half the bandwidth takes twice
    as long. Four stages: the slowest sets the pace, and the pipeline has to fill."""
    shape = Shape(batch=8, calls=4, layers=4)
    alone = compile_graph(gpt({}, shape))
    work = alone.report["flops_per_step"] / alone.graph.machine.die.peak
    assert work < seconds(gpt({}, shape)) < 1.05 * work
    work = seconds(gpt({}, shape))
    fast, slow = (
        seconds(gpt({"dp": 2}, shape, wafer=Wafer("w", 1, 2, link=Link(bandwidth=b))))
        for b in (2 * 10**12, 10**12)
    )
    assert slow - work / 2 == pytest.approx(2 * (fast - work / 2))
    assert fast > work / 2
    endless = Wafer("w", 2, 2, link=Link(bandwidth=10**30))
    staged = seconds(gpt({"pp": 4}, shape, wafer=endless))
    assert work / 4 * (4 + 3) / 4 <= staged <= work * (4 + 3) / 4


# ---- the command


def test_the_table_and_the_object_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    small = [*OPTIONS, "--set", "wafer.mesh=2x2", "--parallel", "dp=4"]
    command = ["faults", MODEL, "--rate", "25%", "--seeds", "1", *small]
    assert main(command) == 0
    text = capsys.readouterr()
    assert main([*command, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert text.err == ""
    assert "load model" in text.out
    assert "load model" in said["model"]
    assert (said["strategy"], said["seeds"]) == ({"dp": 4}, 1)
    assert [(r["rate"], r["damage"]) for r in said["rows"]] == [(0.25, kind) for kind in KINDS]
    for row, line in zip(said["rows"], text.out.splitlines()[2:], strict=False):
        assert f"{row['compiled']} of {row['patterns']}" in line
        assert f"{row['kept']['mean']:.0%}" in line
        assert all(name in line for name in (*row["nearest"], *row["refused"]))


@pytest.mark.parametrize("rate", ["25", "x%", "20..10%", "120%", ""])
def test_a_rate_that_is_none_is_a_mistake_of_the_command_line(
    rate: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["faults", MODEL, "--rate", rate]) == 2
    assert "--rate" in capsys.readouterr().err


def test_a_program_that_its_own_wafer_refuses_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["faults", MODEL, "--parallel", "tatp=9", "--set", "wafer.mesh=3x3", "--dead", "die:0,1"]) == 1
    )
    assert "W301" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["dgx-h100", "sn30-node", "tpu-v4-4x4x4"])
def test_nodes_and_pods_are_damaged_as_meshes_are(name: str) -> None:
    """A die behind a switch has one link, and without it is dead: no links die there."""
    whole = PRESETS[name]
    for kind in KINDS:
        hurt = damaged(whole, kind, 0.25, 0)
        assert len(hurt.dead_dies) == (whole.dies // 4 if kind.endswith("dies") else 0)
        links = 0 if name == "dgx-h100" or not kind.endswith("links") else whole.live_links // 2
        assert len(hurt.dead_links) == round(0.25 * links)
        assert hurt.live_links == len(mesh_topology(hurt).links) - (name == "dgx-h100")
