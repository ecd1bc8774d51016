"""Encoders against PyTorch: loss, every gradient and the weights after two steps, as in `test_torch`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.end_to_end.test_torch import compare
from tests.oracles.vit import vit_text
from tests.support.compile_once import artifact_of_file
from tests.support.paths import ROOT
from tests.support.verdict import MASKS, trained
from wscc.driver.train import Trainer, initial_parameters
from wscc.frontend.overrides import Overrides

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None, reason="the optional extra `torch` is not installed"
)
# AdamW of `vit_text` and of `_BERT`.
_RATES = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-5, "weight_decay": 0.1}
_BERT = (
    "model.layers=2", "model.d=16", "model.heads=4", "model.ffn=24", "model.vocab=30", "model.seq=8", "train.batch=8",
    "train.microbatch=2", "train.optimizer=adamw(lr = 1e-2, eps = 1e-5, weight_decay = 0.1)", "train.decay=all",
    "train.clip=0.5", "train.lr_schedule=warmup(1)",
)  # fmt: skip


def in_torch(
    model: str, trainer: Trainer, smoothing: float = 0.0, z: float = 0.0
) -> tuple[list[float], dict[str, Any], dict[str, Any]]:
    """Losses, first gradients and last weights of two steps on the trainer's batches from its weights."""
    import torch  # here, for it is an optional extra

    from tests.support import torch_models

    start = initial_parameters(trainer.graph, trainer.seed)
    weights = {n: torch.tensor(np.asarray(w), requires_grad=True) for n, w in start.items()}
    update = torch.optim.AdamW(weights.values(), **_RATES)  # type: ignore[arg-type]
    losses, grads = [], {}
    for step in range(2):
        batch = {
            n: torch.tensor(
                x.reshape(-1, *x.shape[2:]), dtype=torch.long if x.dtype.kind == "i" else torch.float64
            )
            for n, x in trainer.batches.batch(step).items()
        }
        update.zero_grad()
        logits = getattr(torch_models, model)(weights, batch)
        labels = batch["labels"].flatten()
        each = torch.nn.functional.cross_entropy(
            logits, labels, ignore_index=-100, label_smoothing=smoothing, reduction="none"
        )
        counts = labels != -100
        each = (each + z * logits.logsumexp(-1) ** 2 * counts) * batch.get("weights", torch.ones(1)).flatten()
        loss = each.sum() / counts.sum()
        loss.backward()
        losses.append(float(loss.detach()))
        grads = grads or {n: w.grad.numpy().copy() for n, w in weights.items() if w.grad is not None}
        torch.nn.utils.clip_grad_norm_(weights.values(), 0.5)
        update.step()
    return losses, grads, {n: w.detach().numpy() for n, w in weights.items()}


@pytest.mark.parametrize(
    ("parallel", "token"),
    [("sp = 4, tatp = 2", True), ("pp = 2, tp = 2, sp = 2", True), ("dp = 2, sp = 2", False)],
)
def test_a_vision_transformer_equals_pytorch(parallel: str, token: bool, tmp_path: Path) -> None:
    path = tmp_path / "m.wsl"
    path.write_text(vit_text(parallel, token=token))
    trainer, done = trained(artifact_of_file(path), MASKS["uneven"], checked=True)
    compare(trainer, done, *in_torch("vit", trainer))


@pytest.mark.parametrize("parallel", ["dp = 2, tp = 2, tatp = 2", "sp = 2, tatp = 2"])
def test_bert_equals_pytorch(parallel: str) -> None:
    sets = (*_BERT, f"train.parallel={parallel}")
    artifact = artifact_of_file(ROOT / "samples" / "bert-base.wsl", Overrides(sets=sets, dtype="f64"))
    trainer, done = trained(artifact, MASKS["uneven"], checked=True)
    compare(trainer, done, *in_torch("bert", trainer))


@pytest.mark.parametrize("parallel", ["dp = 2, tp = 2, sp = 2", "tatp = 2, tp = 4"])
def test_smoothing_z_loss_and_weights_of_labels_equal_pytorch(parallel: str, tmp_path: Path) -> None:
    """10 classes by tp = 4 are padded to 12, which no share of a label and no sum may see."""
    path = tmp_path / "m.wsl"
    text = vit_text(parallel).replace(", labels)", ", labels, weights, smoothing = 0.2, z_loss = 0.05)")
    path.write_text(text.replace("i32[batch]", "i32[batch]  input weights : f32[batch]"))
    trainer, done = trained(artifact_of_file(path), MASKS["uneven"], checked=True)
    compare(trainer, done, *in_torch("vit", trainer, 0.2, 0.05))
