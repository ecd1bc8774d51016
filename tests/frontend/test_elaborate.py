"""Elaboration: shapes are checked where they are written; any chain of segments trains like one device."""

from __future__ import annotations

from pathlib import Path

import pytest

from wscc.diagnostics import CompileError
from wscc.driver.compile import compile_file, load
from wscc.driver.train import RunOptions, run
from wscc.ir.array import Kind
from wscc.ir.step import Loop

HEAD = """
wafer w {
  mesh 2 x 2
  die { peak 1 TFLOP/s, sram 80 MB }
  link { bandwidth 1 TB/s, latency 100 ns }
}
"""
TRAIN = """
train m on w {
  batch 8
  microbatch 2
  optimizer adamw(lr = 1e-2)
  dtype compute f64, params f64, grads f64
  parallel %s
}
"""


def written(tmp_path: Path, model: str, parallel: str = "dp = 2") -> str:
    path = tmp_path / "m.wsl"
    path.write_text(HEAD + model + TRAIN % parallel)
    return str(path)


def model(body: str) -> str:
    return f"""
model m(d = 8, f = 16, vocab = 16, seq = 8) {{
  input tokens : i32[batch, seq]
  input labels : i32[batch, seq]
  param wte : [vocab, d] init normal(0.3)
  param wout : [d, vocab] init normal(0.3)
  x = embedding(tokens, wte)
{body}
  loss cross_entropy(x @ wout, labels)
}}
"""


CHAINS = {
    "straight code": "  param w : [d, d] init normal(0.3)\n  x = gelu(x @ w)",
    "two repeats in a row": """
  repeat 2 as first { param w : [d, d] init normal(0.3)  x = x + gelu(x @ w) }
  repeat 3 as second { param w : [d, d] init normal(0.3)  x = x + relu(x @ w) }""",
    "code between repeats": """
  param g : [d] init ones
  repeat 2 as first { param w : [d, d] init normal(0.3)  x = x + gelu(x @ w) }
  x = rmsnorm(x, g) * 0.5
  repeat 2 as second { param w : [d, d] init normal(0.3)  x = x - x @ w / 3 }""",
    "a value carried past a repeat": """
  y = x
  repeat 2 as layer { param w : [d, d] init normal(0.3)  x = x + gelu(x @ w) }
  x = x + y""",
    "a value that every layer reads": """
  param s : [d, d] init normal(0.3)
  y = x @ s
  repeat 3 as layer { param w : [d, d] init normal(0.3)  x = x + y * (x @ w) }
  x = x / 2 + y""",
    "a parameter that every layer shares": """
  param s : [d, d] init normal(0.3)
  repeat 3 as layer { x = x + gelu(x @ s) }""",
}


@pytest.mark.parametrize("parallel", ["dp = 2", "tp = 2", "tatp = 4"])
@pytest.mark.parametrize("chain", CHAINS)
def test_any_chain_of_segments_trains_like_one_device(chain: str, parallel: str, tmp_path: Path) -> None:
    path = written(tmp_path, model(CHAINS[chain]), parallel)
    outcome = run(compile_file(path).artifact, RunOptions(steps=2), check=True)
    assert outcome.check is not None
    assert outcome.check.ok, outcome.check


def test_a_block_has_parameters_of_its_own_at_each_call(tmp_path: Path) -> None:
    block = """
block mlp(x, d, f = 2 * d) {
  param up : [d, f] init normal(0.3)
  param down : [f, d] init normal(0.3)
  return gelu(x @ up) @ down
}
"""
    body = "  x = x + mlp(x, d)\n  repeat 2 as layer { x = x + mlp(x, d, f = 4 * d) }\n  x = mlp(x, d)"
    path = written(tmp_path, block + model(body))
    params = {a.name: (*a.extents, *a.type.shape) for a in load(path).arrays if a.kind is Kind.PARAM}
    assert sorted(params.values()) == sorted(
        [(16, 8), (8, 16), (8, 16), (16, 8), (2, 8, 32), (2, 32, 8), (8, 16), (16, 8)]
    )
    outcome = run(compile_file(path).artifact, RunOptions(steps=2), check=True)
    assert outcome.check is not None
    assert outcome.check.ok, outcome.check


def test_layers_stay_a_loop_however_many(tmp_path: Path) -> None:
    body = "  repeat 90000 as layer { param w : [d, d] init normal(0.3)  x = x + x @ w }"
    module = load(written(tmp_path, model(body)))
    (chain,) = [s for s in module.step[2:] if isinstance(s, Loop)]
    assert [s.count for s in chain.body if isinstance(s, Loop)] == [90000]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("  param w : [f, d] init normal(1)\n  x = x @ w", ["[4, 8, 8]", "[16, 8]", "is 8", "is 16"]),
        ("  param b : [f] init zeros\n  x = x + b", ["[4, 8, 8]", "[16]"]),
        ("  param w : [d, d] init normal(1)", ["parameter `w` is never used"]),
        ("  repeat 2 as l { param w : [d] init ones  x = x * 2 }", ["parameter `l.w` is never used"]),
        ("  param w : [d, f] init normal(1)\n  repeat 2 as l { x = x @ w }", ["f64[4,8,16]", "f64[4,8,8]"]),
        ("  q, k = split(x)", ["[4, 8, 8]", "is 2"]),
        ("  x = attention(x, x, x)", ["attention"]),
        ("  t2 = tokens\n  repeat 2 as l { x = x + embedding(t2, wte) }", ["`t2` holds integers"]),
        ("  param t : [d] init zeros\n  x = x + t", ["`t` is a reserved name"]),
    ],
)
def test_a_wrong_shape_is_said_with_both_shapes(body: str, words: list[str], tmp_path: Path) -> None:
    with pytest.raises(CompileError) as error:
        load(written(tmp_path, model(body)))
    message = error.value.diagnostics[0].message + error.value.diagnostics[0].help
    for word in words:
        assert word in message
    assert error.value.diagnostics[0].label.span.line > 7
