"""Mixtures of experts: strategies against one device, PyTorch, dense networks and closed forms; refusals."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.oracles.experts import routed
from tests.support.compile_once import artifact_of, artifact_of_file
from tests.support.expert_models import loss_in_torch, text
from tests.support.verdict import EQUAL, verdict
from wscc.driver.compile import load
from wscc.driver.train import RunOptions, Trainer, initial_parameters, run
from wscc.host.data import Batches
from wscc.host.inputs import inputs_of
from wscc.reference.training import evaluate

# Axes of experts beside each other one, with what changes the way of a token: few or too few slots, sharding.
STRATEGIES = (
    "ep = 4",
    "dp = 2, ep = 2, tp = 2  zero 3",
    "ep = 2, sp = 2, tp = 2",
    "ep = 2, tatp = 4",
    "pp = 2, ep = 4",
    "pp = 2, sp = 2, tatp = 2",
)


@pytest.mark.parametrize("parallel", STRATEGIES)
def test_a_mixture_equals_one_device(parallel: str, tmp_path: Path) -> None:
    micro, recompute = (
        (8, "selective") if "tatp = 4" in parallel else (4, "full" if "sp" in parallel else "none")
    )
    found = verdict(text(parallel, micro=micro, recompute=recompute), tmp_path, mask="uneven", reported=False)
    assert found.what == EQUAL, found.why


@pytest.mark.parametrize("parallel", ["ep = 2, sp = 2", "dp = 2, ep = 2, tp = 2"])
def test_dropout_is_the_same_wherever_experts_are(parallel: str, tmp_path: Path) -> None:
    dropped = text(parallel).replace("h = rmsnorm(x, g)", "h = dropout(rmsnorm(x, g), rate = 0.2)")
    found = verdict(dropped, tmp_path, mask="uneven", reported=False)
    assert found.what == EQUAL, found.why


@pytest.mark.parametrize("capacity", ["", ", capacity = 0.3", ", capacity = 2"])
def test_slots_may_be_few_or_enough_for_all(capacity: str, tmp_path: Path) -> None:
    found = verdict(text("ep = 2", capacity=capacity, flag="", micro=2), tmp_path, reported=False)
    assert found.what == EQUAL, found.why


@pytest.mark.parametrize(
    ("parallel", "says"),
    [
        ("ep = 8", "`ep = 8` does not divide the 4 experts"),
        ("dp = 2, ep = 4", "`ep = 4` does not divide the batch of 2 per die"),
    ],
)
def test_a_degree_that_splits_no_experts_is_refused(parallel: str, says: str, tmp_path: Path) -> None:
    found = verdict(text(parallel, micro=8 if "8" in parallel else 2), tmp_path)
    assert (found.what, says in found.why, len(found.proposals) > 0) == ("W201", True, True), found.why


def test_a_model_without_experts_has_nothing_for_the_axis(tmp_path: Path) -> None:
    dense = text("ep = 2").split("    h = rmsnorm")
    body, end = dense[0], dense[1].split("  }\n", 1)[1]
    for name in ("wr", "wgate", "wup", "wdown"):
        body = "\n".join(line for line in body.split("\n") if f"param {name} " not in line)
    found = verdict(f"{body}    x = rmsnorm(x, g)\n  }}\n{end}", tmp_path)
    assert (found.what, "the model has none" in found.why) == ("W201", True), found.why


def bytes_moved(capacity: str, degree: int, folder: Path) -> int:
    path = folder / "m.wsl"
    path.write_text(text(f"ep = {degree}", capacity=capacity, mesh=f"1 x {degree}"))
    trainer = Trainer(artifact_of_file(path), RunOptions(steps=1, threads=1))
    list(trainer.steps())
    return sum(trainer.machine.traffic().values())


def test_tokens_cross_to_their_experts_and_back_twice_a_layer(tmp_path: Path) -> None:
    """On two neighbours: forward there and back, and so the gradients, (ep - 1) / ep of [experts, batch, slots, d];
    what is saved is not sent again. All other messages are the same whatever the slots."""
    more, fewer = (bytes_moved(f", capacity = {c}", 2, tmp_path) for c in ("1", "0.5"))
    layers, calls, experts, batch, slots, d, size = 2, 2, 4, 4, 4 - 2, 16, 8
    assert more - fewer == 4 * layers * calls * experts * batch * slots * d * size // 2


def test_equal_experts_with_gates_that_sum_to_one_are_one_dense_network(tmp_path: Path) -> None:
    path = tmp_path / "m.wsl"
    path.write_text(text("dp = 1", capacity=""))
    moe = load(str(path))
    dense = text("dp = 1", capacity="").replace("experts, d, f]", "d, f]").replace("experts, f, d]", "f, d]")
    start, end = dense.index("    y = dispatch"), dense.index("    loss 0.1")
    path.write_text(f"{dense[:start]}    x = x + swiglu(h @ wgate, h @ wup) @ wdown\n{dense[end:]}")
    weights = initial_parameters(load(str(path)), 3)
    equal = {
        n: np.repeat(w[:, None], 4, 1) if n in ("block.wgate", "block.wup", "block.wdown") else w
        for n, w in weights.items()
    }
    results = []
    for graph, start_weights in ((load(str(path)), weights), (moe, equal)):
        trainer = Trainer(artifact_of(graph), RunOptions(steps=1, threads=1, weights=start_weights))
        results.append((list(trainer.steps()), trainer.gradients()))
    (loss, grads), (got_loss, got) = results
    assert got_loss == pytest.approx(loss, rel=1e-13)
    for name, grad in grads.items():
        mine = got[name].sum(1) if name in ("block.wgate", "block.wup", "block.wdown") else got[name]
        assert np.allclose(mine, grad, rtol=1e-10, atol=1e-14), name


def test_what_is_dropped_depends_on_no_later_token(tmp_path: Path) -> None:
    """A causal model stays causal: other tokens from position 4 on change nothing before it."""
    path = tmp_path / "m.wsl"
    whole = text("dp = 1", capacity=", capacity = 0.5", micro=8).split("\n")
    # But for the router's losses, which see all tokens.
    path.write_text("\n".join(line for line in whole if "loss 0.1" not in line))
    graph = load(str(path))
    batch = Batches(inputs_of(graph), 0).batch(0)
    batch["labels"][..., 4:] = -100
    other = {n: t.copy() for n, t in batch.items()}
    other["tokens"][..., 4:] = (other["tokens"][..., 4:] + 7) % 20
    losses = [evaluate(graph, initial_parameters(graph, 0), b).loss for b in (batch, other)]
    assert losses[0] == losses[1]


def test_the_load_of_experts_is_that_of_the_choices_whatever_the_strategy(tmp_path: Path) -> None:
    """Counted choice by choice from the weights and tokens of the first layer, whose input is the embedding alone."""
    path = tmp_path / "m.wsl"
    outcomes = []
    for parallel in ("dp = 1", "pp = 2, ep = 2, tp = 2"):
        path.write_text(text(parallel, capacity=", capacity = 0.8"))
        outcomes.append(run(artifact_of_file(path), RunOptions(steps=2, threads=1)).experts)
    for one, other in zip(*outcomes, strict=True):
        assert (one.router, one.step) == (other.router, other.step)
        assert np.array_equal(one.chosen, other.chosen)
        assert np.array_equal(one.dropped, other.dropped)
    graph = load(str(path))
    weights, batch = initial_parameters(graph, 0), Batches(inputs_of(graph), 0).batch(0)
    h = weights["wte"][batch["tokens"].reshape(-1, 8)]
    logits = h / np.sqrt((h**2).mean(-1, keepdims=True) + 1e-5) @ weights["block.wr"][0]
    _, slots, chosen, dropped = routed(logits, 2, 4, True)
    assert slots.min() < 0
    assert outcomes[0][0].chosen[0].tolist() == chosen.tolist()
    assert outcomes[0][0].dropped[0].tolist() == dropped.tolist()
    assert outcomes[0][0].chosen.sum() == 2 * 8 * 8 * 2


@pytest.mark.skipif(find_spec("torch") is None, reason="the optional extra `torch` is not installed")
@pytest.mark.parametrize("renormalise", [True, False])
def test_loss_and_gradients_are_those_of_pytorch(renormalise: bool, tmp_path: Path) -> None:
    import torch

    path = tmp_path / "m.wsl"
    path.write_text(text("ep = 2, tp = 2", flag=", renormalise" * renormalise))
    trainer = Trainer(artifact_of_file(path), RunOptions(steps=1, threads=1))
    (loss,) = trainer.steps()
    weights: dict[str, Any] = {
        n: torch.tensor(np.asarray(w), requires_grad=True)
        for n, w in initial_parameters(trainer.graph, trainer.seed).items()
    }
    batch = {
        n: torch.tensor(t.reshape(-1, t.shape[-1]), dtype=torch.long)
        for n, t in trainer.batches.batch(0).items()
    }
    want = loss_in_torch(weights, batch["tokens"], batch["labels"], 4, renormalise=renormalise)
    want.backward()
    assert loss == pytest.approx(float(want.detach()), rel=1e-12)
    grads = trainer.gradients()
    assert grads.keys() == weights.keys()
    for name, grad in grads.items():
        assert np.allclose(grad, weights[name].grad.numpy(), rtol=1e-9, atol=1e-12), name
