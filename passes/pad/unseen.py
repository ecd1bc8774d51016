"""The factors of each forward op along which pads of positions or sequences are seen nowhere else.

Such pads are no zeros: a norm of zeros has a bias. But where each op works on every position by itself, the keys of
attention behind the last are hidden, labels of pads are ignored, and whoever joins positions reads none behind the
last, then

- results at the other positions are as if there were no pads, and those in pads are finite;
- the gradient of everything in pads is zero, so that gradients of weights are as if there were none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wscc.ir.op import Op


def _by_position(op: Op, factor: str) -> bool:
    """Each result has the factor: nothing is summed over it."""
    return all(factor in term for term in op.rule.outs)


def _undivided(op: Op, factor: str) -> bool:
    """Zeros, of a weight or made here, might divide."""
    return factor not in op.rule.ins[1] and _by_position(op, factor)


def _positive_eps(op: Op, factor: str) -> bool:
    """A row of zeros is divided by the root of `eps`."""
    return float(op.attr("eps")) > 0 and _by_position(op, factor)


def _hidden(op: Op, factor: str) -> bool:
    """Sequences, or positions of queries; or of keys, whose pads `limit` hides, unless it does so for others
    already."""
    keys = op.rule.ins[1][1]
    return factor in op.rule.ins[0][:2] or (factor == keys and not dict(op.attrs).get("limit"))


def _outermost(op: Op, factor: str) -> bool:
    """The places of elements count the dimensions behind the first of a sequence alone."""
    return factor in op.rule.ins[0][:2]


def _whole(op: Op, factor: str) -> bool:
    """The dimension that is made or taken apart: zeros stand behind the last part, and no part has them. Or one that
    all parts have."""
    whole = op.rule.outs[0] if op.kind == "concat" else op.rule.ins[0]
    return factor in whole


def _of_nodes(op: Op, factor: str) -> bool:
    """Nodes that no edge has; edges have no pads."""
    return factor not in op.rule.ins[0] and any(factor in term for term in op.rule.ins[1:])


_BY_POSITION: Final = (
    "matmul", "add", "sub", "mul", "scale", "cast", "split", "stack", "sum", "gelu", "gelu_erf", "relu", "sigmoid",
    "soft_cap", "swiglu", "rope", "embedding", "rowmax", "sumexp", "rowsum", "pick", "nll", "zloss", "dispatch",
    "combine",
)  # fmt: skip
# Forward ops without an entry, those of a user's own too, see pads.
UNSEEN: Final[dict[str, Callable[[Op, str], bool]]] = {
    **dict.fromkeys(_BY_POSITION, _by_position),
    "div": _undivided,
    "layernorm": _positive_eps,
    "rmsnorm": _positive_eps,
    "rsqrt": _positive_eps,
    "attention": _hidden,
    "dropout": _outermost,
    "concat": _whole,
    "cut": _whole,
    "spmm": _of_nodes,
    "edge_attention": _of_nodes,
    "edge_max": _of_nodes,
    "edge_sum": _of_nodes,
}


def hides_pads(op: Op, factor: str) -> bool:
    """Whether the factor of a forward op may have pads that are positions or sequences."""
    if factor in op.rule.whole and UNSEEN.get(op.kind) not in (_whole, _of_nodes):
        return False
    return op.kind in UNSEEN and UNSEEN[op.kind](op, factor)
