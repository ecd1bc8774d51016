"""Every sample compiles, runs, and equals one device."""

from __future__ import annotations

from pathlib import Path

import pytest

from wscc.compiler import compile_file, load
from wscc.frontend.overrides import Overrides
from wscc.report import parameters
from wscc.trainer import RunOptions, run

SAMPLES = Path(__file__).parent.parent / "samples"

# What makes a sample small enough to run here, by file; nothing for those that are tiny as they are.
SHRUNK: dict[str, tuple[str, ...]] = {
    "gpt2-small.wsl": (
        "model.layers=2", "model.d=48", "model.vocab=256", "model.seq=16", "train.batch=8", "train.microbatch=2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.wsl")), ids=lambda p: p.name)
def test_a_sample_compiles_as_it_is(path: Path) -> None:
    compiled = compile_file(str(path))
    assert compiled.report["dies_used"] == compiled.graph.dies_used > 1


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.wsl")), ids=lambda p: p.name)
def test_a_sample_runs_like_one_device(path: Path) -> None:
    """Shrunk, in f64: data, init, parsing and training together."""
    small = Overrides(sets=SHRUNK.get(path.name, ("model.layers=2", "model.seq=16")), dtype="f64")
    outcome = run(compile_file(str(path), small).artifact, RunOptions(steps=2), check=True)
    assert outcome.check is not None
    assert outcome.check.ok, outcome.check


def test_gpt2_small_has_the_published_number_of_parameters() -> None:
    """124,439,808: the released model's config (`n_layer` 12, `n_embd` 768, vocabulary 50257, tied head)."""
    assert parameters(load(str(SAMPLES / "gpt2-small.wsl"))) == 124_439_808


def test_the_demo_learns() -> None:
    """Cross entropy falls below what single-byte frequencies give (about 3 nats) within a few dozen steps."""
    path = str(SAMPLES / "gpt-tiny.wsl")
    losses = run(
        compile_file(path, Overrides(sets=("model.layers=1", "model.seq=32"))).artifact, RunOptions(steps=40)
    ).losses
    assert losses[0] == pytest.approx(5.55, abs=0.3)
    assert losses[-1] < 3.3
