"""`did you mean ...?` asks for slips of the finger, and never leads to a thing of another meaning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wscc.diagnostics.spelling import did_you_mean, spelling_of
from wscc.frontend.builtins import BUILTINS, OPTIMIZERS, SETTINGS
from wscc.frontend.config import AXES
from wscc.ir.train import FLOATS
from wscc.machine.presets import PRESETS

CHOICES = {
    "op": tuple(BUILTINS), "optimizer": tuple(OPTIMIZERS), "axis": AXES, "type": tuple(map(str, FLOATS)),
    "setting": SETTINGS, "wafer": tuple(PRESETS),
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "word", "meant"),
    [
        ("op", "layernrom", "layernorm"),
        ("op", "LayerNorm", "layernorm"),
        ("op", "rms_norm", "rmsnorm"),
        ("op", "crossentropy", "cross_entropy"),
        ("setting", "bacth", "batch"),
        ("setting", "lr_scheduler", "lr_schedule"),
        ("axis", "ddp", "dp"),
        ("wafer", "temp-4x8_shared", "temp-4x8-shared"),
    ],
)
def test_a_slip_is_named(kind: str, word: str, meant: str) -> None:
    assert spelling_of(word, CHOICES[kind]) == meant
    assert did_you_mean(word, CHOICES[kind]) == f"did you mean `{meant}`?"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("op", "silu selu celu elu prelu relu6 geglu reglu glu softmax groupnorm gelu_new"),
        ("optimizer", "adam adamax nadam radam lion lamb sgdm"),
        ("type", "f16 fp16 tf32 f8 int8 f31"),
        ("axis", "cp fsdp hsdp xp vpp"),
        ("setting", "microbatches epochs"),
        ("wafer", "temp-4x9 temp-8x4 wse1 wse4"),
    ],
)
def test_another_thing_is_no_slip(kind: str, words: str) -> None:
    assert {w: spelling_of(w, CHOICES[kind]) for w in words.split()} == dict.fromkeys(words.split())


@given(st.sampled_from(SETTINGS), st.integers(0, 20), st.booleans())
def test_exchanged_and_doubled_letters_are_found(word: str, at: int, double: bool) -> None:
    i = at % (len(word) - 1)
    slip = word[: i + 1] + word[i:] if double else word[:i] + word[i + 1] + word[i] + word[i + 2 :]
    assert spelling_of(slip, SETTINGS) == word
