"""Architectures of mixtures of experts."""

from __future__ import annotations

from dataclasses import replace

from wscc.huggingface.architecture import Architecture, Experts
from wscc.huggingface.config import Config
from wscc.huggingface.llama_readers import gated, mistral, qwen2, qwen3


def mixtral(config: Config) -> Architecture:
    """Mistral, whose feed-forward part is a mixture of experts with gates that sum to one."""
    _without(config, "router_jitter_noise", "the router reads what it is given, without noise")
    a = mistral(config)
    return replace(a, kind="mixtral", experts=_experts(config, "num_local_experts", 8, 2, renormalise=True))


def qwen3_moe(config: Config) -> Architecture:
    """Qwen3 with a mixture of experts in every layer."""
    _every_layer(config)
    a = qwen3(config)
    experts = _experts(config, "num_experts", 128, 8, renormalise=config.flag("norm_topk_prob", False))
    return replace(
        a, kind="qwen3_moe", experts=experts, ffn=config.size("moe_intermediate_size", default=768)
    )


def qwen2_moe(config: Config) -> Architecture:
    """Qwen2 with a mixture of experts in every layer, and one expert more for all tokens."""
    _every_layer(config)
    a = qwen2(config)
    biased = frozenset({"qkv"}) if config.flag("qkv_bias", True) else frozenset[str]()
    experts = _experts(config, "num_experts", 60, 4, renormalise=config.flag("norm_topk_prob", False))
    experts = replace(experts, shared=config.size("shared_expert_intermediate_size", default=5632))
    ffn = config.size("moe_intermediate_size", default=1408)
    return replace(a, kind="qwen2_moe", biased=biased, experts=experts, ffn=ffn)


def olmoe(config: Config) -> Architecture:
    """Llama with a mixture of experts, and norms of queries and keys over all heads."""
    _without(config, "clip_qkv", "queries, keys and values are not clipped")
    biased = frozenset({"qkv", "o"}) if config.flag("attention_bias", False) else frozenset[str]()
    a = gated(config, "olmoe", biased)
    experts = _experts(config, "num_experts", 64, 8, renormalise=config.flag("norm_topk_prob", False))
    return replace(a, normed="all", experts=experts, eps=config.positive("rms_norm_eps", 1e-5))


def _every_layer(config: Config) -> None:
    """Refuse a mixture of experts that is not in every layer."""
    if config.size("decoder_sparse_step", default=1) != 1:
        config.refuse("decoder_sparse_step", "`decoder_sparse_step`: all layers of a `repeat` are alike")
    _without(config, "mlp_only_layers", "all layers of a `repeat` are alike")


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
