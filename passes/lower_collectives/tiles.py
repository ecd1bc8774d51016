"""Parts of an op whose operands fit the fast memory; of attention: parts of batch, heads and queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from math import prod
from typing import Final

from wscc.ir.types import DType
from wscc.ir.views import View, sliced
from wscc.passes.lower_collectives.builder import FabricBuilder
from wscc.passes.lower_collectives.site import Site

# Fewer queries would not fill a matrix unit.
_QUERIES: Final = 128


@dataclass(frozen=True, slots=True)
class Tile:
    """By factor, the first index and the number of indices; factors that are whole are absent."""

    spans: dict[str, tuple[int, int]]

    def start(self, factor: str) -> int:
        return self.spans.get(factor, (0, 0))[0]

    def of(self, s: Site) -> Site:
        """The op on this tile alone."""
        return replace(
            s,
            reads=tuple(self._cut(v, term) for v, term in zip(s.reads, s.rule.ins, strict=True)),
            writes=tuple(self._cut(v, term) for v, term in zip(s.writes, s.rule.outs, strict=True)),
        )

    def _cut(self, view: View, term: Sequence[str]) -> View:
        for dim, factor in enumerate(term):
            if factor in self.spans:
                view = sliced(view, dim, *self.spans[factor])
        return view


def tiles(sizes: dict[str, int], queries: Sequence[str], row: int, most: int) -> Iterator[Tile]:
    """Tiles of equal size whose scores, of `row` bytes for a query and head, take at most `most` bytes, if heads and
    runs of `_QUERIES` queries allow it.
    `queries` are the factors `b q h.. e` of the operand, of the `sizes`; those of one head come one after the other."""
    batch, rows, *heads = queries[:-1]
    parts = dict.fromkeys((batch, *heads, rows), 1)
    for factor in parts:
        others = row * prod(sizes[f] // n for f, n in parts.items() if f != factor)
        least = min(sizes[factor], _QUERIES) if factor == rows else 1
        parts[factor] = _pieces(sizes[factor], max(most // others, least))
    cut = [f for f, n in parts.items() if n > 1]
    for indices in product(*(range(parts[f]) for f in cut)):
        each = {f: sizes[f] // parts[f] for f in cut}
        yield Tile({f: (i * each[f], each[f]) for f, i in zip(cut, indices, strict=True)})


def _pieces(size: int, most: int) -> int:
    """The fewest equal pieces of at most `most`."""
    return next(n for n in range(1, size + 1) if size % n == 0 and size // n <= most)


def pieces(s: Site) -> Iterator[Site]:
    """The op in parts of about equal size whose operands and results take at most the bytes of temporaries, along the
    largest factor that all results have and that no kernel needs whole, if there is one."""
    rule = s.rule
    free = [
        f for f in rule.outs[0] if f not in rule.whole | rule.indexed and all(f in out for out in rule.outs)
    ]
    needed = -(-sum(v.bytes for v in (*s.reads, *s.writes)) // s.build.fast_bytes)
    if needed < 2 or not free:
        yield s
        return
    wanted = 1 << (needed - 1).bit_length()  # so that parts of different ops lie within one another
    factor = max(free, key=s.size)
    size = s.size(factor)
    edges = [size * i // wanted for i in range(wanted + 1)]
    for low, high in pairwise(edges):
        if low < high:
            yield Tile({factor: (low, high - low)}).of(s)


@dataclass(slots=True)
class Scratch:
    """Locals that tiles use one after the other."""

    build: FabricBuilder
    known: dict[tuple[str, tuple[int, ...]], View] = field(default_factory=dict)

    def buffer(self, hint: str, shape: tuple[int, ...], dtype: DType) -> View:
        """The local of this name and shape."""
        key = (hint, shape)
        if key not in self.known:
            self.known[key] = self.build.buffer(hint, shape, dtype)
        return self.known[key]

    def like(self, view: View, hint: str) -> View:
        return self.buffer(hint, view.shape, view.dtype)
