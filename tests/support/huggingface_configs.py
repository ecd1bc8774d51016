"""Small configs of every model type that can be imported, each with something that the others do not have."""

from __future__ import annotations

from typing import Any

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
ROTARY: dict[str, Config] = {
    "llama3": LLAMA3, "llama-linear": LINEAR, "qwen3": QWEN3, "qwen3-biased": {**QWEN3, "attention_bias": True},
    "phi3": PHI3, "phi3-part": PHI3_PART, "stablelm": STABLELM,
    "stablelm-parallel": {**STABLELM, "use_parallel_residual": True, "use_qkv_bias": False},
    "gpt_neox": GPT_NEOX,
    "gpt_neox-serial": {**GPT_NEOX, "use_parallel_residual": False, "hidden_act": "gelu_new", "rotary_pct": 1.0},
}  # fmt: skip
CONFIGS: dict[str, Config] = {
    "gpt2": GPT2, "gpt2-erf": {**GPT2, "activation_function": "gelu", "tie_word_embeddings": False},
    "opt": OPT, "llama": LLAMA, "llama-odd": LLAMA_ODD, "qwen2": QWEN2,
    "qwen2-untied": {**QWEN2, "tie_word_embeddings": False}, **ROTARY,
}  # fmt: skip
