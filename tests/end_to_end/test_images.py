"""Models of images: a class token or a mean of positions, labels of a sequence as a whole, floats as data."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.oracles.vit import logits, vit_text
from tests.support.compile_once import artifact_of_file
from tests.support.paths import ROOT
from tests.support.verdict import EQUAL, verdict
from wscc.driver.train import RunOptions, Trainer
from wscc.frontend.overrides import Overrides
from wscc.ir.array import Kind

TOKEN, MEAN = True, False


@pytest.mark.parametrize(
    ("parallel", "token", "options"),
    [
        ("dp = 2, sp = 4", TOKEN, {}),
        ("pp = 2, sp = 2, tp = 2, tatp = 2", TOKEN, {"micro": 1, "batch": 4}),
        ("tp = 2, tatp = 4 zero 3", TOKEN, {"micro": 1, "batch": 4}),
        ("pp = 2, dp = 2, sp = 2 zero 1", MEAN, {}),
        ("sp = 3, tatp = 2", MEAN, {"micro": 1, "batch": 4}),
        ("sp = 4, tp = 2", TOKEN, {"recompute": "full", "patches": 8, "batch": 4}),
    ],
)
def test_a_vision_transformer_equals_one_device(
    parallel: str, token: bool, options: dict[str, int], tmp_path: Path
) -> None:
    """`labels [batch]` lacks the positions that sp splits; 12 patches and a class token are 13 positions, 9 with 8:
    three pads more are too many, and all dies of sp do the same. The first two images have no label."""
    found = verdict(vit_text(parallel, token=token, **options), tmp_path, mask="first half", reported=False)
    assert found.what == EQUAL, found.why


@pytest.mark.parametrize("with_table", [True, False])
def test_positions_that_no_degree_divides_are_split_with_pads(with_table: bool, tmp_path: Path) -> None:
    """Each of 4 dies has 4 of 16 positions, 13 of which are the model's, whether a table of positions is added or they
    go to the layers as they are: only what stands behind the class token is done more than once."""
    text = vit_text("sp = 4")
    if not with_table:
        text = text.replace(") + wpe", ")").replace("param wpe : [patches + 1, d] init normal(0.3)", "")
    found = verdict(text, tmp_path)
    assert found.what == EQUAL, found.why
    assert {n.split("/")[0] for n in found.report["replicated_flops"]} <= {"epilogue.fwd", "epilogue.bwd"}


def test_what_splits_no_positions_is_refused_with_what_would_work(tmp_path: Path) -> None:
    refused = verdict(vit_text("sp = 8"), tmp_path)
    assert refused.what == "W201"
    assert dict(refused.proposals[0].parallel or ())["sp"] == 6


@pytest.mark.skipif(
    find_spec("sklearn") is None, reason="scikit-learn, which has the digits, is not installed"
)
def test_digits_are_told_apart_better_than_by_a_linear_model(tmp_path: Path) -> None:
    """`samples/vit-tiny.wsl` on 8 x 8 pixels by other writers than those of the rows trained on, as docs/images.md has
    it, but on one die: `test_samples` compares the sample's own two with one. The linear model gets the same rows, and
    of penalties 0.1, 1 and 10 the one that suits it best."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    pixels, names = load_digits(return_X_y=True)
    grey = pixels.reshape(-1, 8, 8) / 16
    moves = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)]
    seen = np.concatenate([np.roll(grey[:-360], m, (1, 2)) for m in moves])
    order = np.random.default_rng(0).permutation(len(seen))
    images = np.concatenate([seen[order], grey[-360:]])
    labels = np.concatenate([np.tile(names[:-360], len(moves))[order], names[-360:]])
    patches = images.reshape(-1, 4, 2, 2, 4).transpose(0, 1, 3, 2, 4).reshape(-1, 8, 8).astype(np.float32)
    np.savez(tmp_path / "digits.npz", images=patches, labels=labels)
    data = Overrides(
        sets=(f"train.data={tmp_path / 'digits.npz'}", "train.validation=360 rows", "train.parallel=dp = 1")
    )
    trainer = Trainer(
        artifact_of_file(ROOT / "samples" / "vit-tiny.wsl", data), RunOptions(steps=300, threads=1)
    )
    losses = [*trainer.steps()]
    assert losses[-1] < losses[0] / 5

    scores = logits(trainer.arrays(Kind.PARAM), patches[-360:])
    accuracy = (scores.argmax(-1) == labels[-360:]).mean()
    model = LogisticRegression(C=10, max_iter=300).fit(grey[:-360].reshape(-1, 64), names[:-360])
    linear = model.score(grey[-360:].reshape(-1, 64), names[-360:])
    assert accuracy > linear > 0.85
    # What one device would say of the same weights, worked out without any code of wscc.
    picked = scores[np.arange(360), labels[-360:]]
    entropy = (np.log(np.exp(scores).sum(-1)) - picked).mean()
    assert trainer.validation_loss() == pytest.approx(entropy, rel=1e-4)
