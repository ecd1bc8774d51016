"""The parameters of each model family: our name, the name in a checkpoint, and the layouts of both.

A program belongs to a family if its parameters are called as here and have as many axes. These are the names that
`wscc import` writes and the samples use. A checkpoint's linear layer holds [out, in], GPT-2's alone [in, out].
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from wscc.huggingface.axes import Axes
from wscc.huggingface.family import HEAD, Family, Mapped, Parameter, in_turn

TABLE, VECTOR, CONV = Axes("v d", "v d"), Axes("d", "d"), Axes("i o", "i o")
LINEAR = Axes("i o", "o i")


_HEAD_BIAS: Final = "bhead"
UNPREFIXED: Final = (HEAD, _HEAD_BIAS, "wt", "ct", "gt", "bt")  # and the last layer before a head
EMBEDDING: Final = "wte"
_HEAD = Mapped(HEAD, "lm_head.weight", LINEAR, optional=True)


def _norm(weight: str, bias: str, theirs: str) -> tuple[Mapped, ...]:
    return Mapped(weight, f"{theirs}.weight", VECTOR), Mapped(bias, f"{theirs}.bias", VECTOR)


def _layer(
    weight: str, bias: str, theirs: str, axes: Axes, bias_axes: Axes = VECTOR, *, optional: bool = False
) -> tuple[Mapped, ...]:
    """Weight and bias of a linear layer of a block."""
    return (
        Mapped(f"block.{weight}", f"{theirs}.weight", axes),
        Mapped(f"block.{bias}", f"{theirs}.bias", bias_axes, optional),
    )


GPT2: Final = Family(
    "gpt2",
    ("transformer.", ""),
    (
        Mapped(EMBEDDING, "wte.weight", TABLE),
        Mapped("wpe", "wpe.weight", TABLE, positions=True),
        *_norm("block.g1", "block.b1", "h.{}.ln_1"),
        *_layer("wqkv", "bqkv", "h.{}.attn.c_attn", Axes("d c h e", "d (c h e)"), Axes("c h e", "(c h e)")),
        *_layer("wo", "bo", "h.{}.attn.c_proj", Axes("h e d", "(h e) d")),
        *_norm("block.g2", "block.b2", "h.{}.ln_2"),
        *_layer("wup", "bup", "h.{}.mlp.c_fc", CONV),
        *_layer("wdown", "bdown", "h.{}.mlp.c_proj", CONV),
        *_norm("gf", "bf", "ln_f"),
        _HEAD,
    ),
    re.compile(r"h\.\d+\.attn\.(bias|masked_bias)"),
)
_HEADS, _HEADS_BIAS = Axes("d h e", "(h e) d"), Axes("h e", "(h e)")
OPT: Final = Family(
    "opt",
    ("model.decoder.", "decoder."),
    (
        Mapped(EMBEDDING, "embed_tokens.weight", TABLE),
        # Position p is row p + 2 there: the two rows before were for padding and are never looked up.
        Mapped("wpe", "embed_positions.weight", Axes("s d", "s d", pad=2), positions=True),
        *_norm("block.g1", "block.b1", "layers.{}.self_attn_layer_norm"),
        *_layer("wq", "bq", "layers.{}.self_attn.q_proj", _HEADS, _HEADS_BIAS),
        *_layer("wk", "bk", "layers.{}.self_attn.k_proj", _HEADS, _HEADS_BIAS),
        *_layer("wv", "bv", "layers.{}.self_attn.v_proj", _HEADS, _HEADS_BIAS),
        *_layer("wo", "bo", "layers.{}.self_attn.out_proj", Axes("h e d", "d (h e)")),
        *_norm("block.g2", "block.b2", "layers.{}.final_layer_norm"),
        *_layer("wup", "bup", "layers.{}.fc1", LINEAR),
        *_layer("wdown", "bdown", "layers.{}.fc2", LINEAR),
        Mapped("gf", "final_layer_norm.weight", VECTOR, optional=True),  # none where norms stand behind
        Mapped("bf", "final_layer_norm.bias", VECTOR, optional=True),
        Mapped("win", "project_in.weight", LINEAR, optional=True),
        Mapped("wout", "project_out.weight", LINEAR, optional=True),
        _HEAD,
    ),
    re.compile(r"(?!)"),
)
# Query head k * groups + g shares the keys and values of head k, there as here; both turn the pair (i, i + e/2).
_SHARED, _SHARED_BIAS = Axes("d k g e", "(k g e) d"), Axes("k g e", "(k g e)")
_FREQUENCIES: Final = re.compile(r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
_ATTENTION: Final = (
    Mapped("block.g1", "layers.{}.input_layernorm.weight", VECTOR),
    Mapped("block.b1", "layers.{}.input_layernorm.bias", VECTOR, optional=True),
    *_layer("wq", "bq", "layers.{}.self_attn.q_proj", _SHARED, _SHARED_BIAS, optional=True),
    *_layer("wk", "bk", "layers.{}.self_attn.k_proj", _HEADS, _HEADS_BIAS, optional=True),
    *_layer("wv", "bv", "layers.{}.self_attn.v_proj", _HEADS, _HEADS_BIAS, optional=True),
    *_layer("wo", "bo", "layers.{}.self_attn.o_proj", Axes("k g e d", "d (k g e)"), optional=True),
    Mapped("block.g2", "layers.{}.post_attention_layernorm.weight", VECTOR, optional=True),
    Mapped("block.b2", "layers.{}.post_attention_layernorm.bias", VECTOR, optional=True),
)
# The norms of queries and keys, of each head with one gain.
_HEAD_NORMS: Final = (
    Mapped("block.gq", "layers.{}.self_attn.q_norm.weight", VECTOR, optional=True),
    Mapped("block.gk", "layers.{}.self_attn.k_norm.weight", VECTOR, optional=True),
)
_GATED: Final = (
    *_layer("wgate", "bgate", "layers.{}.mlp.gate_proj", LINEAR, optional=True),
    *_layer("wup", "bup", "layers.{}.mlp.up_proj", LINEAR, optional=True),
    *_layer("wdown", "bdown", "layers.{}.mlp.down_proj", LINEAR, optional=True),
)


def _like_llama(name: str, *tensors: Mapped, kinds: tuple[str, ...] = ()) -> Family:
    """A family whose names are those of Llama but for attention and the feed-forward part."""
    ends = (
        Mapped(EMBEDDING, "embed_tokens.weight", TABLE),
        Mapped("gf", "norm.weight", VECTOR),
        Mapped("bf", "norm.bias", VECTOR, optional=True),
        _HEAD,
    )
    return Family(name, ("model.", ""), (*ends, *tensors), _FREQUENCIES, kinds or (name,))


def _mixture(router: str, experts: str, gate: str, up: str, down: str) -> tuple[Mapped, ...]:
    """A mixture whose experts have tensors of their own."""
    return (
        Mapped("block.wr", f"layers.{{}}.{router}.weight", LINEAR),
        *(
            Mapped(f"block.{ours}", f"layers.{{}}.{experts}.{{n}}.{theirs}.weight", LINEAR, apart=1)
            for ours, theirs in (("wgate", gate), ("wup", up), ("wdown", down))
        ),
    )


GEMMA2: Final = _like_llama(
    "gemma2",
    *(m for m in _ATTENTION if m.ours[-2:] not in ("b1", "g2", "b2")),
    # Norms stand before and behind the parts of a layer.
    Mapped("block.ga", "layers.{}.post_attention_layernorm.weight", VECTOR),
    Mapped("block.g2", "layers.{}.pre_feedforward_layernorm.weight", VECTOR),
    Mapped("block.gm", "layers.{}.post_feedforward_layernorm.weight", VECTOR),
    *_HEAD_NORMS,
    *_GATED,
    kinds=("gemma2", "gemma3_text"),
)
LLAMA: Final = _like_llama("llama", *_ATTENTION, *_HEAD_NORMS, *_GATED)  # and Qwen2, Qwen3, Mistral, Granite
STABLELM: Final = _like_llama(
    "stablelm",
    *_ATTENTION,
    # A tensor for each head.
    Mapped("block.gq", "layers.{}.self_attn.q_layernorm.norms.{n}.weight", VECTOR, optional=True, apart=2),
    Mapped("block.gk", "layers.{}.self_attn.k_layernorm.norms.{n}.weight", VECTOR, optional=True, apart=1),
    *_GATED,
)
_QKV: Final = "layers.{}.self_attn.qkv_proj.weight"
_GATE_UP: Final = "layers.{}.mlp.gate_up_proj.weight"
PHI3: Final = _like_llama(
    "phi3",
    Mapped("block.g1", "layers.{}.input_layernorm.weight", VECTOR),
    Mapped("block.wq", _QKV, Axes("d k g e", "(k g e) d", joined=0)),
    Mapped("block.wk", _QKV, Axes("d k e", "(k e) d", joined=0)),
    Mapped("block.wv", _QKV, Axes("d k e", "(k e) d", joined=0)),
    Mapped("block.wo", "layers.{}.self_attn.o_proj.weight", Axes("k g e d", "d (k g e)")),
    Mapped("block.g2", "layers.{}.post_attention_layernorm.weight", VECTOR),
    Mapped("block.wgate", _GATE_UP, Axes("i o", "o i", joined=0)),
    Mapped("block.wup", _GATE_UP, Axes("i o", "o i", joined=0)),
    Mapped("block.wdown", "layers.{}.mlp.down_proj.weight", LINEAR),
)
MIXTRAL: Final = _like_llama(
    "mixtral",
    *_ATTENTION,
    *_mixture("block_sparse_moe.gate", "block_sparse_moe.experts", "w1", "w3", "w2"),
)
_EXPERTS: Final = _mixture("mlp.gate", "mlp.experts", "gate_proj", "up_proj", "down_proj")
QWEN_MOE: Final = _like_llama(
    "qwen_moe",
    *_ATTENTION,
    *_HEAD_NORMS,
    *_EXPERTS,
    # The expert of all tokens.
    Mapped("block.ws", "layers.{}.mlp.shared_expert_gate.weight", Axes("d", "() d"), optional=True),
    *(
        Mapped(f"block.ws{part}", f"layers.{{}}.mlp.shared_expert.{part}_proj.weight", LINEAR, optional=True)
        for part in ("gate", "up", "down")
    ),
    kinds=("qwen2_moe", "qwen3_moe"),
)
OLMOE: Final = _like_llama(
    "olmoe",
    *_ATTENTION,
    # Norms over all heads.
    Mapped("block.gq", "layers.{}.self_attn.q_norm.weight", _SHARED_BIAS),
    Mapped("block.gk", "layers.{}.self_attn.k_norm.weight", _HEADS_BIAS),
    *_EXPERTS,
)
GPT_NEOX: Final = Family(
    "gpt_neox",
    ("gpt_neox.", ""),
    (
        Mapped(EMBEDDING, "embed_in.weight", TABLE),
        *_norm("block.g1", "block.b1", "layers.{}.input_layernorm"),
        # There, a head has its rows of queries, keys and values next to each other.
        *_layer(
            "wqkv", "bqkv", "layers.{}.attention.query_key_value",
            Axes("d c h e", "(h c e) d"), Axes("c h e", "(h c e)"),
        ),
        *_layer("wo", "bo", "layers.{}.attention.dense", Axes("h e d", "d (h e)")),
        *_norm("block.g2", "block.b2", "layers.{}.post_attention_layernorm"),
        *_layer("wup", "bup", "layers.{}.mlp.dense_h_to_4h", LINEAR),
        *_layer("wdown", "bdown", "layers.{}.mlp.dense_4h_to_h", LINEAR),
        *_norm("gf", "bf", "final_layer_norm"),
        Mapped(HEAD, "embed_out.weight", LINEAR, optional=True),
    ),
    re.compile(r"layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)"),
)  # fmt: skip
BLOOM: Final = Family(
    "bloom",
    ("transformer.", ""),
    (
        Mapped(EMBEDDING, "word_embeddings.weight", TABLE),
        *_norm("g0", "b0", "word_embeddings_layernorm"),
        *_norm("block.g1", "block.b1", "h.{}.input_layernorm"),
        *_layer(
            "wqkv", "bqkv", "h.{}.self_attention.query_key_value",
            Axes("d c h e", "(h c e) d"), Axes("c h e", "(h c e)"),
        ),
        *_layer("wo", "bo", "h.{}.self_attention.dense", Axes("h e d", "d (h e)")),
        *_norm("block.g2", "block.b2", "h.{}.post_attention_layernorm"),
        *_layer("wup", "bup", "h.{}.mlp.dense_h_to_4h", LINEAR),
        *_layer("wdown", "bdown", "h.{}.mlp.dense_4h_to_h", LINEAR),
        *_norm("gf", "bf", "ln_f"),
        _HEAD,
    ),
    re.compile(r"(?!)"),
)  # fmt: skip


def _attended(place: str) -> tuple[Mapped, ...]:
    return tuple(
        m
        for ours, theirs in (("q", "query"), ("k", "key"), ("v", "value"))
        for m in (
            Mapped(f"block.w{ours}", f"{place}.{theirs}.weight", _HEADS),
            Mapped(f"block.b{ours}", f"{place}.{theirs}.bias", _HEADS_BIAS, optional=True),
        )
    )


BERT: Final = Family(
    "bert",
    ("bert.", ""),
    (
        Mapped(EMBEDDING, "embeddings.word_embeddings.weight", TABLE),
        Mapped("wpe", "embeddings.position_embeddings.weight", TABLE, positions=True),
        Mapped("wse", "embeddings.token_type_embeddings.weight", TABLE),
        *_norm("g0", "b0", "embeddings.LayerNorm"),
        *_attended("encoder.layer.{}.attention.self"),
        *_layer("wo", "bo", "encoder.layer.{}.attention.output.dense", Axes("h e d", "d (h e)")),
        *_norm("block.g1", "block.b1", "encoder.layer.{}.attention.output.LayerNorm"),
        *_layer("wup", "bup", "encoder.layer.{}.intermediate.dense", LINEAR),
        *_layer("wdown", "bdown", "encoder.layer.{}.output.dense", LINEAR),
        *_norm("block.g2", "block.b2", "encoder.layer.{}.output.LayerNorm"),
        Mapped("wt", "cls.predictions.transform.dense.weight", LINEAR),
        Mapped("ct", "cls.predictions.transform.dense.bias", VECTOR),
        *_norm("gt", "bt", "cls.predictions.transform.LayerNorm"),
        Mapped(HEAD, "cls.predictions.decoder.weight", LINEAR, optional=True),
        Mapped(_HEAD_BIAS, "cls.predictions.bias", VECTOR),
    ),
    re.compile(
        r"pooler\..*|cls\.seq_relationship\..*|embeddings\.position_ids|cls\.predictions\.decoder\.bias"
    ),
)
VIT: Final = Family(
    "vit",
    ("vit.", ""),
    (
        Mapped("wpatch", "embeddings.patch_embeddings.projection.weight", Axes("c y x d", "d c y x")),
        Mapped("bpatch", "embeddings.patch_embeddings.projection.bias", VECTOR),
        Mapped("cls", "embeddings.cls_token", Axes("a d", "() a d")),
        Mapped("wpe", "embeddings.position_embeddings", Axes("s d", "() s d")),
        *_norm("block.g1", "block.b1", "encoder.layer.{}.layernorm_before"),
        *_attended("encoder.layer.{}.attention.attention"),
        *_layer("wo", "bo", "encoder.layer.{}.attention.output.dense", Axes("h e d", "d (h e)")),
        *_norm("block.g2", "block.b2", "encoder.layer.{}.layernorm_after"),
        *_layer("wup", "bup", "encoder.layer.{}.intermediate.dense", LINEAR),
        *_layer("wdown", "bdown", "encoder.layer.{}.output.dense", LINEAR),
        *_norm("gf", "bf", "layernorm"),
        Mapped(HEAD, "classifier.weight", LINEAR),
        Mapped(_HEAD_BIAS, "classifier.bias", VECTOR),
    ),
    re.compile(r"pooler\..*"),
)
GPTJ: Final = Family(
    "gptj",
    ("transformer.", ""),
    (
        Mapped(EMBEDDING, "wte.weight", TABLE),
        *_norm("block.g1", "block.b1", "h.{}.ln_1"),
        Mapped("block.wq", "h.{}.attn.q_proj.weight", _SHARED),
        Mapped("block.wk", "h.{}.attn.k_proj.weight", _HEADS),
        Mapped("block.wv", "h.{}.attn.v_proj.weight", _HEADS),
        Mapped("block.wo", "h.{}.attn.out_proj.weight", Axes("k g e d", "d (k g e)")),
        *_layer("wup", "bup", "h.{}.mlp.fc_in", LINEAR),
        *_layer("wdown", "bdown", "h.{}.mlp.fc_out", LINEAR),
        *_norm("gf", "bf", "ln_f"),
        _HEAD,
        Mapped(_HEAD_BIAS, "lm_head.bias", VECTOR),
    ),
    re.compile(r"h\.\d+\.attn\.(bias|masked_bias|embed_positions)"),
    ("gptj",),
)


def _of_falcon(weight: str, bias: str, layouts: tuple[str, str]) -> tuple[Mapped, ...]:
    """Rows of one matrix, in which each head of keys and values follows the queries that it serves."""
    theirs, (ours, rows) = "h.{}.self_attention.query_key_value", layouts
    return (
        Mapped(f"block.{weight}", f"{theirs}.weight", Axes(f"d {ours}", f"{rows} d", joined=1)),
        Mapped(f"block.{bias}", f"{theirs}.bias", Axes(ours, rows, joined=1), optional=True),
    )


FALCON: Final = Family(
    "falcon",
    ("transformer.", ""),
    (
        Mapped(EMBEDDING, "word_embeddings.weight", TABLE),
        *(
            Mapped(f"block.{ours}{place}", f"h.{{}}.{theirs}.{part}", VECTOR, optional=True)
            for place, theirs in (
                ("1", "input_layernorm"), ("2", "post_attention_layernorm"), ("attn", "ln_attn"), ("mlp", "ln_mlp"),
            )
            for ours, part in (("g", "weight"), ("b", "bias"))
        ),
        *_of_falcon("wq", "bq", ("k g e", "k (g e)")),
        *_of_falcon("wk", "bk", ("k e", "k e")),
        *_of_falcon("wv", "bv", ("k e", "k e")),
        *_layer("wo", "bo", "h.{}.self_attention.dense", Axes("k g e d", "d (k g e)"), optional=True),
        *_layer("wup", "bup", "h.{}.mlp.dense_h_to_4h", LINEAR, optional=True),
        *_layer("wdown", "bdown", "h.{}.mlp.dense_4h_to_h", LINEAR, optional=True),
        *_norm("gf", "bf", "ln_f"),
        _HEAD,
    ),
    re.compile(r"(?!)"),
    ("falcon",),
)  # fmt: skip
FAMILIES: Final = (
    GPT2,
    OPT,
    LLAMA,
    MIXTRAL,
    QWEN_MOE,
    OLMOE,
    STABLELM,
    PHI3,
    GPT_NEOX,
    GPTJ,
    FALCON,
    BLOOM,
    GEMMA2,
    BERT,
    VIT,
)


def family_of(parameters: Iterable[Parameter], model: str = "") -> Family | None:
    """The family that has parameters of these names and ranks, or None; of several that of the model's name, else the
    first."""
    params = tuple(parameters)
    fitting = [f for f in (in_turn(family, params) for family in FAMILIES) if f.fits(params)]
    return next((f for f in fitting if model in f.kinds), next(iter(fitting), None))
