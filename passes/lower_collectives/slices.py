"""Slices of a stream along a factor of all results and all moving values, so that its slots fit the fast memory."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import Final

from wscc.ir.op import Op
from wscc.ir.views import View, sliced
from wscc.passes.lower_collectives.stream_instance import Span, StreamInstance

# A shard may take one part in so many of the bytes for temporaries: a stream holds several at once.
SHARDS: Final = 6
# The same where only results move: two slices are in flight at once.
_GROWING: Final = 9
# Operands that every slice reads and results that stay may take so many times the bytes for temporaries.
_RESIDENT: Final = 6
# Up to so many times the bytes for temporaries, operands that every slice reads again are sure to stay there.
_NEAR: Final = 4
# Operands of so many times those bytes leave room for most else.
_LITTLE: Final = 2


def slices(s: StreamInstance, shared: Set[str] = frozenset()) -> Slices:
    """The stream itself if its shards are small, else as few slices of it as make them small.

    `shared`: factors of which dies have parts that each slice gathers or reduces; a cut along another one takes some of
    each part, so that all dies and links are busy with it.
    Along a factor that no result has, each slice adds to the sums of the one before, which have the type of sums.
    """
    needed = _needed(s)
    cut = _best_cut(s, needed, _sliceable(s), shared) if needed > 1 else None
    if cut is None:
        return Slices([s], ())
    sums = _with_sums(s) if cut.adds_up else s
    parts = [on_span(sums, cut.factor, span) for span in cut.spans]
    if cut.adds_up:
        parts = [parts[0], *(replace(p, accumulate=(True,) * len(p.accumulate)) for p in parts[1:])]
    settled = tuple((w, x) for w, x in zip(s.writes, sums.writes, strict=True) if w != x)
    return Slices(parts, settled)


@dataclass(frozen=True, slots=True)
class Slices:
    """The slices of a stream in order. `sums`: results, and the temporaries in which their sums are after the last."""

    slices: list[StreamInstance]
    sums: tuple[tuple[View, View], ...]


@dataclass(frozen=True, slots=True)
class _Cut:
    """A cut of a stream along a factor: the span of each slice, and the bytes that all slices need at hand, beside
    their shards. `adds_up`: whether slices are parts of the sums that are the results."""

    factor: str
    spans: list[Span]
    resident: int
    adds_up: bool


def _needed(s: StreamInstance) -> int:
    """The number of slices of which the temporaries are small."""
    return -(-_temporary_bytes(s) // s.build.fast_bytes)


def _best_cut(s: StreamInstance, needed: int, factors: Sequence[str], shared: Set[str]) -> _Cut | None:
    """The cut along one of the factors that keeps fewest bytes at hand, if they fit; of equal ones one along a factor
    that is not shared, and the finest."""
    cuts = [c for c in (_cut(s, f, needed) for f in factors) if len(c.spans) > 1 and _fits_fast_memory(s, c)]
    near = _NEAR * s.build.fast_bytes
    return min(
        cuts,
        key=lambda c: (max(near, c.resident), c.adds_up, c.factor in shared, -len(c.spans)),
        default=None,
    )


def _cut(s: StreamInstance, factor: str, needed: int) -> _Cut:
    term, shape = _moving(s)
    sizes = dict(zip(term, shape, strict=True))
    adds_up = not any(factor in t for t in s.outs())
    resting = [
        (v, t) for i, (v, t) in enumerate(zip(s.reads, s.ins(), strict=True)) if i not in s.stream.moving_in
    ]
    resident = sum(v.bytes for v, t in resting if factor not in t)
    if adds_up:
        resident += sum(v.elements * v.dtype.accumulator.size for v in s.writes)
    tile = whole_tile(s.op, shape, term, factor, s.build.tile) if s.op.kind == "matmul" else 1
    return _Cut(factor, even_spans(sizes[factor], needed, tile), resident, adds_up)


def _moving(s: StreamInstance) -> tuple[Sequence[str], Sequence[int]]:
    """The term and the local shape of the first value that moves: a result, if there is one."""
    if s.stream.moving_out:
        j = s.stream.moving_out[0]
        return s.outs()[j], s.writes[j].shape
    i = s.stream.moving_in[0]
    return s.ins()[i], s.reads[i].shape


def _fits_fast_memory(s: StreamInstance, cut: _Cut) -> bool:
    """Whether what every slice of a cut needs fits the fast memory, beside the results that stay.

    A slice needs its part of these alone, and of operands that have the factor; but what fills much of the memory is
    worth its place there only if all else fits beside it.
    """
    if not cut.resident:
        return True
    beside = 0
    stationary = sum(v.bytes for j, v in enumerate(s.writes) if j not in s.stream.moving_out)
    if cut.resident <= _LITTLE * s.build.fast_bytes:
        beside = stationary // len(cut.spans)
    elif not cut.adds_up:
        reads = sum(v.bytes for i, v in enumerate(s.reads) if i not in s.stream.moving_in)
        beside = reads - cut.resident + stationary
    return cut.resident + beside <= _RESIDENT * s.build.fast_bytes


def _with_sums(s: StreamInstance) -> StreamInstance:
    """The stream with results in temporaries of the type of sums."""
    sums = (s.build.buffer(f"{s.group}.sums", v.shape, v.dtype.accumulator) for v in s.writes)
    return replace(s, writes=tuple(sums))


def _temporary_bytes(s: StreamInstance) -> int:
    """The bytes of temporaries that the unsliced stream needs."""
    operands = [s.reads[i].bytes for i in s.stream.moving_in]
    results = [s.writes[j].bytes for j in s.stream.moving_out]
    gathered = sum(operands) * s.groups.size if results else 0
    shards = _GROWING if results and not operands else SHARDS
    return max(*(n * shards for n in (*operands, *results)), gathered)


def _sliceable(s: StreamInstance) -> list[str]:
    """Factors that may be sliced: all moving values and all results have them, and no kernel needs their coordinates.

    The streamed factor comes last. It may be sliced unless operands are gathered whole before; of a product whose
    results do not have it, the slices add up.
    """
    rule, streamed = s.op.rule, s.stream.factor
    term, _ = _moving(s)
    terms = [*(s.ins()[i] for i in s.stream.moving_in), *rule.outs]
    cut = {f for f, _ in s.cuts}
    free = [f for f in term if f not in rule.whole | rule.streamed | rule.indexed | cut]
    sliceable = [f for f in free if f != streamed and all(f in t for t in terms)]
    if streamed in free and not (s.stream.moving_in and s.stream.moving_out) and _takes_slices(s, terms):
        sliceable.append(streamed)
    return sliceable


def _takes_slices(s: StreamInstance, terms: Sequence[Sequence[str]]) -> bool:
    """Whether slices of the streamed factor are parts of all results, or of sums that start empty, in locals."""
    streamed = s.stream.factor
    if all(streamed in t for t in terms):
        return True
    adds_up = s.op.kind == "matmul" and not s.stream.moving_out and not any(streamed in t for t in s.outs())
    return adds_up and not any(s.accumulate) and all(v.dtype is not v.dtype.accumulator for v in s.writes)


def whole_tile(op: Op, shape: Sequence[int], term: Sequence[str], factor: str, tile: int) -> int:
    """The indices of a factor that make a tile of a product, together with the factors inside it that are part of the
    same side of the matrix: all that the same operands and results have. `shape`, `term`: those of a value."""
    terms = (*op.rule.ins, *op.rule.outs)
    inside = [(f, n) for f, n in zip(term, shape, strict=True)][term.index(factor) + 1 :]
    run = prod(n for f, n in inside if all((f in t) == (factor in t) for t in terms))
    return max(1, tile // run)


def even_spans(size: int, needed: int, tile: int) -> list[Span]:
    """At most `needed` spans of about equal size, all but the last of whole tiles."""
    tiles = -(-size // tile)
    parts = min(needed, tiles)
    edges = [min(tiles * i // parts * tile, size) for i in range(parts + 1)]
    return [(low, high - low) for low, high in pairwise(edges)]


def on_span(s: StreamInstance, factor: str, span: Span) -> StreamInstance:
    """The stream on this span of a factor alone; views may be there for the span alone."""
    is_streamed = factor == s.stream.factor

    def slice_view(view: View, term: Sequence[str], *, is_moving: bool) -> View:
        if factor not in term or (is_streamed and not is_moving) or view.shape[term.index(factor)] == span[1]:
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
        cuts=(*s.cuts, (factor, span)),
    )
