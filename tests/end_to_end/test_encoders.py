"""Encoders of texts: the masked language model of `samples/bert-base.wsl`, at a size that trains here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.compile_once import artifact_of_file
from tests.support.paths import ROOT
from wscc.driver.train import RunOptions, run
from wscc.frontend.overrides import Overrides

BERT = ROOT / "samples" / "bert-base.wsl"
TINY = (
    "model.layers=2", "model.d=32", "model.heads=4", "model.ffn=64", "model.vocab=258", "model.seq=16",
)  # fmt: skip
MASK = 257


@pytest.mark.parametrize(
    "parallel", ["pp = 2, tp = 2", "sp = 2, tatp = 2", "dp = 2, tp = 2", "tatp = 4", "tp = 4"]
)
def test_bert_equals_one_device(parallel: str) -> None:
    """Tokens, segments and labels from the seed; the table of two segments has more than its share of dies."""
    small = (
        *TINY,
        "model.d=16",
        "model.ffn=24",
        "train.batch=4",
        "train.microbatch=2",
        f"train.parallel={parallel}",
    )
    found = run(
        artifact_of_file(BERT, Overrides(sets=small, dtype="f64")), RunOptions(steps=2, threads=1), check=True
    )
    assert found.check is not None
    assert found.check.ok, found.check


def test_a_masked_language_model_learns_what_is_masked(tmp_path: Path) -> None:
    """One byte in six of a text is masked, and only that has a label: the loss nears the entropy of bytes."""
    text = np.frombuffer((ROOT / "samples" / "tiny-text.txt").read_bytes(), np.uint8).astype(np.int64)
    rng = np.random.default_rng(1)
    rows = text[rng.integers(0, len(text) - 16, 1000)[:, None] + np.arange(16)]
    masked = rng.random(rows.shape) < 1 / 6
    np.savez(
        tmp_path / "rows.npz", tokens=np.where(masked, MASK, rows), labels=np.where(masked, rows, -100),
        segments=np.broadcast_to(np.arange(16) // 8, rows.shape),
    )  # fmt: skip
    sets = (
        *TINY, f"train.data={tmp_path / 'rows.npz'}", "train.batch=64", "train.microbatch=64", "wafer.mesh=1x2",
        "train.parallel=tatp = 2", "train.optimizer=adamw(lr = 1e-2)", "train.lr_schedule=warmup(10)",
    )  # fmt: skip
    losses = run(
        artifact_of_file(BERT, Overrides(sets=sets, dtype="f32")), RunOptions(steps=50, threads=1)
    ).losses
    counts = np.bincount(text)[np.bincount(text) > 0] / len(text)
    assert losses[0] == pytest.approx(np.log(258), abs=0.3)
    assert np.mean(losses[-10:]) < 0.3 - (counts * np.log(counts)).sum()
