"""Errors of shapes that do not fit name the place, the operands as written, and shapes that would fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.paths import SAMPLES
from wscc.diagnostics import CompileError, Diagnostic
from wscc.driver.compile import compile_file, load

TEXT = """wafer w {
  mesh 1 x 1
  die { peak 1 TFLOP/s, sram 80 MB }
  link { bandwidth 1 TB/s, latency 100 ns }
}
block mlp(h, d, f) {
  param up : [d, f] init ones
  param down : [f, d] init ones
  return gelu(h @ up) @ down
}
model m(d = 8, f = 16, heads = 4, kv = 2, vocab = 10, seq = 6) {
  input tokens : i32[batch, seq]
  input labels : i32[batch, seq]
  param wte : [vocab, d] init ones
  param g : [d] init ones
  param gg : [d, d] init ones
  param wide : [d, f] init ones
  param sq : [f, f] init ones
  param wq : [d, heads, d / heads] init ones
  param wk : [d, kv, d / heads] init ones
  x = embedding(tokens, wte)
  q = project(x, wq)
  k = project(x, wk)
  %s
  loss cross_entropy(x @ transpose(wte), labels)
}
train m on w { batch 2  microbatch 2  optimizer sgd(lr = 1)  parallel dp = 1 }
"""


def mistake(tmp_path: Path, line: str, text: str = TEXT) -> tuple[Diagnostic, str]:
    """The one diagnostic, and the text that its caret marks."""
    path = tmp_path / "m.wsl"
    path.write_text(text % line)
    with pytest.raises(CompileError) as caught:
        compile_file(str(path))
    (d,) = caught.value.diagnostics
    assert d.label.span.source is not None
    return d, d.label.span.source.text[d.label.span.start : d.label.span.end]


@pytest.mark.parametrize(
    ("line", "marked", "message", "help"),
    [
        (
            "x = x + gelu(x @ wide) @ wide",
            "gelu(x @ wide) @ wide",
            "`@` of `gelu(x @ wide)` [2, 6, 16] and `wide` [8, 16]: dimension 2 of the first is 16, dimension 0 of",
            "`gelu(x @ wide) @ transpose(wide)` is refused by W103, parameter `g` is never used",
        ),
        ("x = x @ transpose(wide)", "x @ transpose(wide)", "dimension 1 of the second is 16",
         "no change near it compiles: `x @ wide` is refused by W101"),
        ("x = x @ g", "x @ g", "needs a matrix on its right, not [8]", "`g` is [8]"),
        ("x = x + x @ wide", "x + x @ wide", "`+` of [2, 6, 8] and [2, 6, 16]", "`x @ wide` is [2, 6, 16]"),
        ("x = rmsnorm(x @ wide, g)", "rmsnorm(x @ wide, g)", "`rmsnorm` of `x @ wide` [2, 6, 16] and `g` [8]", ""),
        ("x = rmsnorm(x, gg)", "rmsnorm(x, gg)", "`gg` [8, 8] has 2", "`gg` is [8, 8]"),
        ("x = swiglu(x @ wide, x)", "swiglu(x @ wide, x)", "`x @ wide` [2, 6, 16] and `x` [2, 6, 8]", ""),
        ("y = attention(q, k, k, causal)", "attention(q, k, k, causal)", "`q` [2, 6, 4, 2] and `k` [2, 6, 2, 2]",
         "where 2 query heads share one of k and v, q has a dimension for them: [2, 6, 2, 2, 2]"),
        ("y = attention(x, k, k)", "attention(x, k, k)", "takes q", "`x` is [2, 6, 8]"),
        ("y = attention(q, q, q, causal, window = 2.5)", "2.5", "(0: all positions), not 2.5", "window = 2"),
        ("y = attention(q, q, q, causal, window = 1e30)", "1e30", "`window`", "window = 2"),
        ("y = attention(q, q, q, cap = -3)", "-3", "0 (none) or more, not -3", "cap = 3"),
        ("x = soft_cap(x, cap = 0)", "0", "`cap` above 0, not 0", "cap = 30"),
        ("a, b, c = split(q)", "split(q)", "`split` into 3: no inner dimension of [2, 6, 4, 2] is 3", ""),
        ("x = project(x, sq)", "project(x, sq)", "[2, 6, 8] does not end as [16, 16] begins", "`sq` is [16, 16]"),
        ("x = rope(gg)", "rope(gg)", "needs [batch, seq, ..., e], not [8, 8]", ""),
        ("x = rope(x, width = 3)", "3", "even number up to the 8 elements of a head, not 3", "width = 2"),
        ("x = rope(x, width = 10)", "10", "even number up to the 8 elements of a head, not 10", "width = 8"),
        ("x = dropout(x, rate = 1.5)", "1.5", "`rate` < 1, not 1.5", "`rate = 0.1`"),
        ("x = dropout(g, rate = 0.5)", "dropout(g, rate = 0.5)", "takes [batch, ...], not [8]", "`g` is [8]"),
        ("x = rope(x, factor = 0)", "rope(x, factor = 0)", "`factor` above 0", ""),
        ("x = rope(x, factor = 2, low = 4)", "rope(x, factor = 2, low = 4)", "`low` < `high`", ""),
        ("x = concat(x, sq)", "concat(x, sq)", "`concat` of `x` [2, 6, 8] and `sq` [16, 16]", ""),
        ("x = concat(sq, sq)", "concat(sq, sq)", "`concat` joins [batch, s, d], or [s, d] for all", ""),
        ("x = concat(q, gg)", "concat(q, gg)", "not [2, 6, 4, 2] and [8, 8]", ""),
        ("y = first(g)", "first(g)", "has none", ""),
        ("y = mean(g)", "mean(g)", "has none", ""),
        ("x = embedding(wte, tokens)", "wte", "`wte` holds f32, and integers are wanted", "embedding(ids, table)"),
        ("x = x * tokens", "tokens", "`tokens` holds integers", "embedding(ids, table)"),
        ("x = gelu(tokens)", "tokens", "`tokens` holds integers", ""),
        ("x = -tokens", "tokens", "`tokens` holds integers", ""),
    ],
)  # fmt: skip
def test_operands_are_named_as_they_are_written(
    line: str, marked: str, message: str, help: str, tmp_path: Path
) -> None:
    d, source = mistake(tmp_path, line)
    assert d.code == "W101"
    assert source == marked
    assert message in d.message
    assert help in d.help


@pytest.mark.parametrize(
    ("loss", "code", "message"),
    [
        ("labels, x @ transpose(wte)", "W101", "`labels` holds integers"),
        ("x @ transpose(wte), g", "W101", "`g` holds f32"),
        ("x @ transpose(wte), tokens", "W103", "`tokens` is not the input `labels`"),
    ],
)
def test_the_loss_takes_logits_and_the_labels(loss: str, code: str, message: str, tmp_path: Path) -> None:
    text = TEXT.replace("x @ transpose(wte), labels", loss)
    d, _ = mistake(tmp_path, "", text)
    assert d.code == code
    assert message in d.message


def test_a_mistake_inside_a_block_shows_the_call(tmp_path: Path) -> None:
    d, marked = mistake(tmp_path, "x = x + mlp(x, d / 2, f)")
    assert marked == "h @ up"
    assert "`h` [2, 6, 8] and `up` [4, 16]" in d.message
    (call,) = d.others
    assert call.text == "in this call"
    assert call.span.source is not None
    assert call.span.source.text[call.span.start : call.span.end] == "mlp(x, d / 2, f)"


def test_project_never_contracts_batch_or_sequence(tmp_path: Path) -> None:
    """Where `seq` equals `d`, a square weight begins with both of the last dimensions."""
    path = tmp_path / "m.wsl"
    statements = "x = rmsnorm(x, g) + project(x, gg)\n  x = x + gelu(x @ wide) @ sq @ transpose(wide)\n  "
    statements += "q = attention(q, q, q)  k = attention(k, k, k)  x = x + project(q, wo) + project(k, wo2)"
    weights = "param wo : [heads, d / heads, d] init ones\n  param wo2 : [kv, d / heads, d] init ones\n  "
    text = TEXT.replace("seq = 6", "seq = 8").replace("param g :", f"{weights}param g :")
    path.write_text(text % statements)
    module = load(str(path))
    shapes = [op.results[0].type.shape for p in module.procedures for op in p.body if op.kind == "matmul"]
    assert (2, 8, 8) in shapes
    assert all(shape[:2] == (2, 8) for shape in shapes)


@pytest.mark.parametrize("parallel", ["pp = 3", "dp = 3", "tatp = 2"])
def test_what_a_pass_refuses_points_at_the_strategy(tmp_path: Path, parallel: str) -> None:
    """Too few layers, a weight that cannot be cut, memory: each shows the line with the degrees."""
    text = (SAMPLES / "gpt-tiny.wsl").read_text()
    text = text.replace("parallel dp = 2, tatp = 2, tp = 2", f"zero 3 parallel {parallel}").replace(
        "layers = 4", "layers = 2"
    )
    text = text.replace("batch 16", "batch 12").replace("mesh 2 x 4", "mesh 2 x 3")
    text = text.replace("sram 80 MB, hbm 72 GB at 1 TB/s", "sram 100 kB")
    path = tmp_path / "m.wsl"
    path.write_text(text)
    (tmp_path / "tiny-text.txt").write_bytes(b"x" * 4000)
    with pytest.raises(CompileError) as refused:
        compile_file(str(path))
    span = refused.value.diagnostics[0].label.span
    assert text[span.start : span.end].startswith(f"parallel {parallel}")
