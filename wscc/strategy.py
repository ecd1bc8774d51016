"""The axes of a strategy, each described by a policy of four words; nothing else knows an axis by its name.

`seed`: the dimensions of a model input that the axis may split, tried in order. `splits`: with `tokens`, ops follow
the activations that they read, and one that needs whole what they split has the choice of its other factors; with
`experts`, so do all ops but those whose weight has a factor of both activation and result, which they must split
(GShard, arXiv 2006.16668); with `weights`, an op with a weight must split one of its factors; with `layers`, the chain
of segments is cut into stages. `store` is the storage sharding of parameters: that of their use (`used`); the
same, and the optimizer's state is sharded over the axis (`state`); or parameters and all that belongs to them are
sharded over it (`shard`). `stream`: an operand that would be gathered, or a result that would be reduce-scattered,
travels round the axis in chunks while the op runs (TATP, arXiv 2512.14256; of keys and values, ring attention, arXiv
2310.01889).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import isqrt, prod
from typing import Final, Literal

# Dimensions of a model input.
BATCH, SEQUENCE = 0, 1

Degrees = tuple[tuple[str, int], ...]
# The most that a dimension grows by pads so that an axis divides it, in percent.
PADS: Final = 25
_MOST_SMALLER: Final = 10_000  # combinations of divisors

Store = Literal["used", "state", "shard"]


@dataclass(frozen=True, slots=True)
class Policy:
    """The four words of one axis; the module's docstring says what each means."""

    seed: tuple[int, ...] = ()
    splits: Literal["tokens", "experts", "weights", "layers"] = "tokens"
    store: Store = "used"
    stream: bool = False


# In the order of the logical mesh, major first: stages are blocks of dies, the last axis holds the closest neighbours.
POLICIES: Final[dict[str, Policy]] = {
    "pp": Policy(splits="layers"),
    "dp": Policy(seed=(BATCH,)),
    "ep": Policy(seed=(BATCH,), splits="experts"),
    "sp": Policy(seed=(SEQUENCE,), stream=True),
    "tp": Policy(splits="weights"),
    "tatp": Policy(seed=(BATCH, SEQUENCE), store="shard", stream=True),
}


# Storage sharding over an axis of replicas, by `zero` of the training.
_ZERO: Final[dict[int, Store]] = {0: "used", 1: "state", 3: "shard"}


def policy(axis: str) -> Policy:
    """The policy of the axis; `KeyError` if there is no such axis."""
    return POLICIES[axis]


def stage_axes(axes: Iterable[str]) -> list[str]:
    """The axes that cut the chain of segments, of which a strategy has one at most."""
    return [a for a in axes if POLICIES[a].splits == "layers"]


def nesting_order(axes: Iterable[str]) -> list[str]:
    """The axes in the order in which they split one dimension, major first.

    Axes that follow tokens come first: they stay on a dimension from op to op. Those of experts go from tokens to
    experts and back, those that split weights split the tokens of some ops and are gathered for others; both leave the
    rest in place only at the minor end.
    """
    return _in_order(axes, ("layers", "tokens", "experts", "weights"))


def search_order(axes: Iterable[str]) -> list[str]:
    """The axes in the order in which their splits are chosen: those of experts have no choice there, those that follow
    tokens have one at few ops, and those that split weights see what is left."""
    return _in_order(axes, ("layers", "experts", "tokens", "weights"))


def _in_order(axes: Iterable[str], splits: Sequence[str]) -> list[str]:
    order = list(POLICIES)
    return sorted(axes, key=lambda a: (splits.index(POLICIES[a].splits), order.index(a)))


def holds_replicas(axis: str) -> bool:
    """Whether dies along the axis hold equal parameters, which `zero` shares out: it splits data and nothing else."""
    words = POLICIES[axis]
    return words.store == "used" and bool(words.seed)


def repeats_model(axis: str) -> bool:
    """Whether each place on the axis takes sequences of its own, `microbatch` of them for a call."""
    return POLICIES[axis].seed == (BATCH,) and POLICIES[axis].splits == "tokens"


def splits_experts(axis: str) -> bool:
    """Whether the axis shares out experts, and the sequences of a call."""
    return POLICIES[axis].splits == "experts"


def store(axis: str, zero: int) -> Store:
    """Storage sharding of parameters over the axis: the policy's or, for an axis of replicas, that of `zero`."""
    return _ZERO[zero] if holds_replicas(axis) else POLICIES[axis].store


def mesh_axes(degrees: dict[str, int]) -> Degrees:
    """The axes of a strategy in mesh order; axes of degree 1 are left out. The front end has checked names."""
    return tuple((a, degrees[a]) for a in POLICIES if degrees.get(a, 1) > 1)


def dies_of(axes: Degrees) -> int:
    """Number of dies of a logical mesh, the product of its degrees."""
    return prod(n for _, n in axes)


def divisors(n: int) -> list[int]:
    """All divisors of a positive number, ascending."""
    small = [d for d in range(1, isqrt(n) + 1) if n % d == 0]
    return [*small, *(n // d for d in reversed(small) if d * d != n)]


def with_degree(axes: Degrees, axis: str, degree: int) -> Degrees:
    """The strategy with another degree of one axis."""
    return mesh_axes({**dict(axes), axis: degree})


def smaller(axes: Degrees, limit: int) -> list[Degrees]:
    """Strategies of fewer dies, at most `limit`, whose degrees divide those of `axes`, so that shapes still divide: the
    largest first, then those that give up least of the first axes."""
    sizes = [divisors(n) for _, n in axes]
    if prod(map(len, sizes)) > _MOST_SMALLER:
        return [()] if limit else []
    given_up = {}
    for degrees in product(*sizes):
        if prod(degrees) <= min(limit, dies_of(axes) - 1):
            lost = [n // d for (_, n), d in zip(axes, degrees, strict=True)]
            given_up[tuple(zip((a for a, _ in axes), degrees, strict=True))] = lost[::-1]
    ordered = sorted(given_up, key=lambda s: (-dies_of(s), given_up[s]))
    return [tuple((a, n) for a, n in s if n > 1) for s in ordered]
