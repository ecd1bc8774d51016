"""Readers of fields that configs of several model types have, and what is known of all fields."""

from __future__ import annotations

from typing import Final

from wscc.diagnostics import Code, fail
from wscc.huggingface.config import Config

ACTIVATIONS: Final = {
    "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "gelu_fast": "gelu", "gelu": "gelu_erf", "relu": "relu",
}  # fmt: skip
_DROPOUTS: Final = (
    "resid_pdrop", "embd_pdrop", "attn_pdrop", "dropout", "attention_dropout", "activation_dropout", "layerdrop",
    "hidden_dropout", "hidden_dropout_prob", "attention_probs_dropout_prob",
)  # fmt: skip
# Fields that change no number of the model; those whose names begin with `_` or `summary_` do not either.
_HARMLESS: Final = frozenset({
    "model_type", "architectures", "transformers_version", "torch_dtype", "dtype", "use_cache",
    "task_specific_params", "bos_token_id", "eos_token_id", "sep_token_id", "n_ctx",
    "gradient_checkpointing", "prefix", "name_or_path", "pretraining_tp", "classifier_dropout", "return_dict",
    "output_attentions", "output_hidden_states", "reorder_and_upcast_attn", "chunk_size_feed_forward",
    "id2label", "label2id",
})  # fmt: skip


def dropped_out(config: Config) -> bool:
    """True if the config asks for dropout, which training here never has."""
    return any([config.has(name) and config.fields[name] != 0 for name in _DROPOUTS])


def padding(config: Config, default: int | None = None) -> int | None:
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


def head_size(config: Config, d: int, heads: int, default: int | None = None) -> int:
    """The width of one head, an equal share of `d` if there is no other default; W005 if that is none."""
    if default is not None and "head_dim" not in config.fields:
        return default
    if not config.has("head_dim") and d % heads:
        raise fail(
            Code.NUMBER,
            f"the hidden size {d} is not divisible by {heads} heads",
            help="give the config as it came",
        )
    return config.size("head_dim", default=d // heads)


def activation(config: Config, *names: str, default: str) -> str:
    """The activation of the language, by the field of any of the names."""
    activation = config.word(*names, default=default)
    if activation not in ACTIVATIONS:
        name = next(n for n in names if config.has(n))
        config.refuse(name, f"`{name}` is `{activation[:40]}`, and known are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[activation]


def refuse_variants(config: Config, heads: int) -> None:
    """Refuse shared keys and values or layers without biases, where the model type has no such thing."""
    for name in ("attention_bias", "mlp_bias"):
        config.only(name, True, "every linear layer of this model type has a bias")
    if config.size("num_key_value_heads", default=heads) != heads:
        config.refuse(
            "num_key_value_heads",
            "`num_key_value_heads` is not the number of heads, which this model type needs",
        )


def layer_types(config: Config) -> list[str]:
    """The kinds of attention of the layers; none if they are not listed."""
    kinds = config.fields["layer_types"] if config.has("layer_types") else []
    if not isinstance(kinds, list) or any(k not in ("full_attention", "sliding_attention") for k in kinds):
        config.refuse("layer_types", "`layer_types` asks for other attention than full or with a window")
    return kinds


def window_of(config: Config, default: int | None) -> int | None:
    """The positions that attention looks back on; None where the config says that it is all."""
    if "sliding_window" not in config.fields:
        return default
    return config.size("sliding_window") if config.has("sliding_window") else None
