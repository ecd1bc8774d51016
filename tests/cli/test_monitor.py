"""`wscc monitor`: what it says of links, dies and memory is what the program does."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.whole_step import SAMPLES, compiled
from wscc.backends.artifact.files import write_artifact
from wscc.backends.simulator.calls import Builder
from wscc.backends.simulator.costs import Costs
from wscc.backends.simulator.locals import locals_of
from wscc.backends.simulator.memory import Moment
from wscc.cli import main
from wscc.cli.monitor_facts import grouped, thinned
from wscc.ir.streams.profile import UNKNOWN
from wscc.ir.streams.program import Streams
from wscc.ir.streams.wsa import parse_wsa
from wscc.machine.wafer import Wafer

# Links slow enough to be full.
SLOW = ("llama-tiny", "pp=2,tp=2", "wafer.link.bandwidth=1 GB/s", "wafer.link.latency=1 ns")
HAS_PLOT = importlib.util.find_spec("matplotlib") is not None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    artifact, _ = compiled(*SLOW)
    write_artifact(path := tmp_path_factory.mktemp("m") / "out", artifact)
    return str(path)


def seen(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert main(["monitor", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def test_full_links_are_named_with_their_lines_and_relief(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = seen(capsys, folder, "--metric", "link_util")
    assert facts["hot"]
    for link in facts["hot"]:
        assert max(link["util"], link["peak_util"]) > 0.9
        assert link["relief"]
        assert sum(t["bytes"] for t in link["traffic"]) <= link["bytes"]
    text = (SAMPLES / "llama-tiny.wsl").read_text().splitlines()
    lines = {t["line"] for link in facts["hot"] for t in link["traffic"]}
    assert any("attention(" in text[n - 1] for n in lines if n)
    assert facts["step_seconds_at_twice_the_bandwidth"] < facts["step_seconds"]
    assert all(0 <= link["util"] <= 1 for link in facts["links"])
    assert len(facts["links"]) == 2 * (2 * 3 + 4)
    assert main(["monitor", folder, "--metric", "link_util"]) == 0
    shown = capsys.readouterr().out
    assert "over 90 %" in shown
    assert "relief:" in shown
    assert "llama-tiny.wsl:" in shown


def test_shares_of_a_die_add_up_to_the_step(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    facts = seen(capsys, folder, "--metric", "die_util", "--group", "1x2")
    for die in facts["dies"]:
        parts = (die[k] for k in ("flops", "tile_rounding", "hbm", "delayed", "bubble", "idle"))
        assert sum(parts) + sum(die["exposed"].values()) == pytest.approx(1)
        assert die["util"] == pytest.approx(die["flops"] + die["tile_rounding"] + die["hbm"])
    assert [g["first_die"] for g in facts["groups"]] == [[0, 0], [0, 2], [1, 0], [1, 2]]
    assert main(["monitor", folder, "--metric", "die_util"]) == 0
    assert "least busy dies" in capsys.readouterr().out


def test_what_is_live_fits_what_was_planned(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    artifact, _ = compiled(*SLOW)
    facts = seen(capsys, folder, "--metric", "memory")
    report = artifact.report["memory"]
    assert facts["capacity"] == report["capacity"]
    planned = report["peak_bytes_per_die"]
    each = len(planned) // len(facts["stages"])
    for stage in facts["stages"]:
        assert (
            0.5 * planned[stage["stage"] * each] < stage["live_peak_bytes"] <= planned[stage["stage"] * each]
        )
        assert stage["live_peak_bytes"] == sum(item["bytes"] for item in stage["at_peak"])
        assert (
            max(p["resident"] + p["kept"] + p["locals"] for p in stage["over_time"])
            == stage["live_peak_bytes"]
        )
    # Residuals of a stage die as the backward passes go: nothing is kept when the weights are updated.
    last = facts["stages"][0]["over_time"][-1]
    assert last["kept"] < facts["stages"][0]["over_time"][len(facts["stages"][0]["over_time"]) // 2]["kept"]
    assert main(["monitor", folder, "--metric", "memory"]) == 0
    assert "over time" in capsys.readouterr().out


def test_locals_die_with_their_last_read() -> None:
    """128 bytes scaled in place are not live twice; half of them are dead when 64 more are made, then all."""
    body = """
        fill f32[32]@0 value=1.0   scale f32[32]@0 <- f32[32]@0 factor=2.0
        scale f32[16]@128 <- f32[16]@0 factor=2.0   fill f32[16]@192 value=0.0
        add f32[16]@a0 <- f32[16]@128, f32[16]@192"""
    programs, steps = parse_wsa(f"role 0 {{ procedure f(1) {{ {body} }} }} step {{ call f(1024) }}")
    streams = Streams(programs, steps, (0,), (0,), np.zeros((1, 0), np.int64), (), 4096)
    memory = locals_of(Builder(streams, Costs.of(Wafer("w", 1, 1))), 0, "f", (UNKNOWN,) * 5)
    assert memory.peak == 128


def test_many_moments_are_thinned_to_the_fullest_of_each_stretch() -> None:
    moments = tuple(Moment(i, "f", 0, i % 7, 0) for i in range(1000))
    thin = thinned(moments, 10)
    assert len(thin) == 10
    assert {m.live for m in thin} == {6}
    assert thinned(moments[:5], 10) == list(moments[:5])


def test_blocks_of_dies_have_their_mean_or_maximum() -> None:
    wafer = Wafer("w", 2, 3)
    values = {0: 0.5, 1: 0.1, 2: 0.9, 3: 0.3}
    assert grouped(wafer, values, 2, 2, "max") == [
        {"first_die": [0, 0], "max": 0.5}, {"first_die": [0, 2], "max": 0.9}
    ]  # fmt: skip
    assert grouped(wafer, values, 1, 3, "mean")[0]["mean"] == pytest.approx(0.5)
    assert grouped(wafer, {}, 2, 3, "mean") == [{"first_die": [0, 0], "mean": None}]


def test_mistakes_are_named(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["monitor", folder]) == 2
    assert main(["monitor", folder, "--metric", "heat"]) == 2
    assert main(["monitor", folder, "--metric", "memory", "--group", "4"]) == 2
    assert "`--group 4` is not ROWSxCOLUMNS" in capsys.readouterr().err
    assert main(["monitor", str(tmp_path / "none"), "--metric", "memory"]) == 1
    assert "no such file" in capsys.readouterr().err


@pytest.mark.parametrize("metric", ["link_util", "memory"])
def test_a_picture_is_drawn_or_what_is_missing_is_named(
    metric: str, folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.svg"
    status = main(["monitor", folder, "--metric", metric, "--plot", str(path)])
    if HAS_PLOT:
        assert status == 0
        assert "<svg" in path.read_text()
    else:
        assert status == 1
        assert "wscc[plot]" in capsys.readouterr().err
