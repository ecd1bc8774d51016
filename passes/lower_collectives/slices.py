"""Slices of a stream along a factor of all results and all moving values, so that its slots fit the fast memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Final

from wscc.ir.views import View, sliced
from wscc.passes.lower_collectives.stream_instance import StreamInstance

# (first index, number of indices)
Span = tuple[int, int]

# A shard may take one part in so many of the bytes for temporaries: a stream holds several at once.
_SHARDS: Final = 6
# The same where only results move: two slices are in flight at once.
_GROWING: Final = 9
# Operands that every slice reads and results that stay may take so many times the bytes for temporaries.
_RESIDENT: Final = 6


def slices(s: StreamInstance) -> list[StreamInstance]:
    """The stream itself if its shards are small, else as few slices of it as make them small."""
    needed = -(-_temporary_bytes(s) // s.build.fast_bytes)
    if needed <= 1:
        return [s]
    if s.stream.moving_out:
        j = s.stream.moving_out[0]
        term, shape = s.outs()[j], s.writes[j].shape
    else:
        i = s.stream.moving_in[0]
        term, shape = s.ins()[i], s.reads[i].shape
    sizes = dict(zip(term, shape, strict=True))
    options = [(_spans(sizes[f], needed, _whole_tiles(s, term, sizes, f)), f) for f in _sliceable(s, term)]
    spans, factor = next(
        (c for c in options if len(c[0]) == needed), max(options, key=_span_count, default=([], ""))
    )
    if len(spans) < 2 or not _fits_fast_memory(s, factor):
        return [s]
    return [_slice(s, factor, span) for span in spans]


def _fits_fast_memory(s: StreamInstance, factor: str) -> bool:
    """Whether the operands that every slice reads again fit the fast memory, beside the results that stay."""
    reads = [
        (v, t) for i, (v, t) in enumerate(zip(s.reads, s.ins(), strict=True)) if i not in s.stream.moving_in
    ]
    if all(factor in t for _, t in reads):
        return True
    stationary = [v for j, v in enumerate(s.writes) if j not in s.stream.moving_out]
    return sum(v.bytes for v in (*(v for v, _ in reads), *stationary)) <= _RESIDENT * s.build.fast_bytes


def _span_count(choice: tuple[list[Span], str]) -> int:
    return len(choice[0])


def _temporary_bytes(s: StreamInstance) -> int:
    """The bytes of temporaries that the unsliced stream needs."""
    operands = [s.reads[i].bytes for i in s.stream.moving_in]
    results = [s.writes[j].bytes for j in s.stream.moving_out]
    gathered = sum(operands) * s.groups.size if results else 0
    shards = _GROWING if results and not operands else _SHARDS
    return max(*(n * shards for n in (*operands, *results)), gathered)


def _sliceable(s: StreamInstance, term: Sequence[str]) -> list[str]:
    """Factors that may be sliced: all moving values and all results have them, and no kernel needs their
    coordinates."""
    rule = s.op.rule
    terms = [*(s.ins()[i] for i in s.stream.moving_in), *rule.outs]
    sliceable = [
        f for f in term if f not in rule.whole | rule.streamed | rule.indexed and all(f in t for t in terms)
    ]
    # The streamed factor comes last, and is excluded where operands are gathered, since their shards are whole then.
    streamed = s.stream.factor
    is_allowed = streamed in sliceable and not (s.stream.moving_in and s.stream.moving_out)
    return [f for f in sliceable if f != streamed] + ([streamed] if is_allowed else [])


def _whole_tiles(s: StreamInstance, term: Sequence[str], sizes: dict[str, int], factor: str) -> int:
    """The indices of a factor that make a tile of a product, together with the factors inside it that are part of the
    same side of the matrix: all that the same operands and results have."""
    if s.op.kind != "matmul":
        return 1
    terms = (*s.ins(), *s.outs())
    inside = term[term.index(factor) + 1 :]
    run = prod(sizes[f] for f in inside if all((f in t) == (factor in t) for t in terms))
    return max(1, s.build.tile // run)


def _spans(size: int, needed: int, tile: int) -> list[Span]:
    """At most `needed` spans of about equal size, all but the last of whole tiles."""
    tiles = -(-size // tile)
    parts = min(needed, tiles)
    edges = [min(tiles * i // parts * tile, size) for i in range(parts + 1)]
    return [(low, high - low) for low, high in pairwise(edges)]


def _slice(s: StreamInstance, factor: str, span: Span) -> StreamInstance:
    """The stream on this span of a factor alone."""
    is_streamed = factor == s.stream.factor

    def slice_view(view: View, term: Sequence[str], *, is_moving: bool) -> View:
        if factor not in term or (is_streamed and not is_moving):
            return view
        return sliced(view, term.index(factor), *span)

    return replace(
        s,
        reads=tuple(
            slice_view(v, t, is_moving=i in s.stream.moving_in)
            for i, (v, t) in enumerate(zip(s.reads, s.ins(), strict=True))
        ),
        writes=tuple(
            slice_view(v, t, is_moving=j in s.stream.moving_out)
            for j, (v, t) in enumerate(zip(s.writes, s.outs(), strict=True))
        ),
        part=span if is_streamed else None,
    )
