"""Refusals of `wscc import`: what cannot be said, makes no sense or cannot be read is one error that names it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.huggingface.test_import import program
from tests.support.huggingface_configs import (
    BLOOM,
    CONFIGS,
    FALCON,
    FALCON_GROUPS,
    GEMMA,
    GEMMA2,
    GEMMA3,
    GPT2,
    GPT_NEOX,
    GPTJ,
    LLAMA,
    LLAMA3,
    MISTRAL,
    OPT,
    PHI3,
    QWEN2,
    QWEN3,
    STABLELM,
)  # fmt: skip
from wscc.cli import main
from wscc.diagnostics import CompileError, Diagnostic, Source
from wscc.frontend.fmt import fmt
from wscc.frontend.parse import parse


def attempt(config: object) -> tuple[str, tuple[Diagnostic, ...]]:
    """The text, or the mistakes."""
    try:
        return program(config), ()
    except CompileError as error:
        return "", error.diagnostics


def refusal(config: object) -> tuple[str, str]:
    """Code and message of the one error that a config is."""
    _, (found,) = attempt(config)
    assert found.help
    return str(found.code), found.message


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({**GPT2, "activation_function": "tanh"}, "activation_function"),
        ({**GPT2, "scale_attn_weights": False}, "scale_attn_weights"),
        ({**GPT2, "scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ({**GPT2, "add_cross_attention": True}, "add_cross_attention"),
        ({**GPT2, "quantization_config": {"bits": 4}}, "quantization_config"),
        ({**GPT2, "hidden_size": 64}, "hidden_size"),
        ({**GPT2, "model_type": "gpt3"}, "gpt3"),
        ({**OPT, "enable_bias": False}, "enable_bias"),
        ({**OPT, "_remove_final_layer_norm": True}, "_remove_final_layer_norm"),
        ({**LLAMA, "rope_scaling": {"rope_type": "longrope", "factor": 8.0}}, "rope_scaling"),
        ({**LLAMA3, "rope_scaling": {**LLAMA3["rope_scaling"], "low_freq_factor": 4.0}}, "low_freq_factor"),
        ({**LLAMA, "rope_scaling": {"factor": 2.0}}, "rope_scaling"),
        ({**LLAMA, "rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0}}, "rope_parameters"),
        ({**LLAMA, "partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({**LLAMA, "hidden_act": "gelu"}, "hidden_act"),
        ({**LLAMA, "head_dim": 5}, "pairs"),
        ({**QWEN2, "layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ({**QWEN2, "layer_types": ["full_attention", "chunked_attention"]}, "layer_types"),
        ({**MISTRAL, "attention_bias": True}, "attention_bias"),
        ({**MISTRAL, "layer_types": ["sliding_attention"]}, "layer_types"),
        ({**BLOOM, "apply_residual_connection_post_layernorm": True}, "apply_residual_connection_post_layernorm"),
        ({**GEMMA, "use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ({**GEMMA, "hidden_act": "silu"}, "hidden_act"),
        ({**GEMMA2, "hidden_activation": "silu"}, "hidden_activation"),
        ({**GEMMA2, "sliding_window": None}, "sliding_window"),
        ({**GEMMA2, "layer_types": ["full_attention"]}, "layer_types"),
        ({**GEMMA3, "rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "rope_scaling"),
        ({**GEMMA3, "rope_parameters": {"rope_type": "default"}}, "rope_parameters"),
        ({**LLAMA, "pad_token_id": 128}, "pad_token_id"),
        ({**LLAMA, "model_type": "gemma3"}, "text_config"),
        ({**QWEN3, "head_dim": 7}, "head_dim"),
        ({**FALCON, "alibi": True}, "alibi"),
        ({**FALCON, "new_decoder_architecture": True, "parallel_attn": False}, "parallel_attn"),
        ({**FALCON, "num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn"),
        ({**FALCON_GROUPS, "num_kv_heads": 3}, "num_kv_heads"),
        ({**GPTJ, "rotary_dim": None}, "rotary_dim"),
        ({**GPTJ, "rotary_dim": 9}, "rotary_dim"),
        ({**STABLELM, "partial_rotary_factor": 0.4}, "partial_rotary_factor"),
        ({**GPT_NEOX, "rotary_pct": 0.6}, "rotary_pct"),
        ({**GPT_NEOX, "attention_bias": False}, "attention_bias"),
        ({**PHI3, "rope_scaling": {"type": "longrope", "short_factor": [1.0]}}, "rope_scaling"),
    ],
)  # fmt: skip
def test_what_cannot_be_said_is_refused_by_name(config: dict[str, Any], field: str) -> None:
    code, message = refusal(config)
    assert code == "W105"
    assert field in message


@pytest.mark.parametrize("field", ["model_type", "n_embd", "n_head", "n_layer", "n_positions", "vocab_size"])
def test_a_missing_field_is_named(field: str) -> None:
    config = {name: value for name, value in GPT2.items() if name != field}
    assert refusal(config) == ("W010", f"`config.json` has no field `{field}`")


@pytest.mark.parametrize("value", [0, -4, 1.5, 4.0, True, "12", [12], {}, 2**31, 10**400])
def test_a_size_that_is_none_is_refused(value: object) -> None:
    code, message = refusal({**GPT2, "n_embd": value})
    assert code == "W005"
    assert "`n_embd` must be an integer" in message


@pytest.mark.parametrize("value", [0, -1e-5, True, "1e-5", [1], 1e300, 10**400])
def test_an_epsilon_that_is_none_is_refused(value: object) -> None:
    code, message = refusal({**LLAMA, "rms_norm_eps": value})
    assert code == "W005"
    assert "`rms_norm_eps`" in message


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({**GPT2, "n_head": 5}, "W005"),
        ({**LLAMA, "num_key_value_heads": 3}, "W005"),
        ({**GPT2, "activation_function": 3}, "W011"),
        ({**GPT2, "tie_word_embeddings": "no"}, "W011"),
        ({**LLAMA, "rope_scaling": "linear"}, "W011"),
        ({**LLAMA, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "W010"),
        ("", "W001"),
        ('{"model_type": "gpt2",}', "W001"),
        ('{"model_type": "gpt2" "n_embd": 3}', "W001"),
        ('{"model_type": "gpt2", "model_type": "opt"}', "W007"),
        ('{"n_embd": NaN}', "W005"),
        ('{"n_embd": ' + "9" * 5000 + "}", "W005"),
        ("[" * 100_000, "W003"),
        ("[1]", "W105"),
        ("null", "W105"),
        ('"gpt2"', "W105"),
        ({**GPT2, "n_layer": 2**31 - 1, "n_embd": 2**31 - 4, "vocab_size": 2**31 - 1}, "W105"),
    ],
)  # fmt: skip
def test_a_config_that_makes_no_sense_is_one_error(config: object, code: str) -> None:
    assert refusal(config)[0] == code


@given(st.data())
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_value_in_any_field_gives_a_program_or_one_error(data: st.DataObject) -> None:
    config = dict(data.draw(st.sampled_from(sorted(CONFIGS.values(), key=str))))
    leaf = st.none() | st.booleans() | st.integers(-3, 300) | st.floats() | st.text(max_size=5)
    value = leaf | st.lists(leaf, max_size=2) | st.dictionaries(st.text(max_size=5), leaf, max_size=2)
    extra = [
        "rope_scaling",
        "head_dim",
        "n_inner",
        "hidden_act",
        "layer_types",
        "sliding_window",
        "resid_pdrop",
        "pad_token_id",
    ]
    for name in data.draw(st.lists(st.sampled_from([*config, *extra]), min_size=1, max_size=3)):
        config[name] = data.draw(value)
    text, mistakes = attempt(config)
    assert len(mistakes) == (not text)
    assert fmt(parse(Source("x", text))) == text


# ---- the command


def test_the_program_is_printed_or_written_and_unread_fields_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**GPT2, "alibi": True, "bos_token_id": 1}))
    assert main(["import", str(tmp_path / "config.json")]) == 0
    printed = capsys.readouterr()
    assert printed.err == "note: not read: `alibi`\n"
    assert main(["import", str(tmp_path / "config.json"), "-o", str(tmp_path / "m.wsl")]) == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "m.wsl").read_text() == printed.out
    assert main(["import", str(tmp_path / "config.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "text": printed.out,
        "unread": ["alibi"],
        "notes": [],
    }


def test_a_mistake_has_a_place_and_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**OPT, "enable_bias": False}, indent=1))
    out = tmp_path / "m.wsl"
    assert main(["import", str(path), "-o", str(out), "--json"]) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    lines = path.read_text().splitlines()
    assert (error["code"], error["file"]) == ("W105", str(path))
    assert lines[error["line"] - 1][error["column"] - 1 :].startswith('"enable_bias"')
    assert not out.exists()


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["a", "--nothing"]])
def test_a_malformed_command_line_has_status_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", *arguments]) == 2
    assert capsys.readouterr().err


def test_files_that_cannot_be_read_or_written_have_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", str(tmp_path)]) == 1
    assert "config.json" in capsys.readouterr().err
    (tmp_path / "binary").write_bytes(b"\x80\x04\0")
    assert main(["import", str(tmp_path / "binary")]) == 1
    (tmp_path / "config.json").write_text(json.dumps(GPT2))
    for out in (tmp_path, tmp_path / "no" / "m.wsl", "a\0b"):
        assert main(["import", str(tmp_path / "config.json"), "-o", str(out)]) == 1
        assert "cannot write" in capsys.readouterr().err
