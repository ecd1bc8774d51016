"""The parameters of each model family: our name, the name in a checkpoint, and the layouts of both.

A program belongs to a family if its parameters are called as here and have as many axes. These are the names that
`wscc import` writes and the samples use. A checkpoint's linear layer holds [out, in], GPT-2's alone [in, out].
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from wscc.huggingface.axes import Axes
from wscc.ir.types import TensorType

TABLE, VECTOR, CONV = Axes("v d", "v d"), Axes("d", "d"), Axes("i o", "i o")
LINEAR = Axes("i o", "o i")


class Parameter(Protocol):
    """An array of a module or of a manifest."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> TensorType: ...
    @property
    def extents(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class Mapped:
    """One parameter of a family. `theirs` is the checkpoint's name without the family's prefix; `{}` is the number of
    the layer. An `optional` parameter (a bias, a separate head) is in some models of the family only. Rows of
    `positions` do not depend on how many there are: of a longer table the first are those of a shorter sequence."""

    ours: str
    theirs: str
    axes: Axes
    optional: bool = False
    positions: bool = False

    @property
    def layered(self) -> bool:
        return "{}" in self.theirs


@dataclass(frozen=True, slots=True)
class Family:
    """A family of models. `prefixes` of the names in a file: the first is written, any is read. `unused` matches names,
    without prefix, of tensors in a checkpoint that are no weights (masks, frequencies)."""

    name: str
    prefixes: tuple[str, ...]
    tensors: tuple[Mapped, ...]
    unused: re.Pattern[str]

    @property
    def head(self) -> str:
        """The name of the head in a file, which has no prefix."""
        return self.by_name[HEAD].theirs

    @property
    def by_name(self) -> Mapping[str, Mapped]:
        return {m.ours: m for m in self.tensors}

    def fits(self, parameters: Iterable[Parameter]) -> bool:
        """True if these are the parameters of a model of this family."""
        declared, actual = self.by_name, {p.name: p for p in parameters}
        required = {m.ours for m in self.tensors if not m.optional}
        return required <= set(actual) <= set(declared) and all(
            len(p.type.shape) == declared[name].axes.rank and len(p.extents) == int(declared[name].layered)
            for name, p in actual.items()
        )


HEAD = "head"  # the output matrix where it is not the embedding; in a file it never has a prefix
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
        *_norm("gf", "bf", "final_layer_norm"),
        _HEAD,
    ),
    re.compile(r"(?!)"),
)
# Query head k * groups + g shares the keys and values of head k, there as here; both turn the pair (i, i + e/2).
_SHARED, _SHARED_BIAS = Axes("d k g e", "(k g e) d"), Axes("k g e", "(k g e)")
LLAMA: Final = Family(
    "llama",  # and Qwen2, Qwen3, Mistral, Granite and StableLM, whose names are the same
    ("model.", ""),
    (
        Mapped(EMBEDDING, "embed_tokens.weight", TABLE),
        Mapped("block.g1", "layers.{}.input_layernorm.weight", VECTOR),
        Mapped("block.b1", "layers.{}.input_layernorm.bias", VECTOR, optional=True),
        Mapped("block.gq", "layers.{}.self_attn.q_norm.weight", VECTOR, optional=True),
        Mapped("block.gk", "layers.{}.self_attn.k_norm.weight", VECTOR, optional=True),
        *_layer("wq", "bq", "layers.{}.self_attn.q_proj", _SHARED, _SHARED_BIAS, optional=True),
        *_layer("wk", "bk", "layers.{}.self_attn.k_proj", _HEADS, _HEADS_BIAS, optional=True),
        *_layer("wv", "bv", "layers.{}.self_attn.v_proj", _HEADS, _HEADS_BIAS, optional=True),
        *_layer("wo", "bo", "layers.{}.self_attn.o_proj", Axes("k g e d", "d (k g e)"), optional=True),
        Mapped("block.g2", "layers.{}.post_attention_layernorm.weight", VECTOR, optional=True),
        Mapped("block.b2", "layers.{}.post_attention_layernorm.bias", VECTOR, optional=True),
        *_layer("wgate", "bgate", "layers.{}.mlp.gate_proj", LINEAR, optional=True),
        *_layer("wup", "bup", "layers.{}.mlp.up_proj", LINEAR, optional=True),
        *_layer("wdown", "bdown", "layers.{}.mlp.down_proj", LINEAR, optional=True),
        Mapped("gf", "norm.weight", VECTOR),
        Mapped("bf", "norm.bias", VECTOR, optional=True),
        _HEAD,
    ),
    re.compile(r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq"),
)
PHI3: Final = Family(
    "phi3",
    ("model.", ""),
    (
        Mapped(EMBEDDING, "embed_tokens.weight", TABLE),
        Mapped("block.g1", "layers.{}.input_layernorm.weight", VECTOR),
        Mapped("block.wqkv", "layers.{}.self_attn.qkv_proj.weight", Axes("d c h e", "(c h e) d")),
        Mapped("block.wo", "layers.{}.self_attn.o_proj.weight", Axes("h e d", "d (h e)")),
        Mapped("block.g2", "layers.{}.post_attention_layernorm.weight", VECTOR),
        Mapped("block.wgateup", "layers.{}.mlp.gate_up_proj.weight", Axes("d c f", "(c f) d")),
        Mapped("block.wdown", "layers.{}.mlp.down_proj.weight", LINEAR),
        Mapped("gf", "norm.weight", VECTOR),
        _HEAD,
    ),
    re.compile(r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq"),
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
FAMILIES: Final = (GPT2, OPT, LLAMA, PHI3, GPT_NEOX)


def family_of(parameters: Iterable[Parameter]) -> Family | None:
    """The family that has parameters of these names and ranks, or None."""
    params = tuple(parameters)
    return next((f for f in FAMILIES if f.fits(params)), None)
