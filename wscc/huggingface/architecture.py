"""The architecture that a `config.json` describes, for each model type: sizes and choices, or an error that says what
the language cannot express."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from wscc.diagnostics import Code, fail
from wscc.huggingface.config import Config

ACTIVATIONS: Final = {
    "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "gelu_fast": "gelu", "gelu": "gelu_erf", "relu": "relu",
}  # fmt: skip
_DROPOUTS: Final = (
    "resid_pdrop", "embd_pdrop", "attn_pdrop", "dropout", "attention_dropout", "activation_dropout", "layerdrop",
)  # fmt: skip
# Fields that change no number of the model; those whose names begin with `_` or `summary_` do not either.
_HARMLESS: Final = frozenset({
    "model_type", "architectures", "transformers_version", "torch_dtype", "dtype", "use_cache",
    "task_specific_params", "bos_token_id", "eos_token_id", "sep_token_id", "n_ctx",
    "gradient_checkpointing", "prefix", "name_or_path", "pretraining_tp", "classifier_dropout", "return_dict",
    "output_attentions", "output_hidden_states", "reorder_and_upcast_attn", "chunk_size_feed_forward",
    "id2label", "label2id",
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Sizes and choices of a transformer. `gated`: RMSNorm, rotary positions, SwiGLU; else LayerNorm, learned positions
    and `activation`. `head_size` is the width of one head. `biased` are the linear layers with a bias: of `qkv`, `o`,
    `mlp`. `window`: the positions that attention looks back on, itself among them, if there is a limit. `padding`: the
    token whose row of the embedding gets no gradient in PyTorch, if there is one. `seq`: the length asked for."""

    kind: str
    gated: bool
    layers: int
    d: int
    heads: int
    kv: int
    head_size: int
    ffn: int
    vocab: int
    positions: int
    activation: str
    eps: float
    theta: float
    tied: bool
    biased: frozenset[str]
    std: float
    window: int | None = None
    padding: int | None = None
    seq: int | None = None

    @property
    def most_positions(self) -> int:
        """The longest sequence for which the program is exactly the model."""
        return self.positions if self.window is None else min(self.positions, self.window)

    @property
    def weights(self) -> int:
        """The number of elements of all matrices and tables."""
        per_layer = 2 * self.d * self.head_size * (self.heads + self.kv) + self.d * self.ffn * (
            3 if self.gated else 2
        )
        tables = self.vocab * (1 if self.tied else 2) + (0 if self.gated else self.positions)
        return self.layers * per_layer + tables * self.d


def architecture(config: Config) -> Architecture:
    """The architecture of a config. `CompileError` W105 for a field that cannot be expressed exactly, W010 for a
    missing one, W005 or W011 for a value of the wrong kind."""
    kind = config.word("model_type")
    if kind not in READERS:
        shown = kind if len(kind) <= 40 else f"{kind[:40]}..."
        # Names of models that are alike mean other models: none is proposed for another.
        known = f"known are {', '.join(READERS)}"
        config.refuse("model_type", f"model type `{shown}` cannot be imported", known)
    config.only("is_encoder_decoder", False, "a model is one chain of layers")
    config.only("add_cross_attention", False, "attention is to the sequence itself")
    if config.has("quantization_config"):
        config.refuse("quantization_config", "`quantization_config`: weights must be floating-point numbers")
    return READERS[kind](config)


def dropped_out(config: Config) -> bool:
    """True if the config asks for dropout, which training here never has."""
    return any([config.has(name) and config.fields[name] != 0 for name in _DROPOUTS])


def _padding(config: Config, default: int | None = None) -> int | None:
    """The row of the embedding that PyTorch gives no gradient (`padding_idx` of `nn.Embedding`): that of the padding
    token, from the end if it is negative; W105 for a token that is none."""
    vocab = config.size("vocab_size")
    if "pad_token_id" not in config.fields:
        return default
    if not config.has("pad_token_id"):
        return None
    token = config.fields["pad_token_id"]
    if type(token) is not int or not -vocab <= token < vocab:
        config.refuse("pad_token_id", f"`pad_token_id` is none of the {vocab} tokens of the vocabulary")
    return int(token) % vocab


