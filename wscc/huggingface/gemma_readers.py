"""Architectures of Gemma: Llama with norms of 1 + gain, a gate of GELU and scaled embeddings."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

from wscc.huggingface.architecture import Architecture, Caps, Factors, LayerKind
from wscc.huggingface.config import Config
from wscc.huggingface.fields import ACTIVATIONS, layer_types, padding, window_of
from wscc.huggingface.llama_readers import gated
from wscc.huggingface.rotary import rotary_by_kind


def gemma(config: Config) -> Architecture:
    """The first Gemma, whose `gelu` was always the approximation by tanh."""
    act = config.word("hidden_act", default="gelu_pytorch_tanh")
    newer = config.word("hidden_activation", default="gelu_pytorch_tanh")
    for name, value in (("hidden_act", act), ("hidden_activation", newer)):
        if value not in ("gelu", "gelu_pytorch_tanh"):
            config.refuse(name, f"`{name}` is `{value[:40]}`, and the gate here is GELU")
    return _plain(config, "gemma", "gelu")


def gemma2(config: Config) -> Architecture:
    """Norms before and behind each part, capped scores and logits, and a window in every second layer."""
    a = _sandwich(config, "gemma2", Caps(_cap(config, "attn_logit_softcapping", 50.0), _final(config, 30.0)))
    window = window_of(config, default=4096)
    assert a.rotary is not None
    kinds = [LayerKind(w, a.rotary) for w in _windows(config, window, pattern=2)]
    return _in_turn(config, a, kinds)


def gemma3(config: Config) -> Architecture:
    """Norms of queries and keys, five layers with a window for each without, and other rotary positions for these."""
    caps = Caps(_cap(config, "attn_logit_softcapping", 0.0), _final(config, 0.0))
    full, sliding = rotary_by_kind(config)
    config.asked.update(("cache_implementation",))
    pattern = config.size("sliding_window_pattern", "_sliding_window_pattern", default=6)
    windows = _windows(config, window_of(config, default=4096), pattern)
    kinds = [LayerKind(w, sliding if w else full) for w in windows]
    return _in_turn(config, replace(_sandwich(config, "gemma3_text", caps), normed="head"), kinds)


def _plain(config: Config, kind: str, gate: str) -> Architecture:
    config.only("use_bidirectional_attention", False, "attention is causal")
    biased = frozenset({"qkv", "o"}) if config.flag("attention_bias", False) else frozenset[str]()
    a = gated(config, kind, biased, size_default=256, gate=gate)
    return replace(
        a, unit=True, tied=config.flag("tie_word_embeddings", True), padding=padding(config, default=0),
        positions=config.size("max_position_embeddings", default=131072 if kind == "gemma3_text" else 8192),
        factors=Factors(embedding=sqrt(a.d)),
    )  # fmt: skip


def _sandwich(config: Config, kind: str, caps: Caps) -> Architecture:
    act = config.word("hidden_activation", default="gelu_pytorch_tanh")
    config.asked.add("hidden_act")  # never read there
    if act not in ACTIVATIONS:
        config.refuse("hidden_activation", f"`hidden_activation` is `{act[:40]}`, and the gate here is GELU")
    a = _plain(config, kind, ACTIVATIONS[act])
    ratio = a.head_size / config.positive("query_pre_attn_scalar", 256.0)
    return replace(a, sandwich=True, caps=caps, factors=replace(a.factors, scores=sqrt(ratio)))


def _final(config: Config, default: float) -> float:
    return _cap(config, "final_logit_softcapping", default)


def _cap(config: Config, name: str, default: float) -> float:
    """Where something is capped; 0 where the field is null."""
    if name in config.fields and not config.has(name):
        return 0.0
    return config.positive(name, default) if config.has(name) else default


def _windows(config: Config, window: int | None, pattern: int) -> list[int]:
    """The window of each layer, 0 for one without: as listed, or for all but every `pattern`-th."""
    count = config.size("num_hidden_layers")
    named = layer_types(config) or [
        "full_attention" if (i + 1) % pattern == 0 else "sliding_attention" for i in range(count)
    ]
    if len(named) != count:
        config.refuse("layer_types", f"`layer_types` has {len(named)} entries for {count} layers")
    if window is None and "sliding_attention" in named:
        config.refuse("sliding_window", "`sliding_window` is null, and layers slide")
    return [int(window or 0) if n == "sliding_attention" else 0 for n in named]


def _in_turn(config: Config, a: Architecture, kinds: list[LayerKind]) -> Architecture:
    """The architecture with the kinds that come in turn, if layers differ: any number of rounds of them, and behind the
    last layers that are as the first."""
    for n in range(1, len(kinds) + 1):
        rest = kinds[len(kinds) - len(kinds) % n :]
        rounds = kinds[: len(kinds) - len(rest)]
        if rounds == kinds[:n] * (len(kinds) // n) and all(kind == kinds[0] for kind in rest):
            return replace(a, kinds=tuple(kinds[:n]))
    return replace(a, kinds=tuple(kinds))
