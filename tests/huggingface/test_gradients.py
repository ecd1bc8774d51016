"""The loss and the gradients of an imported model are those of the model's own definition.

A step of plain gradient descent from a checkpoint is saved: what changed in each tensor, over the learning rate, is its
gradient, under the names of Hugging Face. The oracle is the slope of `tests.oracles.huggingface.loss` along one random
direction in each tensor.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.huggingface.test_weights import TOKENS, at, imported, run  # noqa: F401
from tests.oracles import huggingface as hf
from tests.support.compile_once import programs_once  # noqa: F401
from tests.support.huggingface_configs import ROTARY

pytestmark = pytest.mark.usefixtures("programs_once")
RATE, STEP, MOST = 0.5, 2e-6, 41


@pytest.mark.parametrize("name", ROTARY)
def test_the_loss_and_the_gradient_of_every_tensor_are_those_of_the_definition(
    name: str,
    at: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = ROTARY[name]
    imported(config)
    path = Path("model.wsl")
    text = path.read_text().replace("adamw(lr = 3e-4, weight_decay = 0.1)", f"sgd(lr = {RATE})")
    path.write_text(text.replace("clip 1.0", "").replace("lr_schedule warmup(100)", ""))
    before = {n: x.astype(np.float64) for n, x in hf.random_checkpoint(config).items()}
    if name == "opt-350m":  # rows for padding, which are saved as zeros
        before["model.decoder.embed_positions.weight"][:2] = 0
    save_file(before, "model.safetensors")
    degrees = ("sp=2,tp=2", "dp=2,tatp=2")[list(ROTARY).index(name) % 2]
    (loss,) = run(
        capsys, "--weights", "model.safetensors", "--save", "out.safetensors", "--parallel", degrees
    )
    assert loss == pytest.approx(hf.loss(config, before, TOKENS), rel=1e-10)
    after = load_file("out.safetensors")
    assert after.keys() == before.keys()
    rng = np.random.default_rng(1)
    # All tensors of small models; of deep ones, whose layers are alike, as many drawn.
    for tensor in rng.permutation(sorted(before))[:MOST]:
        x = before[tensor]
        direction = rng.choice([-1.0, 1.0], size=x.shape)
        one, other = (
            hf.loss(config, {**before, tensor: x + sign * STEP * direction}, TOKENS) for sign in (1, -1)
        )
        slope = ((x - after[tensor]) * direction).sum() / RATE
        assert slope == pytest.approx((one - other) / (2 * STEP), rel=1e-5, abs=1e-6), tensor
