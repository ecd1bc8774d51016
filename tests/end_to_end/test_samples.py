"""Every sample compiles, runs, and equals one device. A new file in samples/ is picked up by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.compile_once import artifact_of_file
from tests.support.paths import CASES, ROOT
from wscc.analysis.memory.array_layout import peak_array_bytes
from wscc.driver.compile import compile_file, load
from wscc.driver.pipeline import Pipeline
from wscc.driver.report import parameters
from wscc.driver.train import RunOptions, run
from wscc.files import read_source
from wscc.frontend.overrides import Overrides
from wscc.frontend.parse import parse
from wscc.frontend.select import select
from wscc.machine.wafer import Link
from wscc.passes.place import Place

pytestmark = pytest.mark.bounds

SAMPLES = sorted((ROOT / "samples").glob("*.wsl"))
PUBLISHED: dict[str, Any] = json.loads((CASES / "parameters.json").read_text())
# Phases of a sample where XY is more than 5 % above the bound: there must be enough of them to see routing work.
DETOURS = {"gpt2-small": 4}
# Up to half a minute of CPU each: `make bench` compiles them as they are. Here they are shrunk, and what rests on a die
# is weighed at their own sizes.
HEAVY = ("gpt3-175b", "gpt3-175b-4wafers", "grok-1", "llama2-70b")
# Beyond 16 dies the wafer and the longest axis are shrunk, too: each axis still leads where it led.
FEWER_DIES = {
    "gpt3-175b": ("wafer.mesh=3x4", "train.parallel=tp = 3, tatp = 4"),
    "gpt3-175b-4wafers": ("wafer.mesh=2x4", "train.parallel=pp = 4, tp = 2, tatp = 4"),
    "llama2-7b": ("wafer.mesh=2x4", "train.parallel=tp = 2, tatp = 4"),
    "llama2-70b": ("wafer.mesh=2x4", "train.parallel=tp = 2, tatp = 4"),
}
LARGE = 1_000_000  # parameters: above it a sample is shrunk before it is run


def shrunk(path: Path) -> tuple[str, ...]:
    """`--set` values that make the sample small enough to run here on its own wafer with its own strategy.

    Each size stays divisible by what its own strategy splits it by: heads by `tp`, the rest by `tp * tatp`.
    """
    graph = load(str(path))
    has = {p.name.id for p in select(parse(read_source(str(path)))).model.parameters}
    if parameters(graph) < LARGE:
        return tuple(f"model.{name}={size}" for name, size in (("layers", 2), ("seq", 16)) if name in has)
    degree = dict(graph.axes)
    tp, dp, ep = (degree.get(a, 1) for a in ("tp", "dp", "ep"))
    d = 2 * tp * 8
    layers = max(2 if graph.dies_used <= 16 else 1, degree.get("pp", 1))
    small = {
        "layers": layers, "d": d, "heads": 2 * tp, "kv": tp, "e": 8, "ffn": 2 * d, "vocab": 256, "seq": 16,
        "patches": 16, "pixels": 2 * d,
    }  # fmt: skip
    model = tuple(f"model.{name}={size}" for name, size in small.items() if name in has)
    batch = f"train.batch={2 * dp * ep}", f"train.microbatch={2 * ep}"
    return (*model, *batch, *FEWER_DIES.get(path.stem, ()))


def above_bound(report: dict[str, Any], link: Link) -> list[dict[str, Any]]:
    """Phases that XY routes load more than 5 % above what is possible, for longer than a hop takes: on shorter ones a
    detour costs more than it saves."""
    hop = link.latency * link.bandwidth
    phases = [p for p in report["phases"] if p["xy_max_link_bytes"] > hop]
    return [p for p in phases if 100 * p["xy_max_link_bytes"] > 105 * p["lp_bound_bytes"]]


@pytest.mark.parametrize("path", [p for p in SAMPLES if p.stem not in HEAVY], ids=lambda p: p.name)
def test_a_sample_compiles_as_it_is(path: Path) -> None:
    compiled = compile_file(str(path))
    report = compiled.report
    assert report["dies_used"] == compiled.graph.dies_used > 1
    detours = above_bound(report, compiled.graph.machine.link)
    assert len(detours) >= DETOURS.get(path.stem, 0)
    for phase in detours:
        assert phase["gap_percent"] <= 5, phase
    for phase in report["phases"]:
        assert phase["lp_bound_bytes"] <= phase["max_link_bytes"] <= phase["xy_max_link_bytes"]
    for procedure in report["procedures"]:
        assert procedure["lp_bound_bytes"] <= procedure["max_link_bytes"]


@pytest.mark.parametrize("name", HEAVY)
def test_what_rests_of_a_heavy_sample_fits(name: str) -> None:
    graph = load(str(ROOT / "samples" / f"{name}.wsl"))
    die = graph.machine.die
    assert peak_array_bytes(Pipeline.default().before(Place).run(graph)) <= die.sram + die.hbm


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_a_sample_runs_like_one_device(path: Path) -> None:
    """Shrunk, in f64: data, init, parsing and training together. A second step of many dies shows no more."""
    small = Overrides(sets=shrunk(path), dtype="f64")
    steps = 2 if load(str(path)).dies_used <= 16 else 1
    outcome = run(artifact_of_file(path, small), RunOptions(steps=steps), check=True)
    assert outcome.check is not None
    assert outcome.check.ok, outcome.check


@pytest.mark.parametrize("path", [p for p in SAMPLES if "tiny" not in p.name], ids=lambda p: p.name)
def test_a_sample_named_for_a_published_model_has_its_number_of_parameters(path: Path) -> None:
    assert parameters(load(str(path))) == PUBLISHED[path.name]["parameters"]


def test_gpt3_needs_no_more_than_48_dies() -> None:
    machine = load(str(ROOT / "samples" / "gpt3-175b.wsl")).machine
    assert machine.rows * machine.cols <= 48


@pytest.mark.parametrize("name", ["gpt-tiny.wsl", "moe-tiny.wsl"])
def test_a_tiny_sample_learns(name: str) -> None:
    """Cross entropy falls below what single-byte frequencies give (about 3 nats) within a few dozen steps."""
    small = Overrides(sets=("model.layers=2", "model.seq=16", "train.batch=8"))
    losses = run(artifact_of_file(ROOT / "samples" / name, small), RunOptions(steps=40, threads=1)).losses
    assert losses[0] == pytest.approx(5.6, abs=0.3)
    assert losses[-1] < 3.3
