"""`wscc import`: the program of a config has its sizes and choices, and what cannot be said is refused by its name.

That the program computes what the checkpoint's own definition says is tested in `test_weights`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.compile_once import artifact_of_file
from tests.support.huggingface_configs import (
    BLOOM,
    CONFIGS,
    ENCODERS,
    GEMMA,
    GEMMA2,
    GEMMA3,
    GPT2,
    GPT_NEOX,
    GRANITE,
    LLAMA,
    LLAMA3,
    MISTRAL,
    OPT,
    PHI3,
    QWEN2,
    QWEN3,
    STABLELM,
)  # fmt: skip
from tests.support.paths import CASES
from wscc.cli import main
from wscc.diagnostics import CompileError, Source
from wscc.driver.compile import load
from wscc.driver.report import parameters
from wscc.frontend.fmt import fmt
from wscc.frontend.parse import parse
from wscc.huggingface.blocks import number
from wscc.huggingface.config import read_config
from wscc.huggingface.families import family_of
from wscc.huggingface.text import imported
from wscc.ir.array import Kind

PUBLISHED = sorted((CASES / "configs").glob("*.json"))
LARGE = (
    "bloom-176b",
    "gemma2-9b",
    "qwen1.5-moe-a2.7b",
    "qwen2.5-7b",
)  # seconds to compile; small ones of their kind are trained elsewhere
COUNTS: dict[str, Any] = json.loads((CASES / "parameters.json").read_text())
SIZES: dict[str, Any] = json.loads((CASES / "published.json").read_text())


def program(config: object, seq: int | None = None) -> str:
    """The text that a config becomes."""
    return imported(
        read_config(Source("config.json", config if isinstance(config, str) else json.dumps(config))), seq
    ).text


# ---- what becomes of a config


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda p: p.stem)
def test_a_published_config_compiles_and_has_the_published_number_of_parameters(
    path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "model.wsl"
    assert main(["import", str(path), "-o", str(out)]) == 0
    if path.stem not in LARGE:
        assert artifact_of_file(out, level=0).streams.programs
    assert parameters(load(str(out))) == COUNTS[f"configs/{path.name}"]["parameters"]


@pytest.mark.parametrize("name", [name for name in SIZES if name != "_about"])
def test_a_published_size_has_the_published_number_of_parameters(name: str, tmp_path: Path) -> None:
    (tmp_path / "model.wsl").write_text(program(SIZES[name]["config"]), encoding="utf-8")
    assert parameters(load(str(tmp_path / "model.wsl"))) == SIZES[name]["parameters"]


@pytest.mark.parametrize("name", [*CONFIGS, *ENCODERS])
def test_an_imported_program_is_canonical_and_known_by_its_names(name: str, tmp_path: Path) -> None:
    config = {**CONFIGS, **ENCODERS}[name]
    text = program(config)
    assert fmt(parse(Source("x", text))) == text
    (tmp_path / "m.wsl").write_text(text)
    graph = load(str(tmp_path / "m.wsl"))
    family = family_of((a for a in graph.arrays if a.kind is Kind.PARAM), graph.name)
    assert family is not None
    kind = config["model_type"]
    assert family.name == {
        "qwen2": "llama",
        "qwen3": "llama",
        "granite": "llama",
        "mistral": "llama",
        "gemma": "llama",
        "gemma3_text": "gemma2",
    }.get(kind, "qwen_moe" if "qwen" in kind else kind)


@pytest.mark.parametrize(
    "sample", ["gpt-tiny", "llama-tiny", "gpt2-small", "gpt3-175b", "llama2-7b", "llama2-70b"]
)
def test_samples_use_the_names_that_an_import_does(sample: str) -> None:
    graph = load(str(CASES.parent.parent / "samples" / f"{sample}.wsl"))
    family = family_of(a for a in graph.arrays if a.kind is Kind.PARAM)
    assert family is not None
    assert family.name == ("gpt2" if "gpt" in sample else "llama")


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (GPT2, "ffn = 48"),
        ({**GPT2, "n_inner": None}, "ffn = 128"),
        ({**GPT2, "resid_pdrop": 0.1}, "# The config asks for dropout"),
        ({**GPT2, "tie_word_embeddings": False}, "param head : [d, vocab]"),
        ({**GPT2, "initializer_range": 0.01}, "init normal(0.01)"),
        (GPT2, "layernorm(x, g1, b1, eps = 0.001)"),
        ({**GPT2, "activation_function": "gelu"}, "gelu_erf("),
        (OPT, "relu("),
        (OPT, "two rows more"),
        (LLAMA, "theta = 500)"),
        ({**LLAMA, "rope_theta": None}, "rope(project(h, wq))"),
        (
            {**LLAMA, "rope_theta": None, "rope_parameters": {"rope_theta": 7.5, "rope_type": "default"}},
            "theta = 7.5)",
        ),
        ({**LLAMA, "num_key_value_heads": None}, "kv = 8"),
        ({**LLAMA, "max_position_embeddings": 8192}, "seq = 4096"),
        ({**LLAMA, "max_position_embeddings": 8192}, "# The config allows 8192 positions"),
        ({**LLAMA, "head_dim": 16}, "e = 16"),
        ({**LLAMA, "attention_bias": True}, "param bo : [d]"),
        ({**OPT, "word_embed_proj_dim": 16}, "embedding(tokens, wte) @ win"),
        ({**GRANITE, "logits_scaling": 8.0}, "@ head * 0.125, labels)"),
        (BLOOM, "attention(q, k, v, causal, alibi)"),
        (GEMMA, "rmsnorm(x, 1 + g1, eps = 0.001)"),
        (GEMMA2, "causal, window = window, cap = 1.5)"),
        ({**GEMMA2, "attn_logit_softcapping": None}, "causal, window = window)"),
        (GEMMA2, "repeat 1 as block {\n    x = layer(x, d, heads, kv, e, ffn, window = 5, theta = 500)\n"),
        (GEMMA3, "repeat 1 as rest {"),
        ({**GEMMA3, "num_hidden_layers": 6, "layer_types": None}, "repeat 2 as block {"),
        (QWEN2, "param bk : [kv, d / heads]"),
        (QWEN2, "@ transpose(wte)"),
        ({**QWEN2, "use_sliding_window": True, "sliding_window": None}, "model qwen2"),
        ({**QWEN2, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2}, "seq = 16"),
        ({**QWEN2, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}, "seq = 8"),
        ({**MISTRAL, "sliding_window": 8}, "attention(q, k, v, causal, window = 8)"),
        (LLAMA3, "rope(project(h, wq), theta = 100, factor = 8, low = 1, high = 4, original = 24)"),
        (
            {**LLAMA, "rope_theta": None, "rope_scaling": {"type": "linear", "factor": 2.0}},
            "h, wq), factor = 2)",
        ),
        (
            {**LLAMA, "rope_parameters": {**LLAMA3["rope_scaling"], "rope_theta": 9.0}},
            "theta = 9, factor = 8",
        ),
        (QWEN3, "rope(rmsnorm(project(h, wq), gq, eps = 0.01), theta = 500)"),
        ({n: v for n, v in QWEN3.items() if n != "head_dim"}, "e = 128"),
        ({n: v for n, v in STABLELM.items() if n != "partial_rotary_factor"}, "width = 2"),
        ({**GPT_NEOX, "rotary_pct": 1.0}, "rope(q, theta = 500)"),
        ({**PHI3, "sliding_window": 8}, "attention(q, k, v, causal, window = 8)"),
        (
            {**MISTRAL, "sliding_window": 8, "layer_types": ["full_attention", "sliding_attention"]},
            "# Attention looks back on 8 positions there",
        ),
    ],
)
def test_a_field_shows_in_the_program(config: dict[str, Any], says: str) -> None:
    assert says in program(config)


def test_qwen2_has_no_bias_behind_attention() -> None:
    assert "param bo" not in program(QWEN2)


@pytest.mark.parametrize(
    ("x", "text"), [(1e-5, "1e-5"), (500000.0, "500000"), (0.02, "0.02"), (1.5e16, "1.5e16")]
)
def test_numbers_are_short(x: float, text: str) -> None:
    assert number(x) == text


@given(st.floats(1e-30, 1e30))
def test_numbers_are_exact(x: float) -> None:
    assert float(number(x)) == x


# ---- other names of the same model


@pytest.mark.parametrize("config", [MISTRAL, {**MISTRAL, "sliding_window": 16}, GRANITE], ids=str)
def test_what_is_llama_under_another_name_is_imported_as_llama(config: dict[str, Any]) -> None:
    kind = str(config["model_type"])
    assert program(config).replace(kind, "llama").replace(kind.title(), "Llama") == program(LLAMA)


def test_defaults_of_mistral_are_its_own() -> None:
    """Eight heads of keys and values, and a window of 4096, where the fields are absent; not where they are null."""
    config = {n: v for n, v in MISTRAL.items() if n not in ("sliding_window", "num_key_value_heads")}
    config |= {"num_attention_heads": 16, "max_position_embeddings": 8192}
    assert "kv = 8," in program(config)
    assert "kv = 16," in program({**config, "num_key_value_heads": None})
    assert "looks back on 4096" in program(config)
    assert "looks back" not in program({**config, "sliding_window": None})


@pytest.mark.parametrize(
    ("config", "most"),
    [
        (GPT2, 16),
        (OPT, 16),
        (LLAMA, 16),
        ({**QWEN2, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}, 8),
    ],
    ids=["gpt2", "opt", "llama", "window"],
)
def test_a_sequence_is_as_long_as_is_asked_for_or_refused_with_the_longest(
    config: dict[str, Any], most: int
) -> None:
    assert f"seq = {most // 2})" in program(config, most // 2)
    assert program(config, most) == program(config)
    with pytest.raises(CompileError) as caught:
        program(config, most + 1)
    assert f"longer than the {most} positions" in caught.value.diagnostics[0].message


@pytest.mark.parametrize(
    ("config", "row"),
    [
        (OPT, 1), ({**OPT, "pad_token_id": None}, None), ({**OPT, "pad_token_id": 3}, 3), (LLAMA, None),
        ({**LLAMA, "pad_token_id": 0}, 0), ({**QWEN2, "pad_token_id": -1}, 127), ({**GPT2, "pad_token_id": 5}, None),
    ],
)  # fmt: skip
def test_the_row_of_the_padding_token_is_said(config: dict[str, Any], row: int | None) -> None:
    """PyTorch's `nn.Embedding(..., padding_idx)` gives that row no gradient; a tied head does."""
    done = imported(read_config(Source("config.json", json.dumps(config))))
    assert len(done.notes) == (row is not None)
    if row is not None:
        assert f"row {row} of the embedding" in done.notes[0]
        assert ("as the head" in done.notes[0]) == config.get("tie_word_embeddings", True)
        assert f"# PyTorch gives row {row}" in done.text


# ---- what is refused
