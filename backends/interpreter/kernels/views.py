"""Operand views with as few leading dimensions as the strides of all operands allow.

The declaration of the instruction says which dimensions may merge: in `softmax  p[*,q,k] m[*,q] z[*,q]  s[*,q,k]` those
that `*` stands for are the same in all four operands, so [2,3,q,k] of a contiguous buffer becomes [6,q,k].
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from wscc.ir.streams.instructions import INSTRUCTIONS

# A function and its arguments.
Prepared = tuple[Callable[..., Any], tuple[Any, ...]]

# Opcodes whose operands do not share their leading dimensions.
_UNRELATED = frozenset({"sum", "post", "send"})
_OPERAND = re.compile(r"\w+(?:\[([^\]]*)\])?")
# Whose attributes speak of each dimension: none are merged.
_APART = frozenset({"dropout"})


@dataclass(frozen=True, slots=True)
class Shape:
    """The dimensions of a view of elements of `item` bytes; strides in bytes."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    item: int


@cache
def declared(opcode: str) -> tuple[tuple[str, ...], ...]:
    """The dimension names of every operand, writes first: `("*", "q", "k")`, or `("*",)` without names."""
    row = INSTRUCTIONS[opcode]
    operands = _OPERAND.finditer(f"{row.writes} {row.reads}")
    return tuple(("*",) if m[1] is None else tuple(d for d in m[1].split(",") if d) for m in operands)


def merged(opcode: str, views: Sequence[Shape]) -> tuple[Shape, ...]:
    """The views (writes first) with the dimensions of `*` as few as possible, but at least one.

    `ValueError` if ranks, or sizes of a dimension of the same name, do not fit the declaration.
    """
    if opcode in _UNRELATED:
        return tuple(views)
    terms = declared(opcode)
    if len(terms) != len(views):
        raise ValueError(f"`{opcode}` has {len(terms)} operands, not {len(views)}")
    spans = [_star(opcode, term, view) for term, view in zip(terms, views, strict=True)]
    starred = [i for i, span in enumerate(spans) if span is not None]
    _check_sizes(opcode, terms, views, spans)
    if not starred or opcode in _APART:
        return tuple(views)
    stars = [views[i].strides[slice(*spans[i])] for i in starred]  # type: ignore[misc]
    first = spans[starred[0]]
    assert first is not None
    runs = _merge(views[starred[0]].sizes[slice(*first)], stars)
    out = list(views)
    for n, i in enumerate(starred):
        span = spans[i]
        assert span is not None
        sizes, strides = views[i].sizes, views[i].strides
        out[i] = Shape(
            (*sizes[: span[0]], *(size for size, _ in runs), *sizes[span[1] :]),
            (*strides[: span[0]], *(s[n] for _, s in runs), *strides[span[1] :]),
            views[i].item,
        )
    return tuple(_matrix(v) for v in out) if opcode == "gemm" else tuple(out)


def _matrix(view: Shape) -> Shape:
    """The same matrix with strides, for dimensions of size 1, that let BLAS address it."""
    (m, n), (down, across) = view.sizes[-2:], view.strides[-2:]
    unit = view.item
    if n == 1:
        across = m * unit if down == unit else unit
    if m == 1:
        down = n * unit if across == unit else unit
    return replace(view, strides=(*view.strides[:-2], down, across))


def _star(opcode: str, term: tuple[str, ...], view: Shape) -> tuple[int, int] | None:
    """The range of the view's dimensions that `*` stands for; None if the term has no `*`."""
    rank, named = len(view.sizes), len([d for d in term if d != "*"])
    if rank < named or ("*" not in term and rank != named):
        raise ValueError(f"`{opcode}` has an operand of {rank} dimensions where [{','.join(term)}] is wanted")
    if "*" not in term:
        return None
    start = term.index("*")
    return start, start + rank - named


def _check_sizes(
    opcode: str,
    terms: Sequence[tuple[str, ...]],
    views: Sequence[Shape],
    spans: Sequence[tuple[int, int] | None],
) -> None:
    size_of: dict[str, tuple[int, ...]] = {}
    for term, view, span in zip(terms, views, spans, strict=True):
        axis = 0
        for name in term:
            n = span[1] - span[0] if name == "*" and span else 1
            size = view.sizes[axis : axis + n]
            if size_of.setdefault(name, size) != size:
                raise ValueError(f"`{opcode}`: `{name}` is {list(size_of[name])} and {list(size)}")
            axis += n


def _merge(sizes: Sequence[int], stars: Sequence[Sequence[int]]) -> list[tuple[int, tuple[int, ...]]]:
    """Runs of dimensions that are one dimension in every view: (size, stride in each view)."""
    runs: list[tuple[int, tuple[int, ...]]] = []
    for d, n in enumerate(sizes):
        if n == 1:
            continue
        strides = tuple(star[d] for star in stars)
        if runs and all(outer == inner * n for outer, inner in zip(runs[-1][1], strides, strict=True)):
            runs[-1] = (runs[-1][0] * n, strides)
        else:
            runs.append((n, strides))
    return runs or [(1, (0,) * len(stars))]
