"""Loss, every gradient and the weights after two steps, against PyTorch's own layers, autograd and optimizer.

The reference of the suite is ours, and could share a misunderstanding with the compiler; PyTorch cannot. It is an
optional extra (its CPU build is some 190 MB to fetch): `pip install -e '.[torch]'`; without it these are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.compile_once import artifact_of_file
from tests.support.verdict import MASKS, trained
from wscc.driver.check import StepResult
from wscc.driver.train import RunOptions, Trainer, initial_parameters
from wscc.frontend.overrides import Overrides
from wscc.host.compare import by_layer, relative_errors
from wscc.ir.array import Kind

# Not imported here: each process that collects tests would take seconds for it.
pytestmark = pytest.mark.skipif(
    find_spec("torch") is None, reason="the optional extra `torch` is not installed"
)

GPT = """
  param wpe : [seq, d] init normal(0.3)
  x = embedding(tokens, wte) + wpe
  repeat 3 as block {
    param g1 : [d] init ones            param b1 : [d] init normal(0.1)
    param wqkv : [d, 3, heads, e] init normal(0.3)
    param bqkv : [3, heads, e] init normal(0.1)
    param wo : [heads, e, d] init normal(0.3)
    param bo : [d] init normal(0.1)
    q, k, v = split(project(layernorm(x, g1, b1), wqkv) + bqkv)
    x = x + project(attention(q, k, v, causal), wo) + bo
    param g2 : [d] init ones            param b2 : [d] init normal(0.1)
    param w1 : [d, f] init normal(0.3)  param c1 : [f] init normal(0.1)
    param w2 : [f, d] init normal(0.3)  param c2 : [d] init normal(0.1)
    x = x + gelu(layernorm(x, g2, b2) @ w1 + c1) @ w2 + c2
  }
  param gf : [d] init ones              param bf : [d] init normal(0.1)
  loss cross_entropy(layernorm(x, gf, bf) @ transpose(wte), labels)"""
LLAMA = """
  x = embedding(tokens, wte)
  repeat 3 as block {
    param g1 : [d] init ones
    param wq : [d, kv, heads / kv, e] init normal(0.3)
    param wk : [d, kv, e] init normal(0.3)
    param wv : [d, kv, e] init normal(0.3)
    param wo : [kv, heads / kv, e, d] init normal(0.3)
    h = rmsnorm(x, g1)
    q = rope(project(h, wq))
    x = x + project(attention(q, rope(project(h, wk)), project(h, wv), causal), wo)
    param g2 : [d] init ones
    param w1 : [d, f] init normal(0.3)
    param w3 : [d, f] init normal(0.3)
    param w2 : [f, d] init normal(0.3)
    h = rmsnorm(x, g2)
    x = x + swiglu(h @ w1, h @ w3) @ w2
  }
  param gf : [d] init ones
  param head : [d, vocab] init normal(0.3)
  loss cross_entropy(rmsnorm(x, gf) @ head, labels)"""
# Both kinds of layer in turn: slopes by distance, then capped scores of near positions (as Gemma 2).
BIASED = """
  x = embedding(tokens, wte) * 4
  repeat 3 as block {
    param g1 : [d] init normal(0.1)     param g2 : [d] init normal(0.1)
    param wq : [d, kv, heads / kv, e] init normal(0.3)
    param wk : [d, kv, e] init normal(0.3)
    param wv : [d, kv, e] init normal(0.3)
    param wo : [kv, heads / kv, e, d] init normal(0.3)
    h = rmsnorm(x, 1 + g1)
    y = attention(project(h, wq), project(h, wk), project(h, wv), causal, alibi)
    x = x + rmsnorm(project(y, wo), 1 + g2)
    param wq2 : [d, heads, e] init normal(0.9)
    param wk2 : [d, heads, e] init normal(0.9)
    param wo2 : [heads, e, d] init normal(0.3)
    y = attention(project(x, wq2), project(x, wk2), project(x, wk2), causal, window = 3, cap = 0.7)
    x = x + project(y, wo2)
    param w1 : [d, f] init normal(0.3)
    param w3 : [d, f] init normal(0.3)
    param w2 : [f, d] init normal(0.3)
    x = x + (gelu(x @ w1) * (x @ w3)) @ w2
  }
  param gf : [d] init ones
  loss cross_entropy(soft_cap(rmsnorm(x, 2 - gf) @ transpose(wte), cap = 1.5), labels)"""
TEXTS = {"gpt": GPT, "llama": LLAMA, "biased": BIASED}

# `eps` keeps gradients that are exactly zero (the keys' biases) from being noise divided by itself.
TEXT = """
wafer w {{ mesh 2 x 4  die {{ peak 1 TFLOP/s, sram 80 MB }}  link {{ bandwidth 1 TB/s, latency 100 ns }} }}
model m(d = 16, f = 24, heads = 4, kv = 2, e = 4, vocab = 20, seq = 8) {{
  input tokens : i32[batch, seq]
  input labels : i32[batch, seq]
  param wte : [vocab, d] init normal(0.3)
  {body}
}}
train m on w {{
  batch 8  microbatch 2
  optimizer {optimizer}  clip 0.5
  dtype compute f64, params f64, grads f64
  recompute selective
  parallel {parallel}
}}
"""
ADAMW = "adamw(lr = 1e-2, beta1 = 0.9, beta2 = 0.95, eps = 1e-5, weight_decay = 0.1)"
GROUPS = (
    'decay matrices  group "block.w*" {{ lr x 0.1{decay} }}  group "wte" {{ lr 0 }}  group "gf" {{ lr 0.3 }}'
)
OPTIMIZERS = {
    "adamw": ADAMW,
    "adamw, groups": f"{ADAMW}  {GROUPS.format(decay=', decay 0.05')}",
    "sgd, groups": f"sgd(lr = 1e-2)  {GROUPS.format(decay='')}",
}
Tensors = dict[str, NDArray[Any]]


def optimizer_of(name: str, weights: dict[str, Any]) -> Any:
    """PyTorch's optimizer, with the groups as a person would write them: by name, decay where `p.dim() >= 2`."""
    import torch

    def rates(n: str) -> dict[str, float]:
        is_weight = n.startswith("block.w")
        lr = 1e-3 if is_weight else {"wte": 0.0, "gf": 0.3}.get(n, 1e-2)
        # As PyTorch stores them, biases and gains have one dimension; here, biases of heads have more.
        return {"lr": lr, "weight_decay": 0.05 if is_weight else 0.1 * (n in ("wte", "wpe", "head"))}

    usual = {"lr": 1e-2, "weight_decay": 0.1}
    groups = [{"params": [w], **(rates(n) if "groups" in name else usual)} for n, w in weights.items()]
    if name.startswith("sgd"):
        return torch.optim.SGD([{**g, "weight_decay": 0.0} for g in groups])
    return torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-5)


