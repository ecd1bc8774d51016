"""Programs in f32 are as near to f64 as one device in f32 is, where numbers are large: attention whose logits are
2,000 or 20,000, whole or streamed and merged, and gradients whose squares overflow.

How near that is depends on the weights, and by luck on their last bits: the worst of a few devices counts, that have
the weights and these with every element one rounding up or down.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from tests.support.compile_once import artifact_of_file
from wscc.backends.artifact.files import Artifact
from wscc.driver.train import RunOptions, Tensors, Trainer, initial_parameters
from wscc.host.compare import by_layer, relative_errors
from wscc.ir.array import Kind
from wscc.ir.types import DType
from wscc.reference.training import evaluate

DEFAULTS = {"flag": ", causal", "group": 1, "recompute": "none", "tile": 128, "compute": "f32"}
ULP = np.float32(2**-24)
TEXT = """
wafer w {{ mesh 2 x 4  die {{ peak 1 TFLOP/s, sram 80 MB, tile {tile} }}
  link {{ bandwidth 1 TB/s, latency 100 ns }} }}
model m(d = 8, kv = 2, group = {group}, e = 6, vocab = 6, seq = 8) {{
  input tokens : i32[batch, seq]
  input labels : i32[batch, seq]
  param wte : [vocab, d] init normal(0.3)
  param wpe : [seq, d] init normal(0.3)
  x = embedding(tokens, wte) + wpe
  repeat 2 as block {{
    param g : [d] init ones
    param wq : [d, kv, group, e] init normal(1)
    param wk : [d, kv, e] init normal(1)
    param wv : [d, kv, e] init normal(0.3)
    param wo : [kv, group, e, d] init normal(0.3)
    h = rmsnorm(x, g)
    x = x + project(attention(project(h, wq), project(h, wk), project(h, wv){flag}), wo)
  }}
  loss cross_entropy(x @ transpose(wte), labels)
}}
train m on w {{
  batch 2  microbatch 1
  optimizer sgd(lr = 1e-3)
  dtype compute {compute}, params f32, grads f32
  recompute {recompute}
  parallel {parallel}
}}
"""


@cache
def program(parallel: str, **choices: object) -> Artifact:
    """The artifact of `TEXT`; choices of `DEFAULTS` that are not given stay."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.wsl"
        path.write_text(TEXT.format(parallel=parallel, **{**DEFAULTS, **choices}))
        return artifact_of_file(path)


def errors(artifact: Artifact, weights: Tensors, seed: int) -> tuple[dict[str, float], dict[str, float]]:
    """By tensor, how far the gradients of the program are from f64, and those of the worst of four single devices."""
    trainer = Trainer(artifact, RunOptions(threads=1, seed=seed, weights=weights))
    next(iter(trainer.steps()))
    batch, graph = trainer.batches.batch(0), trainer.graph
    extents = {a.name: a.extents for a in graph.arrays if a.kind is Kind.PARAM}
    want = by_layer(evaluate(graph, weights, batch, DType.F64).grads, extents)

    def distance(grads: Tensors) -> dict[str, float]:
        return relative_errors(by_layer(grads, extents), want)

    rng = np.random.default_rng(seed)
    singles = [distance(evaluate(graph, weights, batch).grads)]
    for _ in range(3):
        moved = {
            n: w + ULP * np.maximum(abs(w), 0.3) * rng.choice([-1, 1], w.shape) for n, w in weights.items()
        }
        singles.append(distance(evaluate(graph, moved, batch).grads))
    return distance(trainer.gradients()), {n: max(s[n] for s in singles) for n in want}


def attention_weights(artifact: Artifact, seed: int, factor: float, *, tied: bool) -> Tensors:
    """Fresh weights with queries and keys `factor` times as large; `tied`: equal tokens have equal keys, wherever they
    stand, so that several dies hold a row's maximum."""
    weights = initial_parameters(Trainer(artifact, RunOptions(threads=1)).graph, seed)
    weights["block.wq"] *= factor
    weights["block.wk"] *= factor
    if tied:
        weights["wpe"][...] = 0
    return weights


