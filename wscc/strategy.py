"""What the letters of a strategy mean. An axis is four words of policy; nothing else knows its name.

`seed`: the dimensions of a model input that it may split, tried in order. `splits`: `tokens`, ops follow the
activations they read; `weights`, an op with a weight must split one of its factors. `store`: parameters at
rest lie as they are used, or are also sharded over the axis. `stream`: what is gathered for an op, or
reduce-scattered from it, travels round the axis in chunks instead (TATP, arXiv 2512.14256).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final, Literal

from wscc.diagnostics import Code, fail

BATCH, SEQUENCE = 0, 1


@dataclass(frozen=True, slots=True)
class Policy:
    seed: tuple[int, ...] = ()
    splits: Literal["tokens", "weights"] = "tokens"
    store: Literal["used", "shard"] = "used"
    stream: bool = False


# In the order of the logical mesh, major first: the last axis holds the closest neighbours.
POLICIES: Final[dict[str, Policy]] = {
    "dp": Policy(seed=(BATCH,)),
    "tp": Policy(splits="weights"),
    "tatp": Policy(seed=(BATCH, SEQUENCE), store="shard", stream=True),
}


def policy(axis: str) -> Policy:
    return POLICIES[axis]


def mesh_axes(degrees: dict[str, int]) -> tuple[tuple[str, int], ...]:
    """The axes of a strategy in mesh order; axes of degree 1 are left out. Degrees are checked by the front end."""
    unknown = [a for a in degrees if a not in POLICIES]
    if unknown:
        raise fail(
            Code.DEGREE,
            f"the axis `{unknown[0]}` is not supported",
            help=f"the axes are {', '.join(POLICIES)}",
        )
    return tuple((a, degrees[a]) for a in POLICIES if degrees.get(a, 1) > 1)


def dies_of(axes: tuple[tuple[str, int], ...]) -> int:
    return prod(n for _, n in axes)