def in_torch(
    model: str, optimizer: str, trainer: Trainer, batches: Callable[[int], Mapping[str, NDArray[Any]]]
) -> tuple[list[float], Tensors, Tensors]:
    """Losses, first gradients and last weights of two steps on these batches from the same weights. A third loss is
    that of a third batch with the last weights."""
    import torch  # here, for it is an optional extra

    from tests.support import torch_models

    logits = getattr(torch_models, model)
    start = initial_parameters(trainer.graph, trainer.seed)
    weights = {n: torch.tensor(np.asarray(w), requires_grad=True) for n, w in start.items()}
    update = optimizer_of(optimizer, weights)
    losses: list[float] = []
    grads: Tensors = {}
    for step in range(3):
        batch = {
            n: torch.tensor(t.reshape(-1, t.shape[-1]), dtype=torch.long) for n, t in batches(step).items()
        }
        update.zero_grad()
        out = logits(weights, batch["tokens"])
        loss = torch.nn.functional.cross_entropy(
            out.flatten(0, 1), batch["labels"].flatten(), ignore_index=-100
        )
        losses.append(float(loss.detach()))
        if step == 2:
            break
        loss.backward()
        grads = grads or {n: w.grad.numpy().copy() for n, w in weights.items()}
        torch.nn.utils.clip_grad_norm_(weights.values(), 0.5)
        update.step()
    return losses, grads, {n: w.detach().numpy() for n, w in weights.items()}


@pytest.mark.parametrize(
    ("parallel", "optimizer"),
    [
        ("dp = 2, tp = 2 zero 1", "adamw, groups"),
        ("tatp = 4", "sgd, groups"),
        ("tp = 2, tatp = 2", "adamw"),
        ("pp = 2, dp = 2, sp = 2 zero 3", "adamw, groups"),
    ],
)
@pytest.mark.parametrize("model", TEXTS)
def test_training_equals_pytorch(model: str, parallel: str, optimizer: str, tmp_path: Path) -> None:
    path = tmp_path / "m.wsl"
    path.write_text(TEXT.format(body=TEXTS[model], parallel=parallel, optimizer=OPTIMIZERS[optimizer]))
    trainer, done = trained(artifact_of_file(path), MASKS["uneven"], checked=True)
    losses, grads, weights = in_torch(model, optimizer, trainer, trainer.batches.batch)
    compare(trainer, done, losses[:2], grads, weights)
    if "groups" in optimizer:
        frozen = initial_parameters(trainer.graph, trainer.seed)["wte"]
        assert done[-1].weights["wte"].tobytes() == frozen.tobytes()


def compare(
    trainer: Trainer, done: Sequence[StepResult], losses: list[float], grads: Tensors, weights: Tensors
) -> None:
    extents = {a.name: a.extents for a in trainer.graph.arrays if a.kind is Kind.PARAM}
    assert [step.loss for step in done] == pytest.approx(losses, rel=1e-11)
    for ours, theirs in ((done[0].grads, grads), (done[-1].weights, weights)):
        errors = relative_errors(by_layer(ours, extents), by_layer(theirs, extents))
        assert len(errors) == len(by_layer(theirs, extents)) > 20
        assert max(errors.values()) < 1e-10, max(errors, key=lambda n: errors[n])


def test_arrays_of_a_file_with_ignored_labels_train_as_in_pytorch(tmp_path: Path) -> None:
    """In the first step, one call of the program and one replica have no label that counts. The loss of the rows that
    are held out is PyTorch's, too."""
    rng = np.random.default_rng(5)
    tokens, labels = rng.integers(0, 20, (2, 13, 8))
    labels[rng.random(labels.shape) < 0.4] = -100
    labels[[0, 1, 2, 3, 4, 5]] = -100
    np.savez(tmp_path / "x.npz", tokens=tokens, labels=labels)
    (tmp_path / "m.wsl").write_text(TEXT.format(body=GPT, parallel="dp = 2, tp = 2", optimizer=ADAMW))
    held_out = Overrides(sets=("train.data=x.npz", "train.validation=3 rows"))
    trainer = Trainer(artifact_of_file(tmp_path / "m.wsl", held_out), RunOptions(steps=2, threads=1))
    done = [trainer.result(x) for x in trainer.steps()]
    turns = [range(8), [8, 9, 0, 1, 2, 3, 4, 5], range(10, 13)]
    losses, grads, weights = in_torch(
        "gpt", "adamw", trainer, lambda step: {"tokens": tokens[turns[step]], "labels": labels[turns[step]]}
    )
    compare(trainer, done, losses[:2], grads, weights)
    assert trainer.validation_loss() == pytest.approx(losses[2], rel=1e-11)
