"""Growth of the batch of a call, and of its positions, so that the axes that split tokens divide them."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Final

from wscc.analysis.equal_dims import Dim
from wscc.analysis.sequence_dims import TokenDims, made_positions
from wscc.disjoint_sets import DisjointSets
from wscc.ir.array import Kind
from wscc.ir.module import Module
from wscc.strategy import SEQUENCE, policy

Sizes = dict[Dim, tuple[int, int]]

# The most that a dimension grows so that axes divide it which share out its storage alone: its pads are work added,
# and what is won is an operand that travels in chunks of rows instead of columns.
STORAGE_LIMIT: Final = Fraction(1, 64)


def needs_tokens(module: Module) -> bool:
    """Whether pads may be of use: a degree does not divide an input, or the model makes positions of its own."""
    shapes = [a.type.shape for a in module.arrays if a.kind is Kind.INPUT]
    degrees = [(n, policy(a).seed) for a, n in module.axes if policy(a).seed]
    divide = all(n % degree == 0 for degree, seed in degrees for s in shapes for n in s[: max(seed) + 1])
    return bool(shapes and degrees) and (not divide or any(made_positions(module)))


def grown_tokens(module: Module, classes: DisjointSets[Dim], limit: Fraction) -> Sizes:
    """The size before and after, by the root of its class, of what grows: sequences and positions of inputs, and
    positions that the model makes."""
    tokens = TokenDims.of(module, limit)
    inputs = {classes["", a, d]: sizes for (a, d), sizes in tokens.sizes.items()}
    degrees = [(module.sizes[a], limit) for a, dim in tokens.axes.items() if dim == SEQUENCE]
    degrees += [(n, min(limit, STORAGE_LIMIT)) for a, n in module.axes if policy(a).splits == "weights"]
    known = inputs.keys() | {
        classes["", a.name, d] for a in module.arrays if a.unpadded for d in range(len(a.type.shape))
    }
    made = {root: (n, rounded_up(n, degrees)) for root, n in _made(module, classes) if root not in known}
    return {root: s for root, s in (inputs | made).items() if s[1] > s[0]}


def rounded_up(size: int, degrees: list[tuple[int, Fraction]]) -> int:
    """The least size of at least `size` that all degrees together divide, but those for which it would grow too far."""
    padded, multiple = size, 1
    for degree, limit in degrees:
        larger = -(-size // (multiple * degree)) * multiple * degree
        if larger - size <= limit * size:
            padded, multiple = larger, multiple * degree
    return padded


def _made(module: Module, classes: DisjointSets[Dim]) -> Iterator[tuple[Dim, int]]:
    """The classes of positions that ops make, with their sizes."""
    shapes = {(p.name, v.name): v.type.shape for p in module.procedures for op in p.ops for v in op.results}
    for procedure, value, d in made_positions(module):
        yield classes[procedure, value, d], shapes[procedure, value][d]
