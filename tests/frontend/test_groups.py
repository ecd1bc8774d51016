"""Parameter groups: which parameters decay, by how much, and at what rate they learn; contradictions are refused."""

from __future__ import annotations

import re

import pytest

from tests.support.frontend_help import errors, run
from tests.support.python_models import tray
from wscc import nn
from wscc.api.names import Model, Train, adamw
from wscc.diagnostics import Code, CompileError
from wscc.frontend.elaborate import elaborate
from wscc.ir.array import Kind
from wscc.ir.train import Rates

WAFER = (
    "wafer w { mesh 1 x 1  die { peak 1 TFLOP/s, sram 80 MB }  link { bandwidth 1 TB/s, latency 100 ns } }"
)
# Biases and gains of several dimensions, a table of positions, products with parameters on both sides, a tied table.
MODEL = """
model m(d = 8, kv = 2, g = 2, e = 2, vocab = 16, seq = 4, rank = 2) {
  input tokens : i32[batch, seq]
  input labels : i32[batch, seq]
  param wte : [vocab, d] init normal(0.3)
  param positions : [seq, d] init normal(0.3)
  param forced : [d] init ones decay on
  x = embedding(tokens, wte) + positions
  repeat 2 as layer {
    param gain : [d] init ones
    param wq : [d, kv, g, e] init normal(0.3)
    param bq : [kv, g, e] init zeros
    param wk : [d, kv, e] init normal(0.3)
    param bk : [kv, e] init zeros
    param heads : [kv, g, e] init ones
    param wo : [kv, g, e, d] init normal(0.3) decay off
    param low : [d, rank] init normal(0.3)
    param high : [rank, d] init normal(0.3)
    param base : [d, d] init normal(0.3)
    h = rmsnorm(x * forced, gain)
    q = (project(h, wq) + bq) * heads
    k = project(h, wk) + bk
    x = x + project(attention(q, k, k, causal), wo) + h @ (base + low @ high * 2)
  }
  loss cross_entropy(x @ transpose(wte), labels)
}"""
TRAIN = "train m on w {{ batch 2  microbatch 1  parallel dp = 1  optimizer {} }}"
ADAMW = "adamw(lr = 1e-3, weight_decay = 0.1)"


def rates(training: str, model: str = MODEL) -> dict[str, Rates]:
    module = elaborate(run(f"{WAFER}{model}{TRAIN.format(training)}"))
    return {a.name: module.rates_of(a) for a in module.arrays if a.kind is Kind.PARAM}


def refused(training: str) -> tuple[Code, str, str]:
    with pytest.raises(CompileError) as caught:
        rates(training)
    (d,) = caught.value.diagnostics
    assert d.label.span.source is not None
    return d.code, d.message, d.help


def test_matrices_decay_by_their_use_and_not_by_their_rank() -> None:
    decaying = {n for n, r in rates(f"{ADAMW}  decay matrices").items() if r.weight_decay}
    weights = {"layer.wq", "layer.wk", "layer.low", "layer.high", "layer.base"}
    assert decaying == {"wte", "positions", "forced", *weights}
    everything = rates(ADAMW)
    assert {n for n, r in everything.items() if not r.weight_decay} == {"layer.wo"}
    assert {r.lr for r in everything.values()} == {1e-3}


def test_a_group_has_rates_of_its_own_and_says_how_much_what_decays_does() -> None:
    found = rates(
        f'{ADAMW}  decay matrices  group "layer.w?" {{ lr x 0.1, decay 0.02 }}  group "layer.b*" {{ lr 0 }}'
        '  group "w*" { decay x 0.5 }  group "positions" { lr 5e-4, decay off }'
    )
    assert found["layer.wq"] == found["layer.wk"] == Rates(1e-4, 0.02)
    assert found["layer.wo"] == Rates(1e-4, 0.0)
    assert found["layer.bq"] == found["layer.bk"] == Rates(0.0, 0.0)
    assert found["layer.base"] == Rates(0.0, 0.1)
    assert found["wte"] == Rates(1e-3, 0.05)
    assert found["positions"] == Rates(5e-4, 0.0)
    assert found["layer.gain"] == Rates(1e-3, 0.0)


