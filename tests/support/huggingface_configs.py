"""Small configs of every model type that can be imported, each with something that the others do not have."""

from __future__ import annotations

from typing import Any

import numpy as np

Config = dict[str, Any]

GPT2: Config = {
    "model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 4, "n_positions": 16, "n_inner": 48,
    "vocab_size": 128, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-3,
}  # fmt: skip
OPT: Config = {
    "model_type": "opt", "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "ffn_dim": 48,
    "max_position_embeddings": 16, "vocab_size": 128, "activation_function": "relu", "do_layer_norm_before": True,
    "word_embed_proj_dim": 32,
}  # fmt: skip
OPT_350M: Config = {**OPT, "do_layer_norm_before": False, "word_embed_proj_dim": 24}
LLAMA: Config = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 8,
    "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 128, "max_position_embeddings": 16,
    "rms_norm_eps": 1e-3, "rope_theta": 500.0, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip
LLAMA_ODD: Config = {
    **LLAMA, "head_dim": 6, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True,
    "num_attention_heads": 4,
}  # fmt: skip
QWEN2: Config = {**LLAMA, "model_type": "qwen2", "tie_word_embeddings": True, "rms_norm_eps": 1e-6}
MISTRAL: Config = {**LLAMA, "model_type": "mistral", "sliding_window": None}
GRANITE: Config = {**LLAMA, "model_type": "granite", "attention_multiplier": 0.5, "logits_scaling": 1.0}
GRANITE_FACTORS: Config = {
    **GRANITE, "attention_multiplier": 0.3, "embedding_multiplier": 2.5, "residual_multiplier": 0.22,
    "logits_scaling": 8.0,
}  # fmt: skip
BLOOM: Config = {
    "model_type": "bloom", "n_layer": 2, "hidden_size": 48, "n_head": 6, "vocab_size": 128, "layer_norm_epsilon": 1e-3,
    "seq_length": 16,
}  # fmt: skip
GEMMA: Config = {
    **LLAMA, "model_type": "gemma", "head_dim": 6, "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True,
    "pad_token_id": None,
}  # fmt: skip
GEMMA2: Config = {
    **GEMMA, "model_type": "gemma2", "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 4,
    "attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.0, "sliding_window": 5,
}  # fmt: skip
GEMMA3: Config = {
    **GEMMA, "model_type": "gemma3_text", "num_hidden_layers": 7, "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 9, "sliding_window": 4, "rope_local_base_freq": 30.0, "sliding_window_pattern": 3,
    "rope_scaling": {"rope_type": "linear", "factor": 2.0}, "layer_types": [
        "full_attention" if i % 3 == 2 else "sliding_attention" for i in range(7)
    ],
}  # fmt: skip
BERT: Config = {
    "model_type": "bert", "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48,
    "vocab_size": 64, "max_position_embeddings": 16, "type_vocab_size": 3, "layer_norm_eps": 1e-3, "hidden_act": "gelu",
    "pad_token_id": None, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
VIT: Config = {
    "model_type": "vit", "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48,
    "image_size": 12, "patch_size": 4, "num_channels": 3, "num_labels": 6, "layer_norm_eps": 1e-3, "qkv_bias": True,
}  # fmt: skip
ENCODERS: dict[str, Config] = {"bert": BERT, "vit": VIT}
LLAMA3: Config = {
    **LLAMA, "tie_word_embeddings": True, "head_dim": 8, "rope_theta": 100.0,
    "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 24,
    },
}  # fmt: skip
LINEAR: Config = {**LLAMA, "rope_scaling": {"type": "linear", "factor": 2.5}}
QWEN3: Config = {**LLAMA, "model_type": "qwen3", "head_dim": 6, "rms_norm_eps": 1e-2}
PHI3: Config = {**LLAMA, "model_type": "phi3", "num_key_value_heads": 8, "pad_token_id": None}
PHI3_PART: Config = {
    **PHI3, "num_attention_heads": 4, "num_key_value_heads": 4, "partial_rotary_factor": 0.75, "sliding_window": 16,
}  # fmt: skip
STABLELM: Config = {
    **LLAMA, "model_type": "stablelm", "num_attention_heads": 4, "layer_norm_eps": 1e-3, "use_qkv_bias": True,
    "partial_rotary_factor": 0.25,
}  # fmt: skip
GPT_NEOX: Config = {
    "model_type": "gpt_neox", "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2,
    "intermediate_size": 48, "vocab_size": 128, "max_position_embeddings": 16, "hidden_act": "gelu",
    "layer_norm_eps": 1e-3, "rotary_pct": 0.25, "rotary_emb_base": 500, "use_parallel_residual": True,
    "tie_word_embeddings": False,
}  # fmt: skip
STABLELM_NORMED: Config = {**STABLELM, "num_key_value_heads": 2, "qk_layernorm": True, "use_qkv_bias": False}
PHI3_GROUPS: Config = {**PHI3, "num_key_value_heads": 2}
FALCON: Config = {
    "model_type": "falcon", "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "vocab_size": 128,
    "max_position_embeddings": 16, "layer_norm_epsilon": 1e-3, "multi_query": True, "parallel_attn": True,
    "new_decoder_architecture": False, "bias": False, "alibi": False, "rope_theta": 500.0, "tie_word_embeddings": True,
}  # fmt: skip
FALCON_GROUPS: Config = {
    **FALCON, "new_decoder_architecture": True, "num_kv_heads": 2, "bias": True, "tie_word_embeddings": False,
    "ffn_hidden_size": 48,
}  # fmt: skip
GPTJ: Config = {
    "model_type": "gptj", "n_layer": 2, "n_embd": 32, "n_head": 4, "n_positions": 16, "n_inner": 48, "vocab_size": 128,
    "rotary_dim": 4, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-3, "tie_word_embeddings": False,
}  # fmt: skip
MIXTRAL: Config = {
    **LLAMA, "model_type": "mixtral", "sliding_window": None, "num_local_experts": 4, "num_experts_per_tok": 2,
}  # fmt: skip
QWEN3_MOE: Config = {
    **QWEN3, "num_hidden_layers": 1, "model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 3,
    "moe_intermediate_size": 24, "mlp_only_layers": [],
}  # fmt: skip
QWEN2_MOE: Config = {
    **LLAMA, "num_hidden_layers": 1, "model_type": "qwen2_moe", "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40, "norm_topk_prob": False,
}  # fmt: skip
OLMOE: Config = {
    **LLAMA, "num_hidden_layers": 1, "model_type": "olmoe", "num_experts": 4, "num_experts_per_tok": 2,
    "norm_topk_prob": True, "intermediate_size": 24, "pad_token_id": None,
}  # fmt: skip
ROTARY: dict[str, Config] = {
    "llama3": LLAMA3, "llama-linear": LINEAR, "qwen3": QWEN3, "qwen3-biased": {**QWEN3, "attention_bias": True},
    "phi3": PHI3, "phi3-part": PHI3_PART, "stablelm": STABLELM,
    "stablelm-parallel": {**STABLELM, "use_parallel_residual": True, "use_qkv_bias": False},
    "gpt_neox": GPT_NEOX,
    "gpt_neox-serial": {**GPT_NEOX, "use_parallel_residual": False, "hidden_act": "gelu_new", "rotary_pct": 1.0},
    "mistral-window": {**MISTRAL, "sliding_window": 6},
    "opt-350m": OPT_350M, "granite": GRANITE_FACTORS, "bloom": BLOOM, "gemma": GEMMA, "gemma2": GEMMA2,
    "gemma3": GEMMA3, "phi3-groups": PHI3_GROUPS,
    "stablelm-normed": STABLELM_NORMED, "falcon": FALCON, "falcon-groups": FALCON_GROUPS,
    "falcon-heads": {**FALCON, "multi_query": False, "parallel_attn": False},
    "gptj": GPTJ, "mixtral": MIXTRAL, "qwen3_moe": QWEN3_MOE, "qwen2_moe": QWEN2_MOE, "olmoe": OLMOE,
}  # fmt: skip
CONFIGS: dict[str, Config] = {
    "gpt2": GPT2, "gpt2-erf": {**GPT2, "activation_function": "gelu", "tie_word_embeddings": False},
    "opt": OPT, "llama": LLAMA, "llama-odd": LLAMA_ODD, "qwen2": QWEN2,
    "qwen2-untied": {**QWEN2, "tie_word_embeddings": False}, **ROTARY,
}  # fmt: skip


