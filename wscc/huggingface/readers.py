"""The architecture of a config, for each model type, or an error that says what the language cannot express."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from wscc.diagnostics import Code, fail
from wscc.huggingface.architecture import Architecture, Experts
from wscc.huggingface.config import Config
from wscc.huggingface.fields import activation, head_size, layer_types, padding, refuse_variants, window_of
from wscc.huggingface.rotary import rotary

# Why model types that people ask for are no program of the language.
_REASONS: Final = {
    "bloom": "its attention adds a number for each distance (ALiBi)",
    "falcon": "one matrix holds queries and fewer heads of keys and values",
    "gptj": "its rotary positions turn neighbours, and its head has a bias",
    "gemma": "its norms scale by 1 + gain, and its gate is GELU",
    "gemma2": "its attention caps scores",
    "gemma3": "it reads images",
    "gemma3_text": "the rotary positions of its layers differ",
    "qwen2_moe": "its shared expert has a sigmoid for a gate",
    "olmoe": "its norms of queries and keys are over all heads",
}


def architecture(config: Config) -> Architecture:
    """The architecture of a config. `CompileError` W105 for a field that cannot be expressed exactly, W010 for a
    missing one, W005 or W011 for a value of the wrong kind."""
    kind = config.word("model_type")
    if kind not in READERS:
        shown = kind if len(kind) <= 40 else f"{kind[:40]}..."
        # Names of models that are alike mean other models: none is proposed for another.
        known = f"known are {', '.join(READERS)}"
        reason = f": {_REASONS[kind]}" if kind in _REASONS else ""
        config.refuse("model_type", f"model type `{shown}` cannot be imported{reason}", known)
    config.only("is_encoder_decoder", False, "a model is one chain of layers")
    config.only("add_cross_attention", False, "attention is to the sequence itself")
    if config.has("quantization_config"):
        config.refuse("quantization_config", "`quantization_config`: weights must be floating-point numbers")
    return READERS[kind](config)


def _gpt2(config: Config) -> Architecture:
    config.asked.add("pad_token_id")  # its embedding has no row for padding
    config.only("scale_attn_weights", True, "attention divides by the root of the head size")
    config.only("scale_attn_by_inverse_layer_idx", False, "all layers of a `repeat` are alike")
    d, heads = config.size("n_embd", "hidden_size"), config.size("n_head", "num_attention_heads")
    refuse_variants(config, heads)
    size = head_size(config, d, heads)
    if size * heads != d:
        config.refuse("head_dim", f"`head_dim` {size} x {heads} heads is not the hidden size {d}")
    return Architecture(
        kind="gpt2", gated=False, layers=config.size("n_layer", "num_hidden_layers"), d=d, heads=heads, kv=heads,
        head_size=size, ffn=config.size("n_inner", "intermediate_size", default=4 * d),
        vocab=config.size("vocab_size"), positions=config.size("n_positions", "max_position_embeddings"),
        activation=activation(config, "activation_function", "hidden_act", default="gelu_new"),
        eps=config.positive("layer_norm_epsilon", 1e-5), tied=config.flag("tie_word_embeddings", True),
        biased=frozenset({"qkv", "o", "mlp"}), std=config.positive("initializer_range", 0.02),
    )  # fmt: skip


def _opt(config: Config) -> Architecture:
    d, heads = config.size("hidden_size"), config.size("num_attention_heads")
    config.only("do_layer_norm_before", True, "its norms stand behind the layers, and the last is missing")
    if (width := config.size("word_embed_proj_dim", default=d)) != d:
        config.refuse("word_embed_proj_dim", f"`word_embed_proj_dim` is {width}, not the hidden size {d}")
    config.only("enable_bias", True, "every linear layer has a bias")
    config.only("_remove_final_layer_norm", False, "a norm stands before the head")
    config.only("layer_norm_elementwise_affine", True, "norms have a gain and a bias")
    refuse_variants(config, heads)
    size = head_size(config, d, heads)
    if size * heads != d:
        config.refuse("head_dim", f"`head_dim` {size} x {heads} heads is not the hidden size {d}")
    return Architecture(
        kind="opt", gated=False, layers=config.size("num_hidden_layers"), d=d, heads=heads, kv=heads, head_size=size,
        ffn=config.size("ffn_dim", "intermediate_size"), vocab=config.size("vocab_size"),
        positions=config.size("max_position_embeddings"),
        activation=activation(config, "activation_function", "hidden_act", default="relu"), eps=1e-5,
        tied=config.flag("tie_word_embeddings", True), biased=frozenset({"qkv", "o", "mlp"}),
        std=config.positive("init_std", 0.02), padding=padding(config, default=1),
    )  # fmt: skip


def _llama(config: Config) -> Architecture:
    biased = {"qkv", "o"} if config.flag("attention_bias", False) else set()
    biased |= {"mlp"} if config.flag("mlp_bias", False) else set()
    return _gated(config, "llama", frozenset(biased))


def _qwen2(config: Config) -> Architecture:
    config.asked.add("attention_bias")
    config.only("mlp_bias", False, "this model type has biases of queries, keys and values alone")
    return _windowed(config, _gated(config, "qwen2", frozenset({"qkv"})))


def _qwen3(config: Config) -> Architecture:
    """Qwen2 with norms of queries and keys, which have no biases then; heads are 128 wide if nothing is said."""
    config.only("mlp_bias", False, "this model type has no biases of its feed-forward part")
    biased = frozenset({"qkv", "o"}) if config.flag("attention_bias", False) else frozenset()
    return _windowed(config, replace(_gated(config, "qwen3", biased, size_default=128), normed=True))


def _windowed(config: Config, a: Architecture) -> Architecture:
    """The architecture with the window that Qwen gives to the later layers, if it does."""
    windowed, window = config.flag("use_sliding_window", False), None
    full, layers = config.size("max_window_layers", default=28), config.size("num_hidden_layers")
    kinds = layer_types(config)
    is_sliding = "sliding_attention" in kinds if kinds else full < layers
    if windowed and is_sliding:
        window = window_of(config, default=4096)
    elif "sliding_attention" in kinds:
        config.refuse("layer_types", "`layer_types` asks for a window, and `use_sliding_window` is not true")
    config.asked.add("sliding_window")
    return replace(a, window=window)


def _mistral(config: Config) -> Architecture:
    """Llama without biases, with a window or without: where the sequence is no longer than the window, it is Llama."""
    for name in ("attention_bias", "mlp_bias"):
        config.only(name, False, "this model type has no biases")
    window = window_of(config, default=4096)
    if window is None and "sliding_attention" in layer_types(config):
        config.refuse("layer_types", "`layer_types` asks for a window, and `sliding_window` gives none")
    return replace(_gated(config, "mistral", frozenset(), kv_default=8), window=window)


def _mixtral(config: Config) -> Architecture:
    """Mistral, whose feed-forward part is a mixture of experts with gates that sum to one."""
    _without(config, "router_jitter_noise", "the router reads what it is given, without noise")
    a = _mistral(config)
    return replace(a, kind="mixtral", experts=_experts(config, "num_local_experts", 8, 2, renormalise=True))


def _qwen3_moe(config: Config) -> Architecture:
    """Qwen3 with a mixture of experts in every layer."""
    if config.size("decoder_sparse_step", default=1) != 1:
        config.refuse("decoder_sparse_step", "`decoder_sparse_step`: all layers of a `repeat` are alike")
    _without(config, "mlp_only_layers", "all layers of a `repeat` are alike")
    a = _qwen3(config)
    experts = _experts(config, "num_experts", 128, 8, renormalise=config.flag("norm_topk_prob", False))
    return replace(
        a, kind="qwen3_moe", experts=experts, ffn=config.size("moe_intermediate_size", default=768)
    )


def _without(config: Config, name: str, why: str) -> None:
    """Refuse a field that is there and neither 0 nor empty."""
    config.asked.add(name)
    if config.fields.get(name):
        config.refuse(name, f"`{name}` cannot be said: {why}")


def _experts(config: Config, name: str, count: int, chosen: int, *, renormalise: bool) -> Experts:
    """The experts of a config, whose defaults are `count` and `chosen`."""
    config.only(
        "output_router_logits", False, "it adds a loss of all layers together, which is no sum over layers"
    )
    config.asked.update(("router_aux_loss_coef",))
    found = Experts(
        config.size(name, default=count), config.size("num_experts_per_tok", default=chosen), renormalise
    )
    if found.chosen > found.count:
        config.refuse(
            "num_experts_per_tok", f"`num_experts_per_tok` is {found.chosen} of {found.count} experts"
        )
    return found


def _granite(config: Config) -> Architecture:
    """Llama with four more factors, which it is where they are those of Llama."""
    for name in ("embedding_multiplier", "residual_multiplier", "logits_scaling"):
        if config.positive(name, 1.0) != 1.0:
            config.refuse(name, f"`{name}` is not 1, and nothing here is scaled by it")
    llama = _llama(config)
    scale = config.positive("attention_multiplier", 1.0)
    if abs(scale * llama.head_size**0.5 - 1) > 1e-12:
        config.refuse(
            "attention_multiplier",
            f"`attention_multiplier` is {scale:g}, and attention is divided by the root of the head size "
            f"{llama.head_size}",
        )
    return replace(llama, kind="granite")


def _gated(
    config: Config,
    kind: str,
    biased: frozenset[str],
    kv_default: int | None = None,
    part: float | None = None,
    size_default: int | None = None,
) -> Architecture:
    """`kv_default`: the heads of keys and values where the config has no such field; as many as queries otherwise.
    `part`: what of a head is turned where the config does not say it, None if the model type turns whole heads.
    `size_default`: the width of a head where the config has no such field; that of an equal share otherwise."""
    d, heads = config.size("hidden_size"), config.size("num_attention_heads")
    absent = "num_key_value_heads" not in config.fields
    kv_heads = kv_default if absent and kv_default is not None else heads
    kv, size = config.size("num_key_value_heads", default=kv_heads), head_size(config, d, heads, size_default)
    if heads % kv:
        raise fail(
            Code.NUMBER, f"{heads} heads cannot share {kv} heads of keys and values evenly",
            config.span("num_key_value_heads"), help="give the config as it came",
        )  # fmt: skip
    if (act := config.word("hidden_act", default="silu")) not in ("silu", "swish"):
        config.refuse("hidden_act", f"`hidden_act` is `{act[:40]}`, and only `silu` is gated here (`swiglu`)")
    return Architecture(
        kind=kind, gated=True, layers=config.size("num_hidden_layers"), d=d, heads=heads, kv=kv, head_size=size,
        ffn=config.size("intermediate_size"), vocab=config.size("vocab_size"),
        positions=config.size("max_position_embeddings", default=2048), activation="swiglu",
        eps=config.positive("rms_norm_eps", 1e-6), rms=True, rotary=rotary(config, size, part=part),
        tied=config.flag("tie_word_embeddings", False), biased=biased,
        std=config.positive("initializer_range", 0.02), padding=padding(config),
    )  # fmt: skip


def _phi3(config: Config) -> Architecture:
    """Llama with one matrix for queries, keys and values, and one for gate and up."""
    for name in ("attention_bias", "mlp_bias"):
        config.only(name, False, "this model type has no biases")
    config.asked.add("original_max_position_embeddings")  # of a scaling, which names its own
    window = window_of(config, default=None)
    vocab = config.size("vocab_size")
    a = _gated(config, "phi3", frozenset(), part=1.0)
    if a.kv != a.heads:
        config.refuse(
            "num_key_value_heads", f"`num_key_value_heads` is {a.kv} of {a.heads}, and a fused matrix has as many "
            "heads of keys and values as of queries here",
            "import a variant that has as many, such as Phi-3-mini",
        )  # fmt: skip
    eps, row = config.positive("rms_norm_eps", 1e-5), padding(config, 32000 if vocab > 32000 else None)
    return replace(a, fused=True, window=window, eps=eps, padding=row)


def _stablelm(config: Config) -> Architecture:
    """Llama with LayerNorm and partly turned heads; a parallel feed-forward part has the norm of attention."""
    config.only("qk_layernorm", False, "norms of queries and keys have one gain for all heads")
    biased = frozenset({"qkv"}) if config.flag("use_qkv_bias", False) else frozenset()
    parallel = config.flag("use_parallel_residual", False)
    a = _gated(config, "stablelm", biased, part=0.25)
    return replace(
        a, rms=False, eps=config.positive("layer_norm_eps", 1e-5), parallel=parallel, shared=parallel
    )


def _gpt_neox(config: Config) -> Architecture:
    config.asked.update(("pad_token_id", "is_decoder"))  # no row for padding; attention is causal in any case
    d, heads = config.size("hidden_size"), config.size("num_attention_heads")
    refuse_variants(config, heads)
    size = head_size(config, d, heads)
    if size * heads != d:
        config.refuse("head_dim", f"`head_dim` {size} x {heads} heads is not the hidden size {d}")
    base = "rotary_emb_base" if config.has("rotary_emb_base") else "rope_theta"
    return Architecture(
        kind="gpt_neox", gated=False, layers=config.size("num_hidden_layers"), d=d, heads=heads, kv=heads,
        head_size=size, ffn=config.size("intermediate_size"), vocab=config.size("vocab_size"),
        positions=config.size("max_position_embeddings", default=2048),
        activation=activation(config, "hidden_act", default="gelu"), eps=config.positive("layer_norm_eps", 1e-5),
        rotary=rotary(config, size, base=base, part=0.25), tied=config.flag("tie_word_embeddings", False),
        biased=frozenset({"qkv", "o", "mlp"}), std=config.positive("initializer_range", 0.02), fused=True,
        parallel=config.flag("use_parallel_residual", True),
    )  # fmt: skip


READERS: Final[dict[str, Callable[[Config], Architecture]]] = {
    "gpt2": _gpt2,
    "opt": _opt,
    "llama": _llama,
    "qwen2": _qwen2,
    "mistral": _mistral,
    "granite": _granite,
    "mixtral": _mixtral,
    "qwen3_moe": _qwen3_moe,
    "qwen3": _qwen3,
    "phi3": _phi3,
    "gpt_neox": _gpt_neox,
    "stablelm": _stablelm,
}
