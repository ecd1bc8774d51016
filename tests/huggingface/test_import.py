"""`wscc import`: the program of a config has its sizes and choices, and what cannot be said is refused by its name.

That the program computes what the checkpoint's own definition says is tested in `test_weights`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.compile_once import artifact_of_file
from tests.support.huggingface_configs import (
    CONFIGS,
    FALCON,
    FALCON_GROUPS,
    GPT2,
    GPT_NEOX,
    GPTJ,
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
from wscc.diagnostics import CompileError, Diagnostic, Source
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
COUNTS: dict[str, Any] = json.loads((CASES / "parameters.json").read_text())


def program(config: object, seq: int | None = None) -> str:
    """The text that a config becomes."""
    return imported(
        read_config(Source("config.json", config if isinstance(config, str) else json.dumps(config))), seq
    ).text


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


# ---- what becomes of a config


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda p: p.stem)
def test_a_published_config_compiles_and_has_the_published_number_of_parameters(
    path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "model.wsl"
    assert main(["import", str(path), "-o", str(out)]) == 0
    # Of the llama family the largest is compiled: qwen2.5-7b says nothing else but a bias and a larger vocabulary.
    assert "qwen" in path.stem or artifact_of_file(out, level=0).streams.programs
    assert parameters(load(str(out))) == COUNTS[f"configs/{path.name}"]["parameters"]


@pytest.mark.parametrize("name", CONFIGS)
def test_an_imported_program_is_canonical_and_known_by_its_names(name: str, tmp_path: Path) -> None:
    text = program(CONFIGS[name])
    assert fmt(parse(Source("x", text))) == text
    (tmp_path / "m.wsl").write_text(text)
    graph = load(str(tmp_path / "m.wsl"))
    family = family_of((a for a in graph.arrays if a.kind is Kind.PARAM), graph.name)
    assert family is not None
    kind = CONFIGS[name]["model_type"]
    assert family.name == {"qwen2": "llama", "qwen3": "llama"}.get(
        kind, "qwen_moe" if "qwen" in kind else kind
    )


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
        (QWEN2, "param bk : [kv, d / heads]"),
        (QWEN2, "@ transpose(wte)"),
        ({**QWEN2, "use_sliding_window": True, "sliding_window": None}, "model qwen2"),
        ({**QWEN2, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2}, "seq = 16"),
        ({**QWEN2, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}, "seq = 8"),
        ({**MISTRAL, "sliding_window": 8}, "seq = 8"),
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
        ({**PHI3, "sliding_window": 8}, "seq = 8"),
        ({**MISTRAL, "sliding_window": 8}, "# Attention looks back on 8 positions there"),
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
    [(GPT2, 16), (OPT, 16), (LLAMA, 16), ({**MISTRAL, "sliding_window": 8}, 8)],
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
        ({**OPT, "do_layer_norm_before": False}, "do_layer_norm_before"),
        ({**OPT, "word_embed_proj_dim": 16}, "word_embed_proj_dim"),
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
        ({**GRANITE, "attention_multiplier": 1.0}, "attention_multiplier"),
        ({**GRANITE, "residual_multiplier": 0.22}, "residual_multiplier"),
        ({**GRANITE, "embedding_multiplier": 12.0}, "embedding_multiplier"),
        ({**GRANITE, "logits_scaling": 8.0}, "logits_scaling"),
        ({**LLAMA, "pad_token_id": 128}, "pad_token_id"),
        ({**LLAMA, "model_type": "bloom"}, "ALiBi"),
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
    path.write_text(json.dumps({**OPT, "do_layer_norm_before": False}, indent=1))
    out = tmp_path / "m.wsl"
    assert main(["import", str(path), "-o", str(out), "--json"]) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    lines = path.read_text().splitlines()
    assert (error["code"], error["file"]) == ("W105", str(path))
    assert lines[error["line"] - 1][error["column"] - 1 :].startswith('"do_layer_norm_before"')
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
