"""Every op of the graph and sharded levels, declared once.

From a row derive: shape check, FLOPs and bytes, factors that may be split, the effect of a split, layouts of
gradients and the text form. Semantics are in tables that a test holds to be total: NumPy semantics in
`wscc.reference`, derivatives in `wscc.passes.differentiate.rules`, lowering in `wscc.passes.lower_collectives.ops`.

`*` in a template stands for any factors, the same ones everywhere in the rule; an op without a template takes
any rule that fits its `form` (`wscc.ir.forms`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from wscc.ir.types import Reduction


@dataclass(frozen=True, slots=True, kw_only=True)
class OpDef:
    """The declaration of one kind of op: the row of `OPS` that everything else derives from.

    `combine`: the reduction of the parts along a contracted factor. `linear`: it is linear, jointly in all operands,
    so that partial sums may pass through. `heavy`: its work is the product of all factor sizes, `flops` FLOPs each;
    otherwise, the elements that it reads and writes. `merges`: chunks along its streamable factor combine by the op's
    own merge. `positional`: it depends on the positions of its operands' elements in the sequence.

    `nullary`: it has no operands (an empty term of its rule may also be an operand without dimensions).
    `integers`, `integer_results`: places of operands and results that hold integers (token ids, labels, step
    counts); all others hold floats, unless `any_dtype`. `table`: place of the operand of which only the rows that
    integers number are read. `has_weight`: an operand may be a large weight, and then decides how the op is split.
    `ignores`: among its integers, `IGNORED` takes no part.
    `streamable`: its lowering can loop over chunks of a factor (`Stream`). `view`: its results name parts of its
    operand and cost nothing. `makes_positions`: dimension 1 of its result is a sequence that no input has, which
    axes of tokens split as they do an input's. `limits`: operand (or result, numbered behind them) and dimension of
    which its attribute `limit` hides what follows the first so many (0: nothing). `differentiable`: it may stand in
    a forward procedure and has a derivative. `listed`: place of the operand [pairs, 2] that lists the pairs of indices
    of its indexed factors that take part: known before compilation, it is lowered to blocks, one for each pair of
    shards. `along`: place of an operand whose positions (dimension 1) may only be streamed, and which
    axes of tokens that split them there split in the result.
    `moments`: of an optimizer, the names of the state that it keeps for each weight; its operands are the weight,
    its moments, its gradient, the squared norm of all gradients and the step. `options`: attributes behind the others
    that it has all of, or none where all are neutral. `keys`: among its integers, those that number random draws.
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
    nullary: bool = False
    integers: tuple[int, ...] = ()
    integer_results: tuple[int, ...] = ()
    any_dtype: bool = False
    differentiable: bool = True
    streamable: bool = False
    makes_positions: bool = False
    limits: tuple[int, int] | None = None
    table: int | None = None
    listed: int | None = None
    along: int | None = None
    ignores: bool = False
    view: bool = False
    has_weight: bool = False
    moments: tuple[str, ...] | None = None
    options: Mapping[str, type] = field(default_factory=dict)
    keys: tuple[int, ...] = ()


def _backward(
    name: str,
    rule: str,
    *,
    attrs: Mapping[str, type] | None = None,
    integers: tuple[int, ...] = (),
    streamable: bool = False,
    limits: tuple[int, int] | None = None,
    listed: int | None = None,
) -> OpDef:
    """An op that occurs in backward procedures only."""
    return OpDef(
        name=name,
        rule=rule,
        attrs=attrs or {},
        integers=integers,
        streamable=streamable,
        limits=limits,
        listed=listed,
        differentiable=False,
    )


def _unary(name: str) -> tuple[OpDef, OpDef]:
    return (
        OpDef(name=name, rule="* -> *"),
        _backward(f"{name}_bwd", "*, * -> *"),
    )


# The integer that stands for "no label" where an op `ignores` it.
IGNORED: Final = -100

_ATTENTION: Final[Mapping[str, type]] = {"causal": bool, "scale": float}
# Neutral where they are 0 (`wscc.ir.construct.attention`).
_ATTENTION_OPTIONS: Final[Mapping[str, type]] = {"limit": int, "window": int, "cap": float, "alibi": int}

