"""Architectures with LayerNorm and feed-forward parts of one activation: GPT-2, OPT, GPT-NeoX, GPT-J, Falcon."""

from __future__ import annotations

from wscc.huggingface.architecture import Architecture
from wscc.huggingface.config import Config
from wscc.huggingface.fields import activation, head_size, padding, refuse_variants
from wscc.huggingface.rotary import Rotary, rotary


def gpt2(config: Config) -> Architecture:
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


def opt(config: Config) -> Architecture:
    d, heads = config.size("hidden_size"), config.size("num_attention_heads")
    width, before = config.size("word_embed_proj_dim", default=d), config.flag("do_layer_norm_before", True)
    config.only("enable_bias", True, "every linear layer has a bias")
    if before:
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
        std=config.positive("init_std", 0.02), padding=padding(config, default=1), behind=not before,
        table=None if width == d else width,
    )  # fmt: skip


def gpt_neox(config: Config) -> Architecture:
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


def bloom(config: Config) -> Architecture:
    """Slopes by distance instead of positions, and a norm of the embedding."""
    config.asked.update(
        ("pad_token_id", "seq_length", "unk_token_id", "slow_but_exact", "n_inner", "offset_alibi")
    )
    config.asked.update(
        ("masked_softmax_fusion", "bias_dropout_fusion", "skip_bias_add", "skip_bias_add_qkv")
    )
    config.asked.update(("attention_softmax_in_fp32",))  # of other implementations; none changes the model
    config.only(
        "apply_residual_connection_post_layernorm", False, "what is added to is not what a norm has made"
    )
    d, heads = config.size("hidden_size", "n_embed"), config.size("n_head", "num_attention_heads")
    size = head_size(config, d, heads)
    if size * heads != d:
        config.refuse("head_dim", f"`head_dim` {size} x {heads} heads is not the hidden size {d}")
    return Architecture(
        kind="bloom", gated=False, layers=config.size("n_layer", "num_hidden_layers"), d=d, heads=heads, kv=heads,
        head_size=size, ffn=4 * d, vocab=config.size("vocab_size"),
        positions=config.size("seq_length", default=2048), activation="gelu",
        eps=config.positive("layer_norm_epsilon", 1e-5), tied=config.flag("tie_word_embeddings", True),
        biased=frozenset({"qkv", "o", "mlp"}), std=config.positive("initializer_range", 0.02), fused=True,
        alibi=True,
    )  # fmt: skip


def gptj(config: Config) -> Architecture:
    """One norm for both parts, which stand side by side; neighbours of a head's first elements are turned."""
    config.asked.update(("pad_token_id", "rotary", "scale_attn_weights"))  # never read there
    d, heads = config.size("n_embd", "hidden_size"), config.size("n_head", "num_attention_heads")
    size, width = head_size(config, d, heads), config.size("rotary_dim", default=64)
    if "rotary_dim" in config.fields and not config.has("rotary_dim"):
        config.refuse("rotary_dim", "`rotary_dim` is null, and there is no number for all of a head")
    if width % 2 or width > size:
        config.refuse("rotary_dim", f"`rotary_dim` is {width}, no pairs of the {size} elements of a head")
    return Architecture(
        kind="gptj", gated=False, layers=config.size("n_layer", "num_hidden_layers"), d=d, heads=heads, kv=heads,
        head_size=size, ffn=config.size("n_inner", default=4 * d), vocab=config.size("vocab_size"),
        positions=config.size("n_positions", "max_position_embeddings", default=2048),
        activation=activation(config, "activation_function", default="gelu_new"),
        eps=config.positive("layer_norm_epsilon", 1e-5), tied=config.flag("tie_word_embeddings", False),
        biased=frozenset({"mlp"}), std=config.positive("initializer_range", 0.02), parallel=True, shared=True,
        rotary=Rotary(10000.0, width=None if width == size else width, interleaved=True), head_bias=True,
    )  # fmt: skip


def falcon(config: Config) -> Architecture:
    """Falcon-7B (one head of keys and values, one norm), 40B and 180B (groups of queries, a norm for each part)."""
    config.asked.add("pad_token_id")  # its embedding has no row for padding
    config.only("alibi", False, "attention adds no number for each distance")
    d = config.size("hidden_size")
    heads = config.size("num_attention_heads", "n_head")
    new, parallel = config.flag("new_decoder_architecture", False), config.flag("parallel_attn", True)
    if new and not parallel:
        config.refuse(
            "parallel_attn", "`parallel_attn` is false, and the new architecture has both parts side by side"
        )
    multi_query, kv = config.flag("multi_query", True), config.size("num_kv_heads", default=heads)
    kv = kv if new else 1 if multi_query else heads
    if heads % kv:
        config.refuse("num_kv_heads", f"`num_kv_heads` is {kv}, and {heads} heads cannot share them evenly")
    norms = config.size("num_ln_in_parallel_attn", default=2 if new else 1)
    if norms > 2 or (norms == 2) > new:
        config.refuse("num_ln_in_parallel_attn", f"`num_ln_in_parallel_attn` is {norms}")
    size = head_size(config, d, heads)
    if size * heads != d:
        config.refuse("head_dim", f"`head_dim` {size} x {heads} heads is not the hidden size {d}")
    return Architecture(
        kind="falcon", gated=False, layers=config.size("num_hidden_layers", "n_layer"), d=d, heads=heads, kv=kv,
        head_size=size, ffn=config.size("ffn_hidden_size", default=4 * d), vocab=config.size("vocab_size"),
        positions=config.size("max_position_embeddings", default=2048),
        activation=activation(config, "activation", default="gelu"), eps=config.positive("layer_norm_epsilon", 1e-5),
        rotary=rotary(config, size, part=None), tied=config.flag("tie_word_embeddings", True),
        biased=frozenset({"qkv", "o", "mlp"}) if config.flag("bias", False) else frozenset(),
        std=config.positive("initializer_range", 0.02), parallel=parallel, shared=parallel and norms == 1,
        norms=("attn", "mlp") if norms == 2 else ("1", "2"),
    )  # fmt: skip
