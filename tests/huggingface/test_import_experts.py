"""Configs of mixtures of experts: what they become, and what of them cannot be said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.huggingface.test_import import COUNTS, program
from tests.huggingface.test_import_refusals import refusal
from tests.support.huggingface_configs import MIXTRAL, OLMOE, QWEN2_MOE, QWEN3_MOE
from tests.support.verdict import EQUAL, verdict
from wscc.driver.compile import load
from wscc.driver.report import parameters
from wscc.frontend.overrides import Overrides

Config = dict[str, Any]


def test_mixtral_8x7b_has_its_number_of_parameters(tmp_path: Path) -> None:
    config = {
        "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
        "vocab_size": 32000, "max_position_embeddings": 32768, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0,
        "hidden_act": "silu", "sliding_window": None, "router_aux_loss_coef": 0.02,
    }  # fmt: skip
    (tmp_path / "m.wsl").write_text(program(config))
    assert parameters(load(str(tmp_path / "m.wsl"))) == COUNTS["mixtral-8x7b.wsl"]["parameters"]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (MIXTRAL, "route(router(h, wr), renormalise, k = 2)"),
        (MIXTRAL, "param wdown : [experts, ffn, d]"),
        (QWEN3_MOE, "route(router(h, wr), k = 3)"),
        (QWEN3_MOE, "ffn = 24"),
        ({**QWEN3_MOE, "norm_topk_prob": True}, "renormalise, k = 3)"),
        ({**QWEN3_MOE, "num_experts": None, "num_experts_per_tok": None}, "experts = 128"),
    ],
)
def test_a_field_shows_in_the_program(config: Config, says: str) -> None:
    assert says in program(config)


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({**MIXTRAL, "output_router_logits": True}, "output_router_logits"),
        ({**MIXTRAL, "router_jitter_noise": 0.1}, "router_jitter_noise"),
        ({**MIXTRAL, "num_experts_per_tok": 5}, "num_experts_per_tok"),
        ({**QWEN3_MOE, "mlp_only_layers": [0]}, "mlp_only_layers"),
        ({**QWEN3_MOE, "decoder_sparse_step": 2}, "decoder_sparse_step"),
        ({**QWEN2_MOE, "decoder_sparse_step": 2}, "decoder_sparse_step"),
        ({**OLMOE, "clip_qkv": 8.0}, "clip_qkv"),
    ],
)
def test_what_cannot_be_said_is_refused_by_name(config: Config, field: str) -> None:
    code, message = refusal(json.dumps(config))
    assert (code, f"`{field}`" in message) == ("W105", True), message


def test_an_imported_mixture_equals_one_device(tmp_path: Path) -> None:
    small = Overrides(parallel="ep=2,tp=2", sets=("train.batch=4", "train.microbatch=2"), dtype="f64")
    found = verdict(program(QWEN3_MOE), tmp_path, small, reported=False)
    assert found.what == EQUAL, found.why
