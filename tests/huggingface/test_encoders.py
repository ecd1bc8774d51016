"""Imported BERT and ViT: loss and gradients are those of the definition, and what is refused is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.huggingface.test_import import program
from tests.huggingface.test_import_refusals import refusal
from tests.huggingface.test_weights import at, imported  # noqa: F401
from tests.oracles import huggingface_encoders as hf
from tests.support.compile_once import programs_once  # noqa: F401
from tests.support.huggingface_configs import BERT, ENCODERS, VIT, encoder_arrays
from wscc.cli import main

pytestmark = pytest.mark.usefixtures("programs_once")
RATE, STEP = 0.5, 2e-6


@pytest.mark.parametrize(("name", "degrees"), [("bert", "sp=2,tp=2"), ("vit", "dp=2,tatp=2")])
def test_the_loss_and_every_gradient_are_those_of_the_definition(
    name: str,
    degrees: str,
    at: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    config, arrays = ENCODERS[name], encoder_arrays(ENCODERS[name])
    imported(config)
    path = Path("model.wsl")
    text = path.read_text().replace("adamw(lr = 3e-4, weight_decay = 0.1)", f"sgd(lr = {RATE})")
    path.write_text(text.replace("clip 1.0", "").replace("lr_schedule warmup(100)", ""))
    before = hf.random_checkpoint(config)
    save_file(before, "model.safetensors")
    np.savez("arrays.npz", **arrays)
    capsys.readouterr()
    options = [
        "--set",
        "train.batch=4",
        "--set",
        "train.microbatch=2",
        "--dtype",
        "f64",
        "--threads",
        "1",
        "--steps",
        "1",
    ]
    files = ["--data", "arrays.npz", "--weights", "model.safetensors", "--save", "out.safetensors"]
    assert main(["run", "model.wsl", "--json", "--parallel", degrees, *options, *files]) == 0
    (loss,) = json.loads(capsys.readouterr().out)["losses"]
    assert loss == pytest.approx(hf.loss(config, before, arrays), rel=1e-10)
    after = load_file("out.safetensors")
    assert after.keys() == before.keys()
    rng = np.random.default_rng(1)
    for tensor, x in before.items():
        direction = rng.choice([-1.0, 1.0], size=x.shape)
        one, other = (hf.loss(config, {**before, tensor: x + s * STEP * direction}, arrays) for s in (1, -1))
        slope = ((x - after[tensor]) * direction).sum() / RATE
        assert slope == pytest.approx((one - other) / (2 * STEP), rel=1e-5, abs=1e-6), tensor


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({**BERT, "is_decoder": True}, "is_decoder"),
        ({**BERT, "position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({**BERT, "hidden_act": "silu"}, "hidden_act"),
        ({**VIT, "patch_size": 5}, "patch_size"),
        ({**VIT, "head_dim": 4}, "head_dim"),
    ],
)
def test_what_an_encoder_cannot_be_is_refused_by_name(config: dict[str, Any], field: str) -> None:
    code, message = refusal(config)
    assert code == "W105"
    assert field in message


def test_classes_are_counted_by_their_names() -> None:
    config = {n: v for n, v in VIT.items() if n != "num_labels"}
    assert "classes = 2)" in program(config)
    assert "classes = 3)" in program({**config, "id2label": {"0": "a", "1": "b", "2": "c"}})
