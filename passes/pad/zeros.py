"""The factors of each forward op along which pads of zeros stay zeros and are seen nowhere else.

Where all operands that have a factor hold zeros in its pads, and so do the gradients of all results that have it, then

- the pads of each result are zeros, or never read (those of a maximum or sum of attention scores);
- results that lack the factor are as if there were no pads;
- the pads of each gradient of an operand are zeros, and gradients of operands that lack it are as if there were none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wscc.ir.op import Op


def _always(op: Op, factor: str) -> bool:
    return True


def _in_every_operand(op: Op, factor: str) -> bool:
    """An operand that lacks the factor repeats along it: into the pads of a sum; and the scores of a query head of
    zeros against keys that are none are 0, not its mean of the values."""
    return all(factor in term for term in op.rule.ins)


def _in_result(op: Op, factor: str) -> bool:
    """The gradient of a sum repeats along the factor, into its pads."""
    return factor in op.rule.outs[0]


def _undivided(op: Op, factor: str) -> bool:
    """Zeros would divide zeros."""
    return factor not in op.rule.ins[1]


def _positive_eps(op: Op, factor: str) -> bool:
    """A row of zeros is divided by the root of `eps`."""
    return float(op.attr("eps")) > 0


def _columns(op: Op, factor: str) -> bool:
    """The vocabulary: `limit` hides its pads, unless it does so for others already; no label picks one."""
    return factor in op.rule.indexed and not dict(op.attrs).get("limit")


# Forward ops without an entry, those of a user's own too, keep no pads.
KEEPS: Final[dict[str, Callable[[Op, str], bool]]] = {
    "matmul": _always,
    "add": _in_every_operand,
    "sub": _in_every_operand,
    "mul": _always,
    "div": _undivided,
    "scale": _always,
    "cast": _always,
    "split": _always,
    "stack": _always,
    "sum": _in_result,
    "concat": _in_every_operand,
    "cut": _always,
    "gelu": _always,
    "gelu_erf": _always,
    "relu": _always,
    "soft_cap": _always,
    "swiglu": _always,
    "rmsnorm": _positive_eps,
    "rope": _always,
    "embedding": _always,
    "spmm": _always,
    "edge_attention": _always,
    "edge_max": _always,
    "edge_sum": _always,
    "attention": _in_every_operand,
    "rowmax": _columns,
    "sumexp": _columns,
    "rowsum": _columns,
    "pick": _columns,
}


def keeps_zeros(op: Op, factor: str) -> bool:
    """Whether the factor of a forward op may have pads."""
    rule = op.rule
    if factor in rule.whole or factor in rule.streamed:
        return False
    return op.kind in KEEPS and KEEPS[op.kind](op, factor)
