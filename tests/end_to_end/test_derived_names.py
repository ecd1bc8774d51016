"""Names of the compiler's own arrays (gradients, moments, incomplete sums, compute copies) that a program has given
already: what an array is of another one is never read off its name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.verdict import EQUAL, verdict
from wscc.driver.compile import Compiled, compile_file
from wscc.driver.train import RunOptions, Trainer
from wscc.ir.array import Kind, Role

# `r.mlp` is a parameter, and so are `r.mlp.grad`, `r.mlp.m`, ...; `y` is a value, and `y.grad`, ... parameters.
PROGRAM = """
wafer w { mesh 2 x 2  die { peak 1 TFLOP/s, sram 80 MB }  link { bandwidth 1 TB/s, latency 100 ns } }
block grad(h, d) { param partial : [d, d] init normal(0.3)  return h @ partial }
block mlp(h, d) {
  g = grad(h, d)
  param grad : [d, d] init normal(0.3)
  param m : [d, d] init normal(0.3)
  param v : [d, d] init normal(0.3)
  param f32 : [d, d] init normal(0.3)
  return gelu(h @ grad @ m) @ v @ f32 + g
}
model m(d = 4, seq = 4, vocab = 8) {
  input tokens : i32[batch, seq]
  input labels : i32[batch, seq]
  param wte : [vocab, d] init normal(0.3)
  x = embedding(tokens, wte)
  y = gelu(x)
  repeat 2 as r { x = x + mlp(x, d)  param mlp : [d, d] init normal(0.3)  x = x + (x + y) @ mlp }
  repeat 2 as y {
    param grad : [d, d] init normal(0.3)
    param partial : [d, d] init normal(0.3)
    x = x + gelu(x @ grad) @ partial + y
  }
  loss cross_entropy(x @ transpose(wte), labels)
}
train m on w {
  batch 4  microbatch 1
  optimizer adamw(lr = 1e-2)
  clip 1.0
  dtype compute f32, params f64, grads f64
  parallel pp = 2, dp = 2
}
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    path = tmp_path_factory.mktemp("names") / "m.wsl"
    path.write_text(PROGRAM)
    return compile_file(str(path))


def test_a_program_with_every_derived_name_trains_as_one_device_does(tmp_path: Path) -> None:
    found = verdict(PROGRAM, tmp_path)
    assert found.what == EQUAL, found.why


def test_every_derived_array_is_of_the_array_that_it_says(compiled: Compiled) -> None:
    arrays = {a.name: a for a in compiled.modules["partition"].arrays}
    for name in ("y.grad", "r.mlp.grad", "r.mlp.m", "r.mlp.v", "r.mlp.f32", "r.mlp.grad.partial"):
        assert arrays[name].kind is Kind.PARAM
        assert arrays[name].relation is None
    # Of stages, which have made copies of parameters.
    arrays |= {a.name: a for a in compiled.modules["hoist_casts"].arrays if a.is_a(Role.COPY)}
    relations = {(a.relation.role, a.relation.array): a.name for a in arrays.values() if a.relation}
    assert relations[Role.GRADIENT, "r.mlp"] == "r.mlp.grad.1"
    assert relations[Role.GRADIENT, "y"] == "y.grad.1"
    assert relations[Role.PARTIAL, "r.mlp.grad.1"] == "r.mlp.grad.1.partial"
    assert relations[Role.MOMENT, "r.mlp"] == "r.mlp.v.1"  # the last of the two
    assert relations[Role.COPY, "r.mlp"] == "r.mlp.f32.1"


def test_a_checkpoint_has_the_parameters_and_nothing_else(compiled: Compiled, tmp_path: Path) -> None:
    trainer = Trainer(compiled.artifact, RunOptions(threads=1))
    list(trainer.steps())
    trainer.save(tmp_path / "saved.safetensors")
    again = Trainer(compiled.artifact, RunOptions(threads=1, weights=tmp_path / "saved.safetensors"))
    before, after = trainer.arrays(Kind.PARAM), again.arrays(Kind.PARAM)
    assert before.keys() == after.keys() == {a.name for a in trainer.parameters}
    assert before.keys() == trainer.gradients().keys()
    assert all(np.array_equal(before[n], after[n]) for n in before)
