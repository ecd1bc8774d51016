"""Architectures of encoders: BERT and ViT."""

from __future__ import annotations

from wscc.huggingface.architecture import Architecture, Images
from wscc.huggingface.config import Config
from wscc.huggingface.fields import activation, head_size, padding


def bert(config: Config) -> Architecture:
    """Norms behind each part, a table of segments, and the head of the masked language model."""
    config.only("is_decoder", False, "attention sees all positions")
    if (kind := config.word("position_embedding_type", default="absolute")) != "absolute":
        config.refuse(
            "position_embedding_type", f"`position_embedding_type` is `{kind[:40]}`, not `absolute`"
        )
    return _encoder(
        config, "bert", vocab=config.size("vocab_size"), positions=config.size("max_position_embeddings", default=512),
        tied=config.flag("tie_word_embeddings", True), segments=config.size("type_vocab_size", default=2),
        padding=padding(config, default=0),
    )  # fmt: skip


def vit(config: Config) -> Architecture:
    """Patches of an image behind a class token, whose last state is classified."""
    config.asked.update(("encoder_stride", "pooler_act", "pooler_output_size", "label2id", "id2label"))
    config.asked.update(("problem_type", "tie_word_embeddings", "max_position_embeddings"))
    image, patch = config.size("image_size", default=224), config.size("patch_size", default=16)
    if image % patch:
        config.refuse("patch_size", f"`patch_size` {patch} does not divide `image_size` {image}")
    labels = config.section("id2label")
    classes = config.size("num_labels", default=max(len(labels.fields), 1) if labels else 2)
    images = Images((image // patch) ** 2, patch, config.size("num_channels", default=3), classes)
    biased = frozenset({"qkv"}) if config.flag("qkv_bias", True) else frozenset[str]()
    return _encoder(
        config, "vit", vocab=classes, positions=images.patches + 1, tied=True, images=images, biased=biased,
    )  # fmt: skip


def _encoder(
    config: Config, kind: str, *, vocab: int, positions: int, tied: bool, segments: int = 0,
    images: Images | None = None, biased: frozenset[str] = frozenset({"qkv"}), padding: int | None = None,
) -> Architecture:  # fmt: skip
    d, heads = config.size("hidden_size"), config.size("num_attention_heads")
    size = head_size(config, d, heads)
    if size * heads != d:
        config.refuse("head_dim", f"`head_dim` {size} x {heads} heads is not the hidden size {d}")
    return Architecture(
        kind=kind, gated=False, layers=config.size("num_hidden_layers"), d=d, heads=heads, kv=heads, head_size=size,
        ffn=config.size("intermediate_size"), vocab=vocab, positions=positions,
        activation=activation(config, "hidden_act", default="gelu"), eps=config.positive("layer_norm_eps", 1e-12),
        tied=tied, biased=biased, std=config.positive("initializer_range", 0.02), segments=segments, images=images,
        padding=padding,
    )  # fmt: skip
