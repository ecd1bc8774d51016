"""Imported models against the package `transformers`: the loss and every gradient, in f64.

`pip install torch transformers`, then `python -m tests.bench.transformers [NAME ..]`. For each config a random model of
that architecture is saved; wscc imports its config, reads its weights and takes a step of gradient descent, of which
the gradients are what changed, by name and shape of the checkpoint.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.support.huggingface_configs import CONFIGS, ENCODERS, encoder_arrays, whole_images
from wscc.cli import main as wscc

TEXT = "Forty-two wafers."  # one sequence of 16 tokens and the one after
RATE = 2.0**-4
DEGREES = ("dp=2,tp=2", "tatp=2,tp=2", "sp=2", "dp=1")


def compared(config: dict[str, Any], degrees: str) -> tuple[float, float, str]:
    """The relative errors of the loss and of the worst gradient, and the name of that tensor."""
    import torch

    theirs = _model(config)
    arrays = encoder_arrays(config)
    loss = torch.nn.functional.cross_entropy(*_logits_and_labels(config, theirs, arrays))
    loss.backward()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        theirs.save_pretrained("saved")
    before = load_file("saved/model.safetensors")
    with torch.no_grad():  # what the gradients are in the names of a checkpoint, by a save
        for p in theirs.parameters():
            p.sub_(RATE * (p.grad if p.grad is not None else 0))
        theirs.save_pretrained("after")
    expected = load_file("after/model.safetensors")
    ours, after = _run(config, degrees, before, arrays)
    assert after.keys() == expected.keys(), after.keys() ^ expected.keys()
    worst = (0.0, "")
    for name, x in before.items():
        gradient, found = (x - expected[name]) / RATE, (x - after[name]) / RATE
        error = np.abs(gradient - found).max() / max(np.abs(gradient).max(), 1e-3)
        worst = max(worst, (float(error), name))
    return abs(ours / loss.item() - 1), *worst


def _logits_and_labels(config: dict[str, Any], theirs: Any, arrays: dict[str, Any]) -> tuple[Any, Any]:
    """Those of the text, or of the arrays of an encoder."""
    import torch

    if not arrays:
        tokens = torch.tensor([list(TEXT.encode())])
        return theirs(input_ids=tokens[:, :-1]).logits[0], tokens[0, 1:]
    labels = torch.tensor(arrays["labels"]).flatten()
    if config["model_type"] == "vit":
        return theirs(pixel_values=torch.tensor(whole_images(config, arrays["images"]))).logits, labels
    inputs = torch.tensor(arrays["tokens"]), torch.tensor(arrays["segments"])
    return theirs(input_ids=inputs[0], token_type_ids=inputs[1]).logits.flatten(0, 1), labels


def _model(config: dict[str, Any]) -> Any:
    """A random model of the package in which no tensor is zeros or ones."""
    import torch

    # What it computes in f32 whatever the model is in (norms, angles, softmax) is f64 here.
    torch.float = torch.float32 = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    from transformers import (
        AutoConfig,
        AutoModelForCausalLM,
        AutoModelForImageClassification,
        AutoModelForMaskedLM,
    )

    kinds = {n: v for n, v in config.items() if n != "model_type"}
    described = AutoConfig.for_model(config["model_type"], **kinds)
    described._experts_implementation = "eager"
    kinds_of = {"bert": AutoModelForMaskedLM, "vit": AutoModelForImageClassification}
    theirs = kinds_of.get(config["model_type"], AutoModelForCausalLM).from_config(
        described, attn_implementation="eager"
    )
    theirs.to(torch.float64).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for name, p in theirs.named_parameters():
            if "embed_positions" in name:
                p[:2] = 0  # rows for padding, which are never looked up, are saved so
                p[2:] = 0.3 * torch.randn(p[2:].shape)
                continue
            p.copy_(
                0.3 * torch.randn(p.shape)
                + ("norm" in name.lower() or "ln_" in name) * name.endswith("weight")
            )
    return theirs


def _run(
    config: dict[str, Any], degrees: str, before: dict[str, Any], arrays: dict[str, Any]
) -> tuple[float, dict[str, Any]]:
    """The loss of wscc, and the checkpoint after a step of gradient descent."""
    Path("config.json").write_text(json.dumps(config))
    assert wscc(["import", "config.json", "-o", "model.wsl"]) == 0
    text = Path("model.wsl").read_text().replace("adamw(lr = 3e-4, weight_decay = 0.1)", f"sgd(lr = {RATE})")
    Path("model.wsl").write_text(text.replace("clip 1.0", "").replace("lr_schedule warmup(100)", ""))
    Path("text").write_text(TEXT)
    np.savez("arrays.npz", **arrays)
    save_file(before, "weights.safetensors")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = wscc([
            "run", "model.wsl", "--data", "arrays.npz" if arrays else "text", "--json", "--steps", "1",
            "--dtype", "f64", "--parallel", degrees,
            "--set", "train.batch=4", "--set", "train.microbatch=2", "--threads", "1",
            "--weights", "weights.safetensors", "--save", "out.safetensors",
        ])  # fmt: skip
    assert code == 0, out.getvalue()
    return json.loads(out.getvalue())["losses"][0], load_file("out.safetensors")


def main(names: list[str]) -> int:
    """Print the errors of each config; 1 if one is above 1e-9."""
    failed = False
    configs = {**CONFIGS, **ENCODERS}
    for n, name in enumerate(names or configs):
        degrees = DEGREES[n % len(DEGREES)]
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            loss, gradient, tensor = compared(configs[name], degrees)
            os.chdir("/")
        failed |= max(loss, gradient) > 1e-9
        print(f"{name:20} {degrees:12} loss {loss:.1e}  gradients {gradient:.1e} {tensor}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
