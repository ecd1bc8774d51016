"""Every op of the graph and sharded levels, declared once.

From a row derive: shape check, FLOPs and bytes, splittable factors, the effect of a split, gradient
layouts and the text form. Meaning lives elsewhere, in tables that a test holds to be total: NumPy meaning
in `wscc.reference`, derivatives in `wscc.passes.differentiate.rules`, lowering in `wscc.passes.lower_collectives.ops`.

`*` in a template stands for any factors, the same ones everywhere in the rule; an op without a template takes
any rule that fits its `form` (see `wscc.ir.forms`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from wscc.ir.types import Reduction


@dataclass(frozen=True, slots=True, kw_only=True)
class OpDef:
    """One op kind.

    `combine`: how parts along a contracted factor combine. `linear`: jointly in all operands, so that
    partial sums may pass through. `heavy`: work is the product of all factor sizes (two FLOPs each),
    otherwise the elements touched. `merges`: chunks along its streamable factor combine by the op's own
    merge. `flops`: per product of factors, for heavy ops. `positional`: it asks where in the sequence its
    operands' positions lie.
    """

    name: str
    rule: str = ""
    form: str = "template"
    combine: Reduction = Reduction.SUM
    linear: bool = False
    heavy: bool = False
    merges: bool = False
    attrs: Mapping[str, type] = field(default_factory=dict)
    flops: int = 2
    positional: bool = False


def _unary(name: str) -> tuple[OpDef, OpDef]:
    return (
        OpDef(name=name, rule="* -> *"),
        OpDef(name=f"{name}_bwd", rule="*, * -> *"),
    )


_ATTENTION: Final[Mapping[str, type]] = {"causal": bool, "scale": float}

_ALL: Final = (
    # -- contractions and elementwise arithmetic
    OpDef(name="matmul", form="contraction", heavy=True),
    OpDef(name="matmul_add", form="contraction_add", heavy=True),  # made by `fuse`: contracted factors whole
    OpDef(name="sum", form="contraction", linear=True),
    OpDef(name="add", form="broadcast", linear=True),
    OpDef(name="sub", form="broadcast", linear=True),
    OpDef(name="mul", form="broadcast"),
    OpDef(name="div", form="broadcast"),
    OpDef(name="scale", rule="* -> *", linear=True, attrs={"factor": float}),
    OpDef(name="cast", rule="* -> *", linear=True),
    OpDef(name="gsum", form="same", linear=True),
    OpDef(name="split", form="split", linear=True, attrs={"dim": int}),
    OpDef(name="stack", form="stack", linear=True, attrs={"dim": int}),
    OpDef(name="fill", rule=" -> *", attrs={"value": float}),
    # -- activations
    *_unary("gelu"),
    *_unary("gelu_erf"),
    *_unary("relu"),
    OpDef(name="swiglu", rule="*, * -> *"),
    OpDef(name="swiglu_bwd", rule="*, *, * -> *, *"),
    # -- normalisation, positions, tables
    OpDef(name="layernorm", rule="* d!, d, d -> * d", attrs={"eps": float}),
    OpDef(name="layernorm_bwd", rule="* d!, d, * d -> * d, d, d", attrs={"eps": float}),
    OpDef(name="rmsnorm", rule="* d!, d -> * d", attrs={"eps": float}),
    OpDef(name="rmsnorm_bwd", rule="* d!, d, * d -> * d, d", attrs={"eps": float}),
    OpDef(
        name="rope",
        rule="b s@ * e! -> b s@ * e!",
        linear=True,
        attrs={"theta": float, "sign": float},
        positional=True,
    ),
    OpDef(name="embedding", rule="*, v@ d -> * d"),
    OpDef(name="embedding_bwd", rule="*, * d -> v@ d"),
    # -- attention: q factors `b q * e`, k and v `b k h e`; the second result is the log-sum-exp
    OpDef(
        name="attention",
        form="attention",
        heavy=True,
        merges=True,
        attrs=_ATTENTION,
        flops=4,
        positional=True,
    ),
    OpDef(
        name="attention_bwd", form="attention_bwd", heavy=True, attrs=_ATTENTION, flops=10, positional=True
    ),
    # -- cross entropy: every piece is elementwise or a contraction over `v`; `limit` hides pad columns
    OpDef(name="rowmax", rule="* v@ -> *", combine=Reduction.MAX, attrs={"limit": int}),
    OpDef(name="sumexp", rule="* v@, * -> *", attrs={"limit": int}),
    OpDef(name="sumexp_bwd", rule="* v@, *, * -> * v@", attrs={"limit": int}),
    OpDef(name="pick", rule="* v@, * -> *"),
    OpDef(name="pick_bwd", rule="*, * -> * v@"),
    OpDef(name="nll", rule="*, *, *, * -> *"),
    OpDef(name="nll_bwd", rule="*, *, * -> *, *"),
    OpDef(name="mean", rule="*, -> "),
    OpDef(name="mean_bwd", rule=", -> *"),
    OpDef(name="count", rule="* -> "),
    # -- the update
    OpDef(name="sqsum", rule="* -> "),
    OpDef(name="tick", rule=" -> "),
    OpDef(
        name="adamw",
        rule="*, *, *, *, , -> *, *, *",
        attrs={
            "lr": float,
            "beta1": float,
            "beta2": float,
            "eps": float,
            "weight_decay": float,
            "clip": float,
            "warmup": int,
            "decay": int,
            "floor": float,
        },
    ),
    OpDef(
        name="sgd",
        rule="*, *, , -> *",
        attrs={"lr": float, "clip": float, "warmup": int, "decay": int, "floor": float},
    ),
)

OPS: Final[dict[str, OpDef]] = {d.name: d for d in _ALL}

# Reshards: ops of the sharded level that change a layout and nothing else.
# attrs: `axis`, and `dim` (all_gather, reduce_scatter, slice) or `dim`, `to` (all_to_all: gathered dim, split dim).
# Between stages, each of which has values of its own: from one to another, and the sum of what all have.
STAGE_MOVES: Final = ("permute", "stage_sum")
RESHARDS: Final = ("slice", "mask", "all_gather", "reduce_scatter", "all_reduce", "all_to_all", *STAGE_MOVES)
