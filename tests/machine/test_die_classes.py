"""Programs on dies that are not alike compute what one device does, take the time of the slowest, and leave slow dies
alone where others are enough."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fuzz.strategies import judged, reference
from tests.support.compile_once import artifact_of
from tests.support.models import Shape, gpt
from wscc.diagnostics import Code, CompileError, Source
from wscc.driver.compile import load
from wscc.driver.module_text import read_module
from wscc.driver.simulate import alike_seconds, simulate
from wscc.frontend.overrides import Overrides
from wscc.ir.text.print import to_text
from wscc.machine.links import CUT_THROUGH
from wscc.machine.wafer import Die, Wafer

SHAPE = Shape(batch=8, calls=1, layers=1)
SLOW_PEAK = Die(peak=10**10)  # so slow that little but FLOPs takes time
PLAIN = Wafer("w", 2, 4, SLOW_PEAK)
HALF = replace(SLOW_PEAK, peak=SLOW_PEAK.peak // 2, hbm_bandwidth=SLOW_PEAK.hbm_bandwidth // 2)
ALL = tuple((r, c) for r in range(2) for c in range(4))


def with_slow(*places: tuple[int, int], die: Die = HALF, wafer: Wafer = PLAIN) -> Wafer:
    return replace(wafer, unlike=tuple((at, die) for at in places))


def seconds(wafer: Wafer, **degrees: int) -> float:
    return simulate(artifact_of(gpt(degrees, SHAPE, wafer=wafer))).account.seconds


@pytest.mark.parametrize("degrees", [{"dp": 2, "tatp": 4}, {"tp": 4, "sp": 2}])
def test_a_program_equals_one_device(degrees: dict[str, int]) -> None:
    wafer = with_slow((0, 1), (1, 2), die=replace(HALF, hbm=10**9))
    check = judged(gpt(degrees, SHAPE, wafer=wafer), reference(gpt, SHAPE, "adamw"), checked=False)
    assert check.ok, check


def test_dies_that_are_all_of_a_class_are_a_wafer_of_such_dies() -> None:
    assert seconds(with_slow(*ALL), dp=2, tatp=4) == seconds(replace(PLAIN, die=HALF), dp=2, tatp=4)


def test_one_slow_die_holds_up_all_that_work_with_it() -> None:
    fast, slow = seconds(PLAIN, dp=2, tatp=4), seconds(replace(PLAIN, die=HALF), dp=2, tatp=4)
    artifact = artifact_of(gpt({"dp": 2, "tatp": 4}, SHAPE, wafer=with_slow((0, 1))))
    simulated = simulate(artifact)
    figures = simulated.figures()
    assert slow > 1.8 * fast
    assert fast + 0.9 * (slow - fast) < figures.step_seconds < 1.001 * slow
    assert alike_seconds(artifact, CUT_THROUGH) == pytest.approx(fast)
    waits = sum(figures.time["exposed"].values())
    assert sum(v for k, v in figures.time.items() if k != "exposed") + waits == pytest.approx(1)
    # An eighth of the dies computes for twice as long: its second half is the loss.
    work = figures.time["model"] + figures.time["extra_flops"]
    assert figures.time["slow_dies"] == pytest.approx(work / 8, rel=1e-3)
    # MFU is of what the dies can do: seven and a half of them.
    model = artifact.profile.model_flops if artifact.profile else 0
    assert figures.mfu == pytest.approx(model / figures.step_seconds / (7.5 * SLOW_PEAK.peak))


def test_slow_dies_are_left_alone_where_others_are_enough() -> None:
    wafer = with_slow((0, 0), (1, 1))
    artifact = artifact_of(gpt({"tatp": 4}, SHAPE, wafer=wafer))
    assert not {wafer.coordinate(d) for d in artifact.streams.dies} & {(0, 0), (1, 1)}
    assert simulate(artifact).account.seconds == seconds(PLAIN, tatp=4)
    # A ring through a slow die is better than none round it.
    around = with_slow((0, 1), (0, 2), wafer=replace(PLAIN, cols=3))
    placed = artifact_of(gpt({"tatp": 4}, SHAPE, wafer=around)).streams.dies
    assert 1 in placed
    assert 2 not in placed


def test_the_die_with_the_least_memory_is_what_a_program_has_to_fit() -> None:
    changes = Overrides(sets=("wafer.die.sram=100 kB",))
    graph = load("samples/gpt-tiny.wsl", changes)
    assert artifact_of(graph)
    rim = replace(graph.machine.die, hbm=0, hbm_bandwidth=0)
    machine = replace(graph.machine, unlike=(((0, 3), rim),))
    with pytest.raises(CompileError) as refused:
        artifact_of(graph.with_(machine=machine))
    (mistake,) = refused.value.diagnostics
    assert mistake.code is Code.OUT_OF_MEMORY
    assert "but die (0, 3) has" in mistake.message


def test_the_text_of_a_module_keeps_its_dies() -> None:
    module = gpt({"dp": 2}, SHAPE, wafer=with_slow((0, 1)))
    again = read_module(Source("m.wir", to_text(module)))
    assert again.machine == module.machine
    assert "unlike" not in to_text(gpt({"dp": 2}, SHAPE, wafer=PLAIN))