@pytest.mark.parametrize(
    ("training", "code", "words", "help"),
    [
        (f'{ADAMW} group "layer.wz" {{ lr 0 }}', Code.UNKNOWN_NAME, "no parameter fits `layer.wz`", "first: layer.w"),
        (f'{ADAMW} group "[a-z]*" {{ lr 0 }}', Code.UNKNOWN_NAME, "no parameter fits `[a-z]*`", ""),
        (
            f'{ADAMW} group "w*" {{ lr 0 }} group "*e" {{ decay 0 }}',
            Code.DUPLICATE, "`wte` is in two groups, `w*` and `*e`", "one group at most",
        ),
        (
            f'{ADAMW} decay matrices group "*.b?" {{ decay 0.1 }}',
            Code.NUMBER, "none of the parameters that fit `*.b?` decays", "`decay on`",
        ),
        (f'{ADAMW} group "wte" {{ lr -1 }}', Code.SYNTAX, "", ""),
        (f'{ADAMW} group "wte" {{ lr x 1e10 }}', Code.NUMBER, "`lr` must be from 0 up to", ""),
        (f'{ADAMW} group "wte" {{ lr off }}', Code.CHOICE, "`off` is no `lr`", "`lr x 0.1`"),
        (f'{ADAMW} group "wte" {{ rate 1 }}', Code.UNKNOWN_KEY, "a group has no number `rate`", ""),
        (f'{ADAMW} group "wte" {{ lr 1, lr 2 }}', Code.DUPLICATE, "number `lr` is given twice", ""),
        ('sgd(lr = 1) group "wte" { decay 0.1 }', Code.UNKNOWN_KEY, "`sgd` has no weight decay", ""),
        (f"{ADAMW} decay matrixes", Code.CHOICE, "unknown rule of decay `matrixes`", "`matrices`"),
        ("adamw(lr = 1e-3, eps = 0)", Code.NUMBER, "`eps` must be above 0", ""),
    ],
)  # fmt: skip
def test_a_mistake_in_a_group_is_refused_with_what_would_do(
    training: str, code: Code, words: str, help: str
) -> None:
    found = refused(training)
    assert found[0] is code
    assert words in found[1]
    assert help in found[2]


def test_decay_is_a_name_where_no_parameter_says_it() -> None:
    text = re.sub(r"\bh\b", "decay", MODEL)
    assert "init normal(0.3)\n    decay = rmsnorm" in text
    assert rates(ADAMW, text) == rates(ADAMW)


def test_a_wrong_word_behind_decay_is_marked() -> None:
    (d,) = errors(f"{WAFER}{MODEL.replace('decay on', 'decay onn')}{TRAIN.format(ADAMW)}").diagnostics
    assert (d.code, d.help) == (Code.CHOICE, "did you mean `on`?")


def test_the_builder_says_the_same() -> None:
    m = Model("m", d=8, vocab=16, seq=4)
    tokens, labels = (m.input(n, m.batch, m.seq) for n in ("tokens", "labels"))
    wte = m.param("wte", (m.vocab, m.d), "ones")
    x = m.let("x", nn.embedding(tokens, wte) * m.param("g", (m.d,), "ones", decay=False))
    m.loss(nn.cross_entropy(x @ nn.transpose(wte), labels))
    train = Train(
        m, tray(), batch=2, microbatch=1, parallel="dp=1", optimizer=adamw(lr=1e-3, weight_decay=0.1),
        decay="all", groups={"w*": {"lr": "x 0.1", "decay": 0.02}},
    )  # fmt: skip
    assert "param g : [d] init ones decay off\n" in train.to_wsl()
    assert "  decay all\n" in train.to_wsl()
    assert '  group "w*" { lr x 0.1, decay 0.02 }\n' in train.to_wsl()
