"""Tiles of an op whose operands fit the fast memory; of attention, tiles of batch, heads and queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from math import prod
from typing import Final

from wscc.ir.types import DType
from wscc.ir.views import View, sliced
from wscc.passes.lower_collectives.builder import FabricBuilder
from wscc.passes.lower_collectives.op_instance import OpInstance

# The fewest queries of a tile: fewer would not fill a matrix unit.
_QUERIES: Final = 128


@dataclass(frozen=True, slots=True)
class Tile:
    """A part of an op: first index and number of indices by factor; factors that are whole are absent."""

    spans: dict[str, tuple[int, int]]

    def start(self, factor: str) -> int:
        """The first index of a factor."""
        return self.spans.get(factor, (0, 0))[0]

    def of(self, s: OpInstance) -> OpInstance:
        """The instance of the op on this tile alone."""
        return replace(
            s,
            reads=tuple(self._tile_view(v, term) for v, term in zip(s.reads, s.rule.ins, strict=True)),
            writes=tuple(self._tile_view(v, term) for v, term in zip(s.writes, s.rule.outs, strict=True)),
        )

    def _tile_view(self, view: View, term: Sequence[str]) -> View:
        for dim, factor in enumerate(term):
            if factor in self.spans:
                view = sliced(view, dim, *self.spans[factor])
        return view


def tiles(sizes: dict[str, int], queries: Sequence[str], row: int, limit: int) -> Iterator[Tile]:
    """Tiles of equal size whose scores take at most `limit` bytes, if heads and runs of `_QUERIES` queries allow it.

    `queries`: the factors `b q h.. e` of the operand, of these `sizes`; `row`: bytes of scores for one query and head.
    Tiles of one head come one after the other.
    """
    batch, rows, *heads = queries[:-1]
    parts = dict.fromkeys((batch, *heads, rows), 1)
    for factor in parts:
        others = row * prod(sizes[f] // n for f, n in parts.items() if f != factor)
        minimum = min(sizes[factor], _QUERIES) if factor == rows else 1
        parts[factor] = _pieces(sizes[factor], max(limit // others, minimum))
    split_factors = [f for f, n in parts.items() if n > 1]
    for indices in product(*(range(parts[f]) for f in split_factors)):
        extent = {f: sizes[f] // parts[f] for f in split_factors}
        yield Tile({f: (i * extent[f], extent[f]) for f, i in zip(split_factors, indices, strict=True)})


def _pieces(size: int, limit: int) -> int:
    """The least number of equal pieces of at most `limit`."""
    return next(n for n in range(1, size + 1) if size % n == 0 and size // n <= limit)


def pieces(s: OpInstance) -> Iterator[OpInstance]:
    """The op in pieces of about equal size whose operands and results take at most the bytes for temporaries.

    They are cut along the largest factor that all results have and that no kernel needs whole, if there is one.
    """
    rule = s.rule
    free = [
        f for f in rule.outs[0] if f not in rule.whole | rule.indexed and all(f in out for out in rule.outs)
    ]
    needed = -(-sum(v.bytes for v in (*s.reads, *s.writes)) // s.build.fast_bytes)
    if needed < 2 or not free:
        yield s
        return
    count = 1 << (needed - 1).bit_length()  # powers of two, so that pieces of different ops nest
    factor = max(free, key=s.size)
    size = s.size(factor)
    edges = [size * i // count for i in range(count + 1)]
    for low, high in pairwise(edges):
        if low < high:
            yield Tile({factor: (low, high - low)}).of(s)


@dataclass(slots=True)
class Scratch:
    """Temporaries that tiles of an op reuse in turn."""

    build: FabricBuilder
    buffers: dict[tuple[str, tuple[int, ...]], View] = field(default_factory=dict)

    def buffer(self, hint: str, shape: tuple[int, ...], dtype: DType) -> View:
        """The local of this name hint and shape."""
        key = (hint, shape)
        if key not in self.buffers:
            self.buffers[key] = self.build.buffer(hint, shape, dtype)
        return self.buffers[key]

    def like(self, view: View, hint: str) -> View:
        """The local of this name hint with the shape and type of a view."""
        return self.buffer(hint, view.shape, view.dtype)