_ALL: Final = (
    # -- contractions and elementwise arithmetic
    OpDef(name="matmul", form="contraction", heavy=True, streamable=True, has_weight=True),
    # Made by `fuse`: contracted factors whole.
    OpDef(name="matmul_add", form="contraction_add", heavy=True, has_weight=True, differentiable=False),
    OpDef(name="sum", form="reduction", linear=True),
    OpDef(name="expand", form="expansion", linear=True, differentiable=False),
    OpDef(name="add", form="broadcast", linear=True),
    OpDef(name="sub", form="broadcast", linear=True),
    OpDef(name="mul", form="broadcast"),
    OpDef(name="div", form="broadcast"),
    OpDef(name="scale", rule="* -> *", linear=True, attrs={"factor": float}),
    OpDef(name="cast", rule="* -> *", linear=True),
    OpDef(name="partial_sum", form="same", linear=True),
    OpDef(name="split", form="split", linear=True, attrs={"dim": int}, view=True),
    OpDef(name="stack", form="stack", linear=True, attrs={"dim": int}),
    OpDef(name="concat", form="concat", linear=True, attrs={"dim": int}, makes_positions=True),
    OpDef(name="cut", form="cut", linear=True, attrs={"dim": int}, view=True),
    OpDef(
        name="fill", rule=" -> *", attrs={"value": float}, nullary=True, any_dtype=True, differentiable=False
    ),
    # -- activations
    *_unary("gelu"),
    *_unary("gelu_erf"),
    *_unary("relu"),
    *_unary("sigmoid"),
    OpDef(name="rsqrt", rule="* -> *", attrs={"eps": float}),
    _backward("rsqrt_bwd", "*, * -> *", attrs={"eps": float}),
    OpDef(name="soft_cap", rule="* -> *", attrs={"cap": float}),
    _backward("soft_cap_bwd", "*, * -> *", attrs={"cap": float}),
    OpDef(name="swiglu", rule="*, * -> *"),
    _backward("swiglu_bwd", "*, *, * -> *, *"),
    # -- dropout: by the key of each sequence, the op's own number (`salt`) and the place in the sequence
    OpDef(
        name="dropout",
        rule="b *@, b -> b *@",
        attrs={"rate": float, "salt": int},
        integers=(1,),
        keys=(1,),
        positional=True,
    ),
    # -- normalisation, positions, tables
    OpDef(name="layernorm", rule="* d!, d, d -> * d", attrs={"eps": float}),
    _backward("layernorm_bwd", "* d!, d, * d -> * d, d, d", attrs={"eps": float}),
    OpDef(name="rmsnorm", rule="* d!, d -> * d", attrs={"eps": float}),
    _backward("rmsnorm_bwd", "* d!, d, * d -> * d, d", attrs={"eps": float}),
    OpDef(
        name="rope",
        rule="b s@ * e! -> b s@ * e!",
        linear=True,
        attrs={"theta": float, "sign": float},
        options={
            "width": int,
            "factor": float,
            "low": float,
            "high": float,
            "original": float,
            "interleaved": int,
        },
        positional=True,
    ),
    OpDef(name="embedding", rule="*, v@ d -> * d", integers=(0,), table=1, streamable=True, has_weight=True),
    _backward("embedding_bwd", "*, * d -> v@ d", integers=(0,), streamable=True),
    # -- attention: q factors `b q * e`, k and v `b k h e`; further results are, of each row of scores, the maximum
    # and the sum of exponentials below it
    OpDef(
        name="attention",
        form="attention",
        heavy=True,
        merges=True,
        attrs=_ATTENTION,
        flops=4,
        positional=True,
        streamable=True,
        limits=(1, 1),
        options=_ATTENTION_OPTIONS,
        has_weight=True,
    ),
    OpDef(
        name="attention_bwd",
        form="attention_bwd",
        heavy=True,
        attrs=_ATTENTION,
        flops=10,
        positional=True,
        differentiable=False,
        streamable=True,
        limits=(1, 1),
        options=_ATTENTION_OPTIONS,
        has_weight=True,
    ),
    # -- cross entropy: every piece is elementwise or a contraction over `v`; `limit` hides pad columns
    OpDef(name="rowmax", rule="* v@ -> *", combine=Reduction.MAX, attrs={"limit": int}, limits=(0, -1)),
    OpDef(name="sumexp", rule="* v@, * -> *", attrs={"limit": int}, limits=(0, -1)),
    _backward("sumexp_bwd", "* v@, *, * -> * v@", attrs={"limit": int}, limits=(0, -1)),
    OpDef(name="rowsum", rule="* v@ -> *", attrs={"limit": int}, limits=(0, -1)),
    _backward("rowsum_bwd", "* -> * v@", attrs={"limit": int}, limits=(1, -1)),
    OpDef(name="pick", rule="* v@, * -> *", integers=(1,), table=0, ignores=True),
    _backward("pick_bwd", "*, * -> * v@", integers=(0,)),
    OpDef(name="nll", rule="*, *, *, * -> *", integers=(3,), ignores=True),
    _backward("nll_bwd", "*, *, * -> *, *", integers=(1,)),
    OpDef(name="zloss", rule="*, *, * -> *", integers=(2,), ignores=True, attrs={"factor": float}),
    _backward("zloss_bwd", "*, *, *, * -> *", integers=(2,), attrs={"factor": float}),
    OpDef(name="mean", rule="*, -> "),
    _backward("mean_bwd", ", -> *"),
    OpDef(name="count", rule="* -> ", integers=(0,), ignores=True, differentiable=False),
    # -- mixture of experts: a token of a sequence chooses `k` experts `e`, each with `c` slots for the sequence
    # (`wscc.ir.experts`); further results of `route` are tokens by expert, those that chose it and those it dropped
    OpDef(
        name="route",
        rule="b s! e! -> b s! k!, b s! k!, e!, e!",
        integer_results=(1,),
        attrs={"capacity": int, "renormalise": bool},
    ),
    _backward(
        "route_bwd",
        "b s! e!, b s! k!, b s! k! -> b s! e!",
        attrs={"capacity": int, "renormalise": bool},
        integers=(1,),
    ),
    OpDef(name="dispatch", rule="b s! d, b s! k! -> e@ b c@ d", integers=(1,), attrs={"capacity": int}),
    _backward("dispatch_bwd", "e@ b c@ d, b s! k! -> b s! d", integers=(1,), attrs={"capacity": int}),
    OpDef(
        name="combine",
        rule="b s! k!, b s! k!, e@ b c@ d -> b s! d",
        integers=(1,),
        attrs={"capacity": int},
    ),
    _backward(
        "combine_bwd",
        "b s! k!, b s! k!, e@ b c@ d, b s! d -> b s! k!, e@ b c@ d",
        integers=(1,),
        attrs={"capacity": int},
    ),
    OpDef(name="balance", rule="b s! e! -> ", attrs={"k": int, "scale": float}),
    _backward("balance_bwd", "b s! e!, -> b s! e!", attrs={"k": int, "scale": float}),
    OpDef(name="z_loss", rule="b s e! -> ", attrs={"scale": float}),
    _backward("z_loss_bwd", "b s e!, -> b s e!", attrs={"scale": float}),
    # -- graphs: row n of the result is the sum over its edges (n, m) of a weight times row m; `weights` says which
    OpDef(
        name="spmm",
        rule="e! c!, b m~@ d -> b n@ d",
        attrs={"weights": str},
        integers=(0,),
        listed=0,
        along=1,
        streamable=True,
    ),
    OpDef(
        name="spmm_bwd",
        rule="e! c!, b n@ d -> b m~@ d",
        attrs={"weights": str},
        integers=(0,),
        listed=0,
        streamable=True,
        differentiable=False,
    ),
    # row n is the mean of rows m over its edges, by the softmax of leaky_relu(s of n + t of m), head by head
    OpDef(
        name="edge_attention",
        rule="e! c!, b n@ h, b m! h, b m! h f -> b n@ h f",
        attrs={"slope": float},
        integers=(0,),
        listed=0,
        along=3,
    ),
    _backward(
        "edge_attention_bwd",
        "e! c!, b n@ h, b m! h, b m! h f, b n@ h f -> b n@ h, b m! h, b m! h f",
        attrs={"slope": float},
        integers=(0,),
        listed=0,
    ),
    # row n is the largest, element by element, of rows m over its edges; or their sum, each times the edge's own weight
    OpDef(name="edge_max", rule="e! c!, b m! d -> b n@ d", integers=(0,), listed=0, along=1),
    _backward("edge_max_bwd", "e! c!, b m! d, b n@ d -> b m! d", integers=(0,), listed=0),
    OpDef(name="edge_sum", rule="e! c!, b m! d, e! -> b n@ d", integers=(0,), listed=0, along=1),
    _backward("edge_sum_bwd", "e! c!, b m! d, e!, b n@ d -> b m! d, e!", integers=(0,), listed=0),
    # -- the update
    OpDef(name="sqsum", rule="* -> ", differentiable=False),
    OpDef(name="tick", rule=" -> ", integers=(0,), integer_results=(0,), differentiable=False),
    OpDef(
        name="adamw",
        rule="*, *, *, *, , -> *, *, *",
        integers=(5,),
        differentiable=False,
        moments=("m", "v"),
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
        integers=(3,),
        differentiable=False,
        moments=(),
        attrs={"lr": float, "clip": float, "warmup": int, "decay": int, "floor": float},
    ),
)

OPS: Final[dict[str, OpDef]] = {d.name: d for d in _ALL}
OPTIMIZERS: Final = tuple(name for name, d in OPS.items() if d.moments is not None)

# Reshards: statements of the sharded level that change a layout and nothing else; by kind, the fields that one has
# beside its axis (`wscc.ir.op.Reshard`), in the order of the text form.
# The last two are between stages, each of which has values of its own: one sends its value to another, and all add up
# theirs.
RESHARDS: Final[Mapping[str, tuple[str, ...]]] = {
    "slice": ("dim",),
    "mask": (),
    "all_gather": ("dim",),
    "reduce_scatter": ("dim",),
    "all_reduce": ("reduction",),
    "all_to_all": ("dim", "to"),
    "permute": ("source", "target"),
    "stage_sum": (),
}
