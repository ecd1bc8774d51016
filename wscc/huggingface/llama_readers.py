"""Architectures of Llama and of what differs from it by a choice or two."""

from __future__ import annotations

from dataclasses import replace

from wscc.diagnostics import Code, fail
from wscc.huggingface.architecture import Architecture, Factors
from wscc.huggingface.config import Config
from wscc.huggingface.fields import head_size, layer_types, padding, window_of
from wscc.huggingface.rotary import rotary


def llama(config: Config) -> Architecture:
    biased = {"qkv", "o"} if config.flag("attention_bias", False) else set()
    biased |= {"mlp"} if config.flag("mlp_bias", False) else set()
    return gated(config, "llama", frozenset(biased))


def qwen2(config: Config) -> Architecture:
    config.asked.add("attention_bias")
    config.only("mlp_bias", False, "this model type has biases of queries, keys and values alone")
    return _windowed(config, gated(config, "qwen2", frozenset({"qkv"})))


def qwen3(config: Config) -> Architecture:
    """Qwen2 with norms of queries and keys, which have no biases then; heads are 128 wide if nothing is said."""
    config.only("mlp_bias", False, "this model type has no biases of its feed-forward part")
    biased = frozenset({"qkv", "o"}) if config.flag("attention_bias", False) else frozenset()
    return _windowed(config, replace(gated(config, "qwen3", biased, size_default=128), normed="head"))


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


def mistral(config: Config) -> Architecture:
    """Llama without biases, with a window or without."""
    for name in ("attention_bias", "mlp_bias"):
        config.only(name, False, "this model type has no biases")
    window, kinds = window_of(config, default=4096), layer_types(config)
    if window is None and "sliding_attention" in kinds:
        config.refuse("layer_types", "`layer_types` asks for a window, and `sliding_window` gives none")
    return replace(
        gated(config, "mistral", frozenset(), kv_default=8),
        window=window,
        everywhere="full_attention" not in kinds,
    )


def granite(config: Config) -> Architecture:
    """Llama with four more factors; scores are multiplied by one that replaces the root of the head size."""
    a = llama(config)
    factors = Factors(
        embedding=config.positive("embedding_multiplier", 1.0),
        residual=config.positive("residual_multiplier", 1.0),
        scores=_near_one(config.positive("attention_multiplier", 1.0) * a.head_size**0.5),
        logits=1 / config.positive("logits_scaling", 1.0),
    )
    return replace(a, kind="granite", factors=factors)


def _near_one(factor: float) -> float:
    """The factor, 1 where it is that but for rounding."""
    return 1.0 if abs(factor - 1) < 1e-12 else factor


def phi3(config: Config) -> Architecture:
    """Llama; its checkpoints have one matrix for queries, keys and values, and one for gate and up."""
    for name in ("attention_bias", "mlp_bias"):
        config.only(name, False, "this model type has no biases")
    config.asked.add("original_max_position_embeddings")  # of a scaling, which names its own
    window = window_of(config, default=None)
    vocab = config.size("vocab_size")
    a = gated(config, "phi3", frozenset(), part=1.0)
    eps, row = config.positive("rms_norm_eps", 1e-5), padding(config, 32000 if vocab > 32000 else None)
    return replace(a, window=window, everywhere=True, eps=eps, padding=row)


def stablelm(config: Config) -> Architecture:
    """Llama with LayerNorm and partly turned heads; a parallel feed-forward part has the norm of attention."""
    biased = frozenset({"qkv"}) if config.flag("use_qkv_bias", False) else frozenset()
    parallel = config.flag("use_parallel_residual", False)
    a = gated(config, "stablelm", biased, part=0.25)
    return replace(
        a, rms=False, eps=config.positive("layer_norm_eps", 1e-5), parallel=parallel, shared=parallel,
        normed="each" if config.flag("qk_layernorm", False) else "",
    )  # fmt: skip


def gated(
    config: Config,
    kind: str,
    biased: frozenset[str],
    kv_default: int | None = None,
    part: float | None = None,
    size_default: int | None = None,
    gate: str | None = None,
) -> Architecture:
    """`kv_default`: the heads of keys and values where the config has no such field; as many as queries otherwise.
    `part`: what of a head is turned where the config does not say it, None if the model type turns whole heads.
    `size_default`: the width of a head where the config has no such field; that of an equal share otherwise.
    `gate`: the activation of the gate, if it is not that of SwiGLU."""
    d, heads = config.size("hidden_size"), config.size("num_attention_heads")
    absent = "num_key_value_heads" not in config.fields
    kv_heads = kv_default if absent and kv_default is not None else heads
    kv, size = config.size("num_key_value_heads", default=kv_heads), head_size(config, d, heads, size_default)
    if heads % kv:
        raise fail(
            Code.NUMBER, f"{heads} heads cannot share {kv} heads of keys and values evenly",
            config.span("num_key_value_heads"), help="give the config as it came",
        )  # fmt: skip
    if gate is None and (act := config.word("hidden_act", default="silu")) not in ("silu", "swish"):
        config.refuse("hidden_act", f"`hidden_act` is `{act[:40]}`, and only `silu` is gated here (`swiglu`)")
    return Architecture(
        kind=kind, gated=True, layers=config.size("num_hidden_layers"), d=d, heads=heads, kv=kv, head_size=size,
        ffn=config.size("intermediate_size"), vocab=config.size("vocab_size"),
        positions=config.size("max_position_embeddings", default=2048), activation=gate or "swiglu",
        eps=config.positive("rms_norm_eps", 1e-6), rms=True, rotary=rotary(config, size, part=part),
        tied=config.flag("tie_word_embeddings", False), biased=biased,
        std=config.positive("initializer_range", 0.02), padding=padding(config),
    )  # fmt: skip
