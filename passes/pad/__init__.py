"""Pads where a degree does not divide what its axis should split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from wscc.analysis.equal_dims import equal_dims
from wscc.ir.module import Module
from wscc.passes.base import Fact, Pass
from wscc.passes.pad.classes import paddable
from wscc.passes.pad.rewrite import Rewriter
from wscc.passes.pad.seen import Seen
from wscc.passes.pad.tokens import STORAGE_LIMIT, Sizes, grown_tokens, needs_tokens, rounded_up
from wscc.strategy import PADS, Degrees, policy, store


@dataclass(frozen=True, slots=True)
class Pad(Pass):
    """Round up dimensions that the degrees of the axes do not divide.

    A class of equal dimensions of a weight, from array to array through all ops (`equal_dims`), grows as a whole, if
    zeros in its pads stay zeros in every forward op that has it (`zeros`), so that they do in every gradient and
    update. That holds for the vocabulary, the width between two products, and heads with their keys and values; not for
    what a norm counts. `limit` is the most that it may grow, in percent; beyond it, the dimension stays as it is.

    The sequences of a call, their positions, and those that the model makes (a class token and its patches) grow
    likewise for the axes that split them. Their pads are no zeros, and seen nowhere (`unseen`): keys in pads are hidden
    by `limit`, labels of pads are ignored, and an op that would see pads works on what is cut off before them.

    The host fills and reads the model's part of an array, `Array.unpadded`.

    Before: array %wte : f32[50257,768] kind=param
    After:  array %wte : f32[50258,768] kind=param unpadded=(50257, 768)
    """

    name: ClassVar[str] = "pad"
    requires: ClassVar[frozenset[Fact]] = frozenset({Fact.DIFFERENTIATED})
    provides: ClassVar[frozenset[Fact]] = frozenset({Fact.PADDED})

    limit: int = PADS

    def run(self, module: Module) -> Module:
        limit = Fraction(self.limit, 100)
        degrees = [*_degrees(module.axes, module.train.zero, limit)]
        seen = Seen.of(module) if needs_tokens(module) else Seen({}, frozenset())
        tokens = _tokens(module, seen, limit) if seen.factors else {}
        weights = _weights(module, degrees, tokens) if degrees else {}
        if not tokens and not weights:
            return module
        return Rewriter(weights, tokens, seen).module(module)


def _tokens(module: Module, seen: Seen, limit: Fraction) -> Sizes:
    """The sizes of dimensions that are sequences and positions, before and after. An op that would see their pads links
    none of its dimensions: it works on the model's part of each."""
    classes = equal_dims(module, seen.sees)
    grown = grown_tokens(module, classes, limit)
    return {dim: grown[classes[dim]] for dim in [*classes] if classes[dim] in grown}


def _weights(module: Module, degrees: list[tuple[int, Fraction]], tokens: Sizes) -> Sizes:
    """The sizes of dimensions of weights, before and after, but those that are `tokens`."""
    classes = equal_dims(module)
    taken = {classes[dim] for dim in tokens}
    sizes = {root: (n, rounded_up(n, degrees)) for root, n in paddable(module, classes).items()}
    grown = {root: s for root, s in sizes.items() if s[1] > s[0] and root not in taken}
    return {dim: grown[classes[dim]] for dim in [*classes] if classes[dim] in grown}


def _degrees(axes: Degrees, zero: int, limit: Fraction) -> Iterator[tuple[int, Fraction]]:
    """The degree of each axis that a dimension of a weight should divide by, and the most that it may grow for that:
    first the axes that split the work, then those that shard what is stored."""
    yield from ((n, limit) for a, n in axes if policy(a).splits == "weights")
    yield from ((n, min(limit, STORAGE_LIMIT)) for a, n in axes if store(a, zero) == "shard")
