"""Lowering of a contraction of two views to one `gemm`: factors are sorted into batch, m, n and k, and merged."""

from __future__ import annotations

from math import prod

from wscc.ir.views import View
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
    sizes = {**dict(zip(ta, a.shape, strict=True)), **dict(zip(tb, b.shape, strict=True))}
    batch = [f for f in tc if f in ta and f in tb and sizes[f] > 1]
    m = [f for f in tc if f in ta and f not in tb and sizes[f] > 1]
    n = [f for f in tc if f in tb and f not in ta and sizes[f] > 1]
    k = [f for f in ta if f in tb and f not in tc and sizes[f] > 1]
    a, ta = _mergeable_k(build, a, ta, k, tb, b)
    b, tb = _mergeable_k(build, b, tb, k, ta, a)
    outer_m, inner_m = _merge(m, [(a, ta), (c, tc)], sizes)
    outer_n, inner_n = _merge(n, [(b, tb), (c, tc)], sizes)
    _, inner_k = _merge(k, [(a, ta), (b, tb)], sizes)
    rows = [*batch, *outer_m, *outer_n]
    build.kernel(
        "gemm",
        [_matrix(c, tc, rows, inner_m, inner_n, sizes)],
        [_matrix(a, ta, rows, inner_m, inner_k, sizes), _matrix(b, tb, rows, inner_k, inner_n, sizes)],
        {"scale": scale, "accumulate": accumulate},
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


def _mergeable_k(
    build: FabricBuilder, view: View, term: Term, k: list[str], other_term: Term, other: View
) -> tuple[View, Term]:
    """The operand with its k factors in one run that merges, copied if need be."""
    sizes = dict(zip(term, view.shape, strict=True))
    outer, _ = _merge(k, [(view, term)], sizes)
    if not outer:
        return view, term
    order = [f for f in term if f not in k] + k
    arranged = view._replace(
        shape=tuple(sizes[f] for f in order), strides=tuple(_stride(view, term, f) for f in order)
    )
    copy = build.buffer("packed", arranged.shape, arranged.dtype)
    build.kernel("copy", [copy], [arranged])
    return copy, tuple(order)


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
