"""Lowering of a contraction of two views to one `gemm`: factors are sorted into batch, m, n and k, and merged."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

from wscc.ir.per_die import Ints
from wscc.ir.views import View, arranged, whole_view
from wscc.passes.lower_collectives.builder import FabricBuilder

Term = tuple[str, ...]


def gemm(
    build: FabricBuilder, a: View, ta: Term, b: View, tb: Term, c: View, tc: Term,
    *, scale: float = 1.0, accumulate: bool = False,
) -> None:  # fmt: skip
    """Append `c = scale * sum of a * b` over the factors that c lacks (or `c +=`); `ta`, `tb`, `tc` are the terms.

    Factors of all three are batch; of a and c: m; of b and c: n; of a and b only: k. Neighbouring factors merge where
    the strides of every view allow it. The largest run that merges is the side of the matrix, which should fill the
    tile; other factors become batch dimensions that the other operand repeats. An operand whose k does not merge is
    copied to be contiguous.
    """
    form = _form(_placed(a), _placed(b), _placed(c), ta, tb, tc)
    a, b = _packed(build, a, ta, form.pack_a), _packed(build, b, tb, form.pack_b)
    build.kernel(
        "gemm",
        [_placed(form.c, c.buffer, c.offset)],
        [_placed(form.a, a.buffer, a.offset), _placed(form.b, b.buffer, b.offset)],
        {"scale": scale, "accumulate": accumulate},
    )


def _placed(view: View, buffer: str = "", offset: Ints = 0) -> View:
    """A view of the same form at another place."""
    return View(buffer, offset, view.shape, view.strides, view.dtype)


class _Form(NamedTuple):
    """The matrices of a contraction, wherever they lie, and the orders of factors in which operands are copied first;
    () for one that is not."""

    a: View
    b: View
    c: View
    pack_a: Term
    pack_b: Term


# Slices and rounds of a stream contract views of the same few forms.
@lru_cache(maxsize=1024)
def _form(a: View, b: View, c: View, ta: Term, tb: Term, tc: Term) -> _Form:
    sizes = {**dict(zip(ta, a.shape, strict=True)), **dict(zip(tb, b.shape, strict=True))}
    batch = [f for f in tc if f in ta and f in tb and sizes[f] > 1]
    m = [f for f in tc if f in ta and f not in tb and sizes[f] > 1]
    n = [f for f in tc if f in tb and f not in ta and sizes[f] > 1]
    k = [f for f in ta if f in tb and f not in tc and sizes[f] > 1]
    pack_a, pack_b = _mergeable_order(a, ta, k), _mergeable_order(b, tb, k)
    if pack_a:
        a, ta = whole_view("", tuple(sizes[f] for f in pack_a), a.dtype), pack_a
    if pack_b:
        b, tb = whole_view("", tuple(sizes[f] for f in pack_b), b.dtype), pack_b
    outer_m, inner_m = _merge(m, [(a, ta), (c, tc)], sizes)
    outer_n, inner_n = _merge(n, [(b, tb), (c, tc)], sizes)
    _, inner_k = _merge(k, [(a, ta), (b, tb)], sizes)
    rows = [*batch, *outer_m, *outer_n]
    return _Form(
        _matrix(a, ta, rows, inner_m, inner_k, sizes),
        _matrix(b, tb, rows, inner_k, inner_n, sizes),
        _matrix(c, tc, rows, inner_m, inner_n, sizes),
        pack_a,
        pack_b,
    )


def _merge(
    factors: list[str], views: list[tuple[View, Term]], sizes: dict[str, int]
) -> tuple[list[str], list[str]]:
    """Outer factors, and the inner run: the largest run (of equal ones the innermost) that is one dimension in every
    view."""
    runs: list[list[str]] = []
    for f in factors:
        if runs and all(_stride(v, t, runs[-1][-1]) == _stride(v, t, f) * sizes[f] for v, t in views):
            runs[-1].append(f)
        else:
            runs.append([f])
    if not runs:
        return [], []
    inner = max(range(len(runs)), key=lambda i: (prod(sizes[f] for f in runs[i]), i))
    return [f for i, run in enumerate(runs) if i != inner for f in run], runs[inner]


def _stride(view: View, term: Term, factor: str) -> int:
    return view.strides[term.index(factor)]


def _mergeable_order(view: View, term: Term, k: list[str]) -> Term:
    """The order of the factors of an operand in which its k merges; () if it does as it is."""
    outer, _ = _merge(k, [(view, term)], dict(zip(term, view.shape, strict=True)))
    return (*(f for f in term if f not in k), *k) if outer else ()


def _packed(build: FabricBuilder, view: View, term: Term, order: Term) -> View:
    """The operand, copied to have its factors in an order if there is one."""
    if not order:
        return view
    dims = arranged(view, [term.index(f) for f in order])
    copy = build.buffer("packed", dims.shape, dims.dtype)
    build.kernel("copy", [copy], [dims])
    return copy


def _matrix(
    view: View, term: Term, rows: list[str], first: list[str], second: list[str], sizes: dict[str, int]
) -> View:
    """The view as [*rows, first, second]; it repeats along rows that it lacks."""
    shape = [sizes[f] for f in rows]
    strides = [_stride(view, term, f) if f in term else 0 for f in rows]
    for run in (first, second):
        size = 1
        for f in run:
            size *= sizes[f]
        shape.append(size)
        strides.append(_stride(view, term, run[-1]) if run else 1)
    return View(view.buffer, view.offset, tuple(shape), tuple(strides), view.dtype)
