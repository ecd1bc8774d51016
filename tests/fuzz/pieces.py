"""The statements that random models are made of.

`x` and `y` are [batch, seq, d], `z` is [batch, seq, f], `t` is [d, d] and made of parameters alone; what stands in
braces is a parameter of `PARAMS`, of the statement's own or shared by all that ask for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Param:
    """Dimensions by name; `is_multiplied`: by a matrix product or a lookup, so strategies must split it."""

    dims: tuple[str, ...]
    init: str = "normal(0.3)"
    is_multiplied: bool = True


PARAMS: Final[dict[str, Param]] = {
    "w": Param(("d", "f")),
    "u": Param(("d", "f")),
    "v": Param(("f", "d")),
    "s": Param(("d", "d")),
    "wqkv": Param(("d", "3", "heads", "e")),
    "bqkv": Param(("3", "heads", "e"), "normal(0.1)", False),
    "wo": Param(("heads", "e", "d")),
    "wq": Param(("d", "kv", "group", "e")),
    "wk": Param(("d", "kv", "e")),
    "wv": Param(("d", "kv", "e")),
    "wp": Param(("kv", "group", "e", "d")),
    "table": Param(("vocab", "d")),
    # Matrices that only other parameters meet before a product does.
    "m": Param(("d", "f"), is_multiplied=False),
    "n": Param(("d", "f"), is_multiplied=False),
    "sum": Param(("d", "d"), is_multiplied=False),
    "router": Param(("d", "experts")),
    "score": Param(("d", "heads")),
    "up": Param(("experts", "d", "f")),
    "gate": Param(("experts", "d", "f")),
    "down": Param(("experts", "f", "d")),
    "k": Param(("f",), "ones", False),
    "g": Param(("d",), "ones", False),
    "b": Param(("d",), "zeros", False),
    "c": Param(("f",), "normal(0.1)", False),
    "on_edges": Param(("2 * seq + 1",), "normal(0.3)", False),
    "pos": Param(("seq", "d"), "normal(0.3)", False),
    "cls": Param(("1", "d"), "normal(0.3)", False),
}


@dataclass(frozen=True, slots=True)
class Piece:
    """`text` with parameters in braces; `hidden` are those that a block call declares itself."""

    text: str
    hidden: tuple[str, ...] = ()

    @property
    def params(self) -> tuple[str, ...]:
        return tuple(p for p in PARAMS if f"{{{p}}}" in self.text)

    @property
    def uses_rope(self) -> bool:
        return "rope" in self.text

    @property
    def has_experts(self) -> bool:
        return "experts(" in self.text

    def uses(self, name: str) -> bool:
        """Whether it reads or sets `z` or `t`, which then are set before it."""
        return name in self.text.split()


_GQA = (
    "q = {rope}(project({norm}, {{wq}}))\n    k = {rope}(project({norm}, {{wk}}))\n"
    "    v = project({norm}, {{wv}})\n    x = x + project(attention(q, k, v{causal}), {{wp}})"
)

PIECES: Final[dict[str, Piece]] = {
    "mlp": Piece("x = x + gelu(layernorm(x, {g}, {b}) @ {w} + {c}) @ {v}"),
    "mlp_erf": Piece("x = x + gelu_erf(x @ {w}) @ {v} + {b}"),
    "dropout": Piece("x = x + dropout(x @ {s}, rate = 0.25)"),
    "own_gate": Piece("x = x + weigh(x @ {w} @ {v}, sigmoid(project(rmsnorm(x), {g})))"),
    "relu_minus": Piece("x = x - relu(x @ {w}) @ {v} / 3"),
    "swiglu": Piece("x = x + swiglu(rmsnorm(x, {g}) @ {w}, x @ {u}) @ {v}"),
    "norms": Piece("x = layernorm(x, {g}, {b}) * 0.5 + x"),
    "mha": Piece(
        "q, k, v = split(project(layernorm(x, {g}, {b}), {wqkv}) + {bqkv})\n"
        "    x = x + project(attention(q, k, v, causal), {wo})"
    ),
    "mha_full": Piece(
        "q, k, v = split(project(x, {wqkv}))\n    x = x + project(attention(q, k, v), {wo}) + {b}"
    ),
    "gqa_rope": Piece(_GQA.format(rope="rope", norm="rmsnorm(x, {g})", causal=", causal")),
    "gqa_full": Piece(_GQA.format(rope="rope", norm="x", causal="")),
    "gqa_windowed": Piece(
        _GQA.format(rope="rope", norm="rmsnorm(x, 1 + {g})", causal=", causal, window = 3")
    ),
    "gqa_capped": Piece(_GQA.format(rope="", norm="x", causal=", cap = 0.5")),
    "gqa_alibi": Piece(_GQA.format(rope="", norm="x", causal=", causal, alibi")),
    "mha_alibi": Piece(
        "q, k, v = split(project(x, {wqkv}))\n"
        "    x = x + project(attention(q, k, v, causal, alibi, window = 5, cap = 2), {wo})"
    ),
    "geglu": Piece("x = x + soft_cap(gelu(x @ {w}) * (x @ {u}) @ {v}, cap = 1.5)"),
    "gqa_plain": Piece(_GQA.format(rope="", norm="rmsnorm(x, {g})", causal=", causal")),
    "block": Piece("x = x + mlp(x, d, f)", hidden=("w", "v")),
    "edges": Piece("x = x + spmm(pairs, x @ {w}, mean) @ {v}"),
    "edge_attention": Piece(
        "q, k, v = split(project(x, {wqkv}))\n    l = x @ {score}\n"
        "    x = x + project(edge_attention(pairs, l, l * 0.5, v), {wo})"
    ),
    "edge_max": Piece("x = x + edge_max(pairs, x @ {w}) @ {v}"),
    "edge_sum": Piece("x = x + edge_sum(pairs, x @ {w}, {on_edges}) @ {v}"),
    "positions": Piece("x = x + {pos}"),
    "made_positions": Piece("x = x + ({pos} * 0.5 + {pos})"),
    "lookup": Piece("x = x + embedding(tokens, {table})"),
    "shared_up_and_down": Piece("x = x + gelu(x @ {w}) @ transpose({w})"),
    "float_input": Piece("x = x + images @ {v}"),
    "second_input": Piece("x = x + embedding(kinds, {table})"),
    "sum_of_weights": Piece("x = x + gelu(x @ ({m} + {n})) @ {v}"),
    "scaled_weight": Piece("x = x + gelu(x @ ({m} * 0.5)) @ {v}"),
    "gated_weight": Piece("x = x + gelu(x @ ({m} * {k})) @ {v}"),
    "normed_weight": Piece("x = x + gelu(x @ rmsnorm({m}, {k})) @ {v}"),
    "product_of_weights": Piece("x = x + gelu(x @ ({w} @ {v}))"),
    "divide": Piece("x = x + y / (x * x + {g})"),
    "gate": Piece("x = x + y * (x @ {s})"),
    "y_next": Piece("y = y / 2 + x"),
    "y_anew": Piece("y = gelu(x @ {s})"),
    "y_alone": Piece("y = relu(y @ {s}) - y"),
    "x_of_y": Piece("x = x - y / 4"),
    "swap": Piece("w = x\n    x = y * 0.5 + x\n    y = w"),
    "z_next": Piece("z = gelu( z ) + x @ {w}"),
    "z_anew": Piece("z = relu(x @ {w})"),
    "x_of_z": Piece("x = x + z @ {v}"),
    "t_next": Piece("t = t * 0.5 + {sum}"),
    "x_of_t": Piece("x = x + gelu(x @ t )"),
    "product_with_t": Piece("x = x - gelu(y @ ({s} @ t )) / 2"),
    "negative": Piece("x = -(y - x) * 0.5"),
}

# What becomes of `x` where a whole sequence has one label: the mean, or a class token that attention has told the rest.
# By name, the lines in front of the loss, with parameters in braces, and the operation that leaves one position.
POOLS: Final[dict[str, tuple[str, str]]] = {
    "": ("", ""),
    "mean": ("", "mean"),
    "token": (
        "x = concat({cls}, x)\n    q, k, v = split(project(x, {wqkv}))\n    x = x + project(attention(q, k, v), {wo})\n"
        "    y = concat(y, x)",
        "first",
    ),
}
EXPERTS: Final = {
    "mixture": Piece(
        "l = router(rmsnorm(x, {g}), {router})\n    gates, slots = route(l, renormalise, k = 1, capacity = 1.25)\n"
        "    r = dispatch(x, slots)\n"
        "    x = x + combine(experts(swiglu(experts(r, {gate}), experts(r, {up})), {down}), gates, slots)"
    ),
    "mixture_full": Piece(
        "l = router(x, {router})\n    gates, slots = route(l, k = experts)\n"
        "    x = x + combine(experts(gelu(experts(dispatch(x, slots), {up})), {down}), gates, slots)\n"
        "    loss 0.1 * balance(l, k = experts) + 0.01 * z_loss(l)"
    ),
}
PIECES.update(EXPERTS)

LOSSES: Final = (
    "cross_entropy({x}, labels)",
    "cross_entropy({x}, labels) * 0.5",
    "cross_entropy({x}, labels, smoothing = 0.2, z_loss = 1e-2)",
    "cross_entropy({x}, labels) + cross_entropy({y}, labels) / 4",
    "-(cross_entropy({y}, labels) / 2 - cross_entropy({x}, labels))",
)

BLOCK: Final = """block mlp(h, d, f) {
  param up : [d, f] init normal(0.3)
  param down : [f, d] init normal(0.3)
  return gelu(h @ up) @ down
}
"""
