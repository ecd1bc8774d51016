"""Streams in slices: along a factor that all results and all that moves have, so that slots fit the fast memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from wscc.ir.views import View, sliced
from wscc.passes.lower_collectives.stream_site import StreamSite

# The first index and the number of indices.
Span = tuple[int, int]

# Of the bytes that temporaries may take, the part of one shard on its way: a stream holds several at once.
_SHARDS: Final = 6
# The same where only results move: two slices are on their way at once.
_GROWING: Final = 9
# What every slice reads may take so many times those bytes, with what it stays beside.
_NEAR: Final = 6


def slices(s: StreamSite) -> list[StreamSite]:
    """The stream itself if its shards are small, else in as few slices as make them so."""
    wanted = -(-_needed(s) // s.build.fast_bytes)
    if wanted <= 1:
        return [s]
    if s.stream.moving_out:
        j = s.stream.moving_out[0]
        term, shape = s.outs()[j], s.writes[j].shape
    else:
        i = s.stream.moving_in[0]
        term, shape = s.ins()[i], s.reads[i].shape
    tile = s.build.tile if s.op.kind == "matmul" else 1
    choices = [(_spans(shape[term.index(f)], wanted, tile), f) for f in _free(s, term)]
    spans, factor = next(
        (c for c in choices if len(c[0]) == wanted), max(choices, key=_count, default=([], ""))
    )
    if len(spans) < 2 or not _stays_near(s, factor):
        return [s]
    return [_slice(s, factor, span) for span in spans]


def _stays_near(s: StreamSite, factor: str) -> bool:
    """Whether what every slice reads again fits the fast memory, beside the rest of the op."""
    reads = [
        (v, t) for i, (v, t) in enumerate(zip(s.reads, s.ins(), strict=True)) if i not in s.stream.moving_in
    ]
    if all(factor in t for _, t in reads):
        return True
    kept = [v for j, v in enumerate(s.writes) if j not in s.stream.moving_out]
    return sum(v.bytes for v in (*(v for v, _ in reads), *kept)) <= _NEAR * s.build.fast_bytes


def _count(choice: tuple[list[Span], str]) -> int:
    return len(choice[0])


def _needed(s: StreamSite) -> int:
    """Bytes that would have to be at most those of temporaries."""
    operands = [s.reads[i].bytes for i in s.stream.moving_in]
    results = [s.writes[j].bytes for j in s.stream.moving_out]
    gathered = sum(operands) * s.along.size if results else 0
    shards = _GROWING if results and not operands else _SHARDS
    return max(*(n * shards for n in (*operands, *results)), gathered)


def _free(s: StreamSite, term: Sequence[str]) -> list[str]:
    """Factors that may be cut: all that moves and all results have them, and no kernel asks where they begin."""
    rule = s.op.rule
    terms = [*(s.ins()[i] for i in s.stream.moving_in), *rule.outs]
    free = [
        f for f in term if f not in rule.whole | rule.streamed | rule.indexed and all(f in t for t in terms)
    ]
    # Shards that were gathered are whole: the streamed factor comes last, and only where they were not.
    cut = s.stream.factor
    last = [cut] if cut in free and not (s.stream.moving_in and s.stream.moving_out) else []
    return [f for f in free if f != cut] + last


def _spans(size: int, wanted: int, tile: int) -> list[Span]:
    """So many spans, or fewer, of about equal size, all but the last of whole tiles."""
    tiles = -(-size // tile)
    parts = min(wanted, tiles)
    edges = [min(tiles * i // parts * tile, size) for i in range(parts + 1)]
    return [(low, high - low) for low, high in pairwise(edges)]


def _slice(s: StreamSite, factor: str, span: Span) -> StreamSite:
    inner = factor == s.stream.factor

    def cut(view: View, term: Sequence[str], *, moves: bool) -> View:
        if factor not in term or (inner and not moves):
            return view
        return sliced(view, term.index(factor), *span)

    return replace(
        s,
        reads=tuple(
            cut(v, t, moves=i in s.stream.moving_in)
            for i, (v, t) in enumerate(zip(s.reads, s.ins(), strict=True))
        ),
        writes=tuple(
            cut(v, t, moves=j in s.stream.moving_out)
            for j, (v, t) in enumerate(zip(s.writes, s.outs(), strict=True))
        ),
        part=span if inner else None,
    )
