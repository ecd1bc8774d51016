"""The operations that a model may call, with their arguments, and the words that `train` accepts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Builtin:
    """`args` in order, then `flags`, bare words that may be left out; `options` go by name. `defaults` and `rows` are
    for ops of a user's own: values of options that are left out, and whether it takes whole rows (last dimension)."""

    name: str
    args: tuple[str, ...]
    flags: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    results: int | None = 1  # None: as many as the caller names
    more: tuple[str, ...] = ()  # arguments that may be left out, behind the others
    defaults: Mapping[str, float] = field(default_factory=dict)
    rows: bool = False

    def __str__(self) -> str:
        more = [f"[{a}]" for a in self.more]
        return f"{self.name}({', '.join([*self.args, *more, *self.flags, *(f'{o} = ...' for o in self.options)])})"


def _builtin(
    call: str, flags: str = "", options: str = "", results: int | None = 1, more: str = ""
) -> Builtin:
    name, _, args = call.partition("(")
    listed = tuple(a.strip() for a in args.rstrip(")").split(","))
    return Builtin(name, listed, tuple(flags.split()), tuple(options.split()), results, tuple(more.split()))


BUILTINS: Final[dict[str, Builtin]] = {
    b.name: b
    for b in (
        _builtin("embedding(ids, table)"),
        _builtin("layernorm(x)", options="eps", more="gain bias"),
        _builtin("rmsnorm(x)", options="eps", more="gain"),
        _builtin("split(x)", results=None),
        _builtin("mean(x)"),
        _builtin("concat(x, y)"),
        _builtin("first(x)"),
        _builtin("project(x, weight)"),
        _builtin("attention(q, k, v)", flags="causal alibi", options="window cap"),
        _builtin("gelu(x)"),
        _builtin("gelu_erf(x)"),
        _builtin("relu(x)"),
        _builtin("sigmoid(x)"),
        _builtin("soft_cap(x)", options="cap"),
        _builtin("weigh(x, w)"),
        _builtin("swiglu(gate, up)"),
        _builtin("dropout(x)", options="rate"),
        _builtin("rope(x)", flags="interleaved", options="theta width factor low high original"),
        _builtin("router(x, weight)"),
        _builtin("route(logits)", flags="renormalise", options="k capacity", results=2),
        _builtin("dispatch(x, slots)"),
        _builtin("experts(x, weight)"),
        _builtin("combine(y, gates, slots)"),
        _builtin("balance(logits)", options="k"),
        _builtin("z_loss(logits)"),
        _builtin("spmm(edges, x)", flags="mean symmetric"),
        _builtin("edge_attention(edges, s, t, values)", options="slope"),
        _builtin("edge_max(edges, x)"),
        _builtin("edge_sum(edges, x, weights)"),
        _builtin("transpose(x)"),
        _builtin("cross_entropy(logits, labels)", options="smoothing z_loss", more="weights"),
    )
}
INTEGERS: Final = {
    "embedding": 0,
    "cross_entropy": 1,
    "dispatch": 1,
    "combine": 2,
    "spmm": 0,
    "edge_attention": 0,
    "edge_max": 0,
    "edge_sum": 0,
}  # op -> position of its argument of integers
FLAGS: Final = frozenset(f for b in BUILTINS.values() for f in b.flags)
OPTIMIZERS: Final = {
    "adamw": ("lr", "beta1", "beta2", "eps", "weight_decay"),
    "sgd": ("lr",),
}
LR_SCHEDULES: Final = {"warmup": ("steps",), "cosine": ("steps", "floor")}
DECAYS: Final = ("all", "matrices")  # which parameters decay
SWITCH: Final = {"on": True, "off": False}
INITS: Final = {"zeros": 0, "ones": 0, "normal": 1}  # kind -> arguments
# The settings of `train`, in the order of the grammar.
SETTINGS: Final = (
    "batch", "microbatch", "data", "validation", "optimizer", "decay", "clip", "lr_schedule", "dtype", "recompute",
    "parallel", "stages", "zero", "interleave", "seed",
)  # fmt: skip
# Older spelling -> the setting: accepted, never printed or suggested.
OLDER_SPELLINGS: Final = {"schedule": "lr_schedule"}
EDGES: Final = "edges"  # the type of a list of pairs of nodes, `edges[count]`
INPUT_DTYPES: Final = ("i32", "f32", EDGES)