def unread(config: Config) -> list[str]:
    """Names of the fields that were not read and that are not known to be harmless."""
    return sorted(
        name
        for name in config.fields
        if name not in config.asked and name not in _HARMLESS and not name.startswith(("_", "summary_"))
    )


def _head_size(config: Config, d: int, heads: int) -> int:
    if not config.has("head_dim") and d % heads:
        raise fail(
            Code.NUMBER,
            f"the hidden size {d} is not divisible by {heads} heads",
            help="give the config as it came",
        )
    return config.size("head_dim", default=d // heads)


def _activation(config: Config, *names: str, default: str) -> str:
    activation = config.word(*names, default=default)
    if activation not in ACTIVATIONS:
        name = next(n for n in names if config.has(n))
        config.refuse(name, f"`{name}` is `{activation[:40]}`, and known are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[activation]


def _refuse_variants(config: Config, heads: int) -> None:
    """Refuse shared keys and values or layers without biases, where the model type has no such thing."""
    for name in ("attention_bias", "mlp_bias"):
        config.only(name, True, "every linear layer of this model type has a bias")
    if config.size("num_key_value_heads", default=heads) != heads:
        config.refuse(
            "num_key_value_heads",
            "`num_key_value_heads` is not the number of heads, which this model type needs",
        )


def _gpt2(config: Config) -> Architecture:
    config.asked.add("pad_token_id")  # its embedding has no row for padding
    config.only("scale_attn_weights", True, "attention divides by the root of the head size")
    config.only("scale_attn_by_inverse_layer_idx", False, "all layers of a `repeat` are alike")
    d, heads = config.size("n_embd", "hidden_size"), config.size("n_head", "num_attention_heads")
    _refuse_variants(config, heads)
    size = _head_size(config, d, heads)
    if size * heads != d:
        config.refuse("head_dim", f"`head_dim` {size} x {heads} heads is not the hidden size {d}")
    return Architecture(
        kind="gpt2", gated=False, layers=config.size("n_layer", "num_hidden_layers"), d=d, heads=heads, kv=heads,
        head_size=size, ffn=config.size("n_inner", "intermediate_size", default=4 * d),
        vocab=config.size("vocab_size"), positions=config.size("n_positions", "max_position_embeddings"),
        activation=_activation(config, "activation_function", "hidden_act", default="gelu_new"),
        eps=config.positive("layer_norm_epsilon", 1e-5), theta=0.0, tied=config.flag("tie_word_embeddings", True),
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
    _refuse_variants(config, heads)
    size = _head_size(config, d, heads)
    if size * heads != d:
        config.refuse("head_dim", f"`head_dim` {size} x {heads} heads is not the hidden size {d}")
    return Architecture(
        kind="opt", gated=False, layers=config.size("num_hidden_layers"), d=d, heads=heads, kv=heads, head_size=size,
        ffn=config.size("ffn_dim", "intermediate_size"), vocab=config.size("vocab_size"),
        positions=config.size("max_position_embeddings"),
        activation=_activation(config, "activation_function", "hidden_act", default="relu"), eps=1e-5, theta=0.0,
        tied=config.flag("tie_word_embeddings", True), biased=frozenset({"qkv", "o", "mlp"}),
        std=config.positive("init_std", 0.02), padding=_padding(config, default=1),
    )  # fmt: skip


def _llama(config: Config) -> Architecture:
    biased = {"qkv", "o"} if config.flag("attention_bias", False) else set()
    biased |= {"mlp"} if config.flag("mlp_bias", False) else set()
    return _gated(config, "llama", frozenset(biased))


def _qwen2(config: Config) -> Architecture:
    config.asked.add("attention_bias")
    config.only("mlp_bias", False, "this model type has biases of queries, keys and values alone")
    windowed, window = config.flag("use_sliding_window", False), None
    full, layers = config.size("max_window_layers", default=28), config.size("num_hidden_layers")
    kinds = _layer_types(config)
    is_sliding = "sliding_attention" in kinds if kinds else full < layers
    if windowed and is_sliding:
        window = _window(config, default=4096)
    elif "sliding_attention" in kinds:
        config.refuse("layer_types", "`layer_types` asks for a window, and `use_sliding_window` is not true")
    config.asked.add("sliding_window")
    return replace(_gated(config, "qwen2", frozenset({"qkv"})), window=window)


def _mistral(config: Config) -> Architecture:
    """Llama without biases, with a window or without: where the sequence is no longer than the window, it is Llama."""
    for name in ("attention_bias", "mlp_bias"):
        config.only(name, False, "this model type has no biases")
    window = _window(config, default=4096)
    if window is None and "sliding_attention" in _layer_types(config):
        config.refuse("layer_types", "`layer_types` asks for a window, and `sliding_window` gives none")
    return replace(_gated(config, "mistral", frozenset(), kv_default=8), window=window)


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


def _layer_types(config: Config) -> list[str]:
    """The kinds of attention of the layers; none if they are not listed."""
    kinds = config.fields["layer_types"] if config.has("layer_types") else []
    if not isinstance(kinds, list) or any(k not in ("full_attention", "sliding_attention") for k in kinds):
        config.refuse("layer_types", "`layer_types` asks for other attention than full or with a window")
    return kinds


def _window(config: Config, default: int) -> int | None:
    """The positions that attention looks back on; None where the config says that it is all."""
    if "sliding_window" not in config.fields:
        return default
    return config.size("sliding_window") if config.has("sliding_window") else None


def _gated(config: Config, kind: str, biased: frozenset[str], kv_default: int | None = None) -> Architecture:
    """`kv_default`: the heads of keys and values where the config has no such field; as many as queries otherwise."""
    d, heads = config.size("hidden_size"), config.size("num_attention_heads")
    absent = "num_key_value_heads" not in config.fields
    kv_heads = kv_default if absent and kv_default is not None else heads
    kv, size = config.size("num_key_value_heads", default=kv_heads), _head_size(config, d, heads)
    if heads % kv:
        raise fail(
            Code.NUMBER, f"{heads} heads cannot share {kv} heads of keys and values evenly",
            config.span("num_key_value_heads"), help="give the config as it came",
        )  # fmt: skip
    if size % 2:
        config.refuse("head_dim", f"rotary positions turn pairs, and a head of {size} has an odd one")
    if (act := config.word("hidden_act", default="silu")) not in ("silu", "swish"):
        config.refuse("hidden_act", f"`hidden_act` is `{act[:40]}`, and only `silu` is gated here (`swiglu`)")
    return Architecture(
        kind=kind, gated=True, layers=config.size("num_hidden_layers"), d=d, heads=heads, kv=kv, head_size=size,
        ffn=config.size("intermediate_size"), vocab=config.size("vocab_size"),
        positions=config.size("max_position_embeddings", default=2048), activation="swiglu",
        eps=config.positive("rms_norm_eps", 1e-6), theta=_theta(config),
        tied=config.flag("tie_word_embeddings", False), biased=biased,
        std=config.positive("initializer_range", 0.02), padding=_padding(config),
    )  # fmt: skip


def _theta(config: Config) -> float:
    """The base of the frequencies; anything that scales them is refused."""
    theta = config.positive("rope_theta", 10000.0)
    for name in ("rope_scaling", "rope_parameters"):  # the second is the newer spelling, with the base in it
        inner = config.section(name)
        if inner is None:
            continue
        default = "default" if inner.fields.keys() <= {"rope_theta", "partial_rotary_factor"} else "unnamed"
        if (kind := inner.word("rope_type", "type", default=default)) != "default":
            config.refuse(
                name, f"`{name}` of type `{kind[:40]}` cannot be said: `rope` has plain frequencies",
                "set it to null only if you mean to train the model without it",
            )  # fmt: skip
        _refuse_partial_rope(inner)
        theta = inner.positive("rope_theta", theta)
    _refuse_partial_rope(config)
    return theta


def _refuse_partial_rope(config: Config) -> None:
    if config.positive("partial_rotary_factor", 1.0) != 1.0:
        config.refuse(
            "partial_rotary_factor", "`partial_rotary_factor` is not 1, and `rope` turns whole heads"
        )


READERS: Final[dict[str, Callable[[Config], Architecture]]] = {
    "gpt2": _gpt2,
    "opt": _opt,
    "llama": _llama,
    "qwen2": _qwen2,
    "mistral": _mistral,
    "granite": _granite,
}
