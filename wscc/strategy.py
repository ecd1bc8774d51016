"""What the letters of a strategy mean. An axis is four words of policy; nothing else knows its name.

`seed`: the dimensions of a model input that it may split, tried in order. `splits`: `tokens`, ops follow the
activations they read; `weights`, an op with a weight must split one of its factors; `layers`, the chain of
segments is cut. `store`: at rest, parameters lie as they are used (`used`); or that, and the optimizer's state
is sharded over the axis (`state`); or parameters and all that belongs to them are (`shard`). `stream`: what is
gathered for an op, or reduce-scattered from it, travels round the axis in chunks instead (TATP, arXiv
2512.14256; of keys and values, ring attention, arXiv 2310.01889).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Final, Literal

BATCH, SEQUENCE = 0, 1


Store = Literal["used", "state", "shard"]


@dataclass(frozen=True, slots=True)
class Policy:
    seed: tuple[int, ...] = ()
    splits: Literal["tokens", "weights", "layers"] = "tokens"
    store: Store = "used"
    stream: bool = False


# In the order of the logical mesh, major first: stages are blocks of dies, the last axis holds the closest neighbours.
POLICIES: Final[dict[str, Policy]] = {
    "pp": Policy(splits="layers"),
    "dp": Policy(seed=(BATCH,)),
    "sp": Policy(seed=(SEQUENCE,), stream=True),
    "tp": Policy(splits="weights"),
    "tatp": Policy(seed=(BATCH, SEQUENCE), store="shard", stream=True),
}


# What `zero` of the training makes of the replicas of a batch axis.
_ZERO: Final[dict[int, Store]] = {0: "used", 1: "state", 3: "shard"}


def policy(axis: str) -> Policy:
    return POLICIES[axis]


def stage_axes(axes: Iterable[str]) -> list[str]:
    """The axes that cut the chain of segments, of which a strategy has one at most."""
    return [a for a in axes if POLICIES[a].splits == "layers"]


def store(axis: str, zero: int) -> Store:
    """How parameters rest along the axis: as its policy says, or as `zero` makes of an axis of replicas."""
    own = POLICIES[axis]
    replicas = own.store == "used" and own.seed == (BATCH,)
    return _ZERO[zero] if replicas else own.store


def mesh_axes(degrees: dict[str, int]) -> tuple[tuple[str, int], ...]:
    """The axes of a strategy in mesh order; axes of degree 1 are left out. The front end has checked names."""
    return tuple((a, degrees[a]) for a in POLICIES if degrees.get(a, 1) > 1)


def dies_of(axes: tuple[tuple[str, int], ...]) -> int:
    return prod(n for _, n in axes)