# Scores of equal keys on several dies, and parts that are merged, have roundings of their own.
WHOLE, MERGED = 3, 4
STRATEGIES = {
    "one die": ("dp = 1", {}, WHOLE),
    "heads split, no mask": ("tp = 2", {"flag": ""}, WHOLE),
    "weights and keys in rings": ("tatp = 4", {}, MERGED),
    "zigzag ring, grouped": ("sp = 2", {"tile": 1, "group": 2}, MERGED),
    "two rings, no mask, grouped": ("sp = 2, tatp = 2", {"flag": "", "group": 2}, MERGED),
    "stages, recomputed": ("pp = 2, sp = 2", {"recompute": "full"}, MERGED),
    "one die, bf16": ("dp = 1", {"compute": "bf16"}, WHOLE),
    "zigzag ring, bf16": ("sp = 2", {"tile": 1, "compute": "bf16"}, WHOLE),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_attention_at_large_logits_is_as_near_to_f64_as_one_device(name: str) -> None:
    """Logits up to 3,000 (factor 10) and 30,000, with ties on several dies in f32; row 0 of a causal mask sees itself
    alone. bf16 moves such logits by 100, and every order of adding gives another model: its ties mean nothing."""
    parallel, choices, limit = STRATEGIES[name]
    artifact = program(parallel, **choices)
    for seed, factor, tied in ((0, 10, False), (1, 10, "compute" not in choices), (2, 30, False)):
        assert_near(artifact, seed, factor, limit, tied=tied)


# Of 60 seeds with `SIZES` in turn, those where a row sum taken as <dO, O> left gradients 8 to 33 times as far off as
# those of one device: nearly all weight of a row lies on one chunk of keys and some on others.
SIZES = ((10, False), (10, True), (30, False))
HARD = {
    "weights and keys in rings": (37,),
    "zigzag ring, grouped": (7, 30, 50),
    "two rings, no mask, grouped": (21, 36, 50, 51),
}


@pytest.mark.parametrize("name", HARD)
def test_rows_with_weight_on_several_dies_sum_what_cancels(name: str) -> None:
    """One key of another die with 1e-6 to 1e-2 of the weight of a row: its slope is a difference of nearly equals."""
    parallel, choices, limit = STRATEGIES[name]
    artifact = program(parallel, **choices)
    for seed in HARD[name]:
        factor, tied = SIZES[seed % len(SIZES)]
        assert_near(artifact, seed, factor, limit, tied=tied)


def assert_near(artifact: Artifact, seed: int, factor: float, limit: float, *, tied: bool) -> None:
    """Assert that no gradient is more than `limit` times as far from f64 as that of the worst single device."""
    got, single = errors(artifact, attention_weights(artifact, seed, factor, tied=tied), seed)
    worst = max(got, key=lambda n: got[n] / max(single[n], 1e-6))
    assert got[worst] <= limit * max(single[worst], 1e-6), (seed, worst, got[worst], single[worst])


CLIPPED = """
wafer w { mesh 1 x 4  die { peak 1 TFLOP/s, sram 80 MB }  link { bandwidth 1 TB/s, latency 100 ns } }
model m(d = 8, vocab = 16, seq = 4) {
  input tokens : i32[batch, seq]
  input labels : i32[batch, seq]
  param wte : [vocab, d] init normal(1e25)
  param head : [d, vocab] init normal(1e-25)
  loss cross_entropy(embedding(tokens, wte) @ head, labels)
}
train m on w {
  batch 4  microbatch 1
  optimizer sgd(lr = 1e-25)  clip 3.0
  dtype compute f32, params f32, grads f32
  parallel dp = 2, tp = 2
}
"""


def test_gradients_whose_squares_overflow_are_clipped(tmp_path: Path) -> None:
    """Those of `head` are 1e25: the step is the learning rate times the norm that `clip` allows, and not 0."""
    path = tmp_path / "m.wsl"
    path.write_text(CLIPPED)
    trainer = Trainer(artifact_of_file(path), RunOptions(threads=1))
    before = initial_parameters(trainer.graph, trainer.seed)["head"]
    next(iter(trainer.steps()))
    moved = trainer.arrays(Kind.PARAM)["head"].astype(np.float64) - before
    assert np.linalg.norm(moved) == pytest.approx(3e-25, rel=1e-5, abs=0)