def encoder_arrays(config: Config) -> dict[str, Any]:
    """Four rows of data for an encoder; none for other models. Every sixth token is masked, and no row alike."""
    rng = np.random.default_rng(3)
    if config["model_type"] == "bert":
        shape = (4, config["max_position_embeddings"])
        tokens, labels = rng.integers(0, config["vocab_size"], (2, *shape))
        labels[rng.random(shape) > 1 / 6] = -100
        return {
            "tokens": tokens,
            "labels": labels,
            "segments": rng.integers(0, config["type_vocab_size"], shape),
        }
    if config["model_type"] == "vit":
        side, patch = config["image_size"], config["patch_size"]
        images = rng.normal(size=(4, (side // patch) ** 2, config["num_channels"], patch, patch))
        return {"images": images.astype(np.float32), "labels": rng.integers(0, config["num_labels"], 4)}
    return {}


def whole_images(config: Config, patches: Any) -> Any:
    """Images [b, colours, rows, columns] of patches [b, n, colours, rows, columns], row by row."""
    side, patch = config["image_size"], config["patch_size"]
    out = np.empty((len(patches), config["num_channels"], side, side))
    for n in range(patches.shape[1]):
        y, x = divmod(n, side // patch)
        out[:, :, patch * y : patch * (y + 1), patch * x : patch * (x + 1)] = patches[:, n]
    return out
