"""Values that segments hand on and no call reads: their gradients are zeros, and the rest is as on one device.

A backward procedure takes the gradient of everything that its forward one hands on. Where no later call read the
value, nothing has written that gradient: it must be zero, and not what another layer left in the same bytes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.compile_once import artifact_of_file
from wscc.driver.compile import compile_file
from wscc.driver.train import RunOptions, run
from wscc.ir.array import Kind
from wscc.passes.differentiate import Differentiate

# `y` is used up in part by the layers of a repeat, by name of what remains unread of it.
BODIES = {
    "the last value of a repeat": "repeat 3 as a { param w : [d, d] init normal(0.3)  x = x + y  y = gelu(y @ w) }",
    "every value but the first": "repeat 1 as a { x = x + gelu(y @ s) }  repeat 1 as b { y = relu(y @ s) + x }",
    "the last of two repeats in a row": """
      repeat 2 as a { x = x + y @ s  y = y / 2 + x }
      repeat 2 as b { x = x - y / 3  y = gelu(y @ s) }""",
    "all but the last, which the next segment reads": """
      repeat 1 as a { x = x + gelu(y @ s) }
      repeat 3 as b { param w : [d, d] init normal(0.3)  y = relu(x @ w)  x = x + gelu(x @ w) }
      x = x + y""",
    "the values in the middle": """
      repeat 2 as a { x = x + y @ s  y = y / 2 + x }
      repeat 2 as b { y = gelu(x @ s)  x = x - gelu(y) }
      repeat 1 as c { x = x + y / 3 }""",
    "a value of another shape, read by nobody": "repeat 1 as a { x = x + y @ s  y = y @ up }",
    "a name of before that the layers only set anew": """
      z = x * 2
      repeat 2 as a { z = gelu(x @ s)  x = x + z + y }
      x = x + z""",
    "the same, of another shape": """
      z = x @ up
      repeat 1 as a { x = x + y + z @ transpose(up) }
      repeat 2 as b { z = gelu(x @ s)  x = x + z }
      x = x + z""",
    "two values of a repeat": "z = y * 2  repeat 2 as a { x = x + y + gelu(z)  y = y @ s  z = z / 2 + y }",
}  # fmt: skip

MODEL = """
wafer w {{ mesh 2 x 4  die {{ peak 1 TFLOP/s, sram 80 MB }}  link {{ bandwidth 1 TB/s, latency 100 ns }} }}
model m(d = 8, seq = 4, vocab = 12) {{
  input tokens : i32[batch, seq]
  input labels : i32[batch, seq]
  param wte : [vocab, d] init normal(0.3)
  param s : [d, d] init normal(0.3)
  param up : [d, 2 * d] init normal(0.3)
  param g : [d] init ones
  x = embedding(tokens, wte)
  y = gelu(x * 0.5)
  {body}
  x = x + gelu(x @ up) @ transpose(up)
  loss cross_entropy(rmsnorm(x @ s, g) @ transpose(wte), labels)
}}
train m on w {{
  batch 8  microbatch {micro}
  optimizer adamw(lr = 1e-2, weight_decay = 0.1)  clip 1.0  lr_schedule warmup(2)
  dtype compute f64, params f64, grads f64
  recompute {recompute}
  parallel {parallel}
}}
"""
SPLITS = ["dp = 2, tp = 2", "tatp = 4"]
# Every body alone, and split in one of the two ways in turn.
CASES = [(body, parallel) for i, body in enumerate(BODIES) for parallel in ("dp = 1", SPLITS[i % 2])]


@pytest.mark.parametrize(("body", "parallel"), CASES)
def test_what_nobody_reads_changes_nothing(body: str, parallel: str, tmp_path: Path) -> None:
    """Two micro-batches or more, so that what an earlier one left shows; checked mode finds unwritten bytes."""
    recompute = {1: "none", 2: "selective", 3: "full"}[len(parallel.split(","))]
    path = tmp_path / "m.wsl"
    path.write_text(MODEL.format(body=BODIES[body], parallel=parallel, micro=2, recompute=recompute))
    check = run(artifact_of_file(path), RunOptions(steps=2), check=True).check
    assert check is not None
    assert check.ok, check


def test_only_what_somebody_does_not_read_is_zeroed(tmp_path: Path) -> None:
    """`x`, all of whose values are read once, keeps two gradients that take turns; `y` has one per value."""
    path = tmp_path / "m.wsl"
    body = "repeat 30 as a { x = x + y  y = gelu(y @ s) }"
    path.write_text(MODEL.format(body=body, parallel="dp = 1", micro=2, recompute="none"))
    compiled = compile_file(str(path))
    arrays = {a.name: a for a in Differentiate().run(compiled.graph).arrays if a.kind is Kind.CARRIED}
    assert arrays["y"].extents == arrays["y.grad"].extents == (31,)
    assert arrays["x.grad"].extents == (2,)
