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
CONFIGS: dict[str, Config] = {
    "gpt2": GPT2, "gpt2-erf": {**GPT2, "activation_function": "gelu", "tie_word_embeddings": False},
    "opt": OPT, "llama": LLAMA, "llama-odd": LLAMA_ODD, "qwen2": QWEN2,
    "qwen2-untied": {**QWEN2, "tie_word_embeddings": False},
}  # fmt: skip
