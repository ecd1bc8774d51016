"""Semantics of contractions, sums and elementwise arithmetic, derived from the op's index rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Final

import numpy as np

from wscc.ir.op import Op
from wscc.reference.semantics import Array, Semantics, no_gradient

Term = tuple[str, ...]


def contract(terms: Sequence[Term], arrays: Sequence[Array], out: Term, sizes: Mapping[str, int]) -> Array:
    """The product of `arrays`, whose dimensions are the factors of `terms`, as an array with those of `out`.

    It is summed over the factors that `out` lacks, and repeated along those that no operand has.
    """
    number = {f: n for n, f in enumerate(sizes)}
    present = tuple(f for f in out if any(f in t for t in terms))
    if len(arrays) == 1:
        product = _total(arrays[0], terms[0], present)
    else:
        spec = [part for x, t in zip(arrays, terms, strict=True) for part in (x, [number[f] for f in t])]
        product = np.einsum(*spec, [number[f] for f in present], optimize=True)
    return repeat(product, present, out, sizes)


def _total(x: Array, term: Term, out: Term) -> Array:
    """The sum of `x` over the factors that `out` lacks.

    In f64: the reference of an f32 run should not add its own error over long batches.
    """
    contracted = tuple(d for d, f in enumerate(term) if f not in out)
    remaining = [f for f in term if f in out]
    total = x.sum(contracted, dtype=np.float64).astype(x.dtype) if contracted else x
    return np.transpose(total, [remaining.index(f) for f in out])


def repeat(x: Array, term: Term, out: Term, sizes: Mapping[str, int]) -> Array:
    """Broadcast `x` with factors `term` to factors `out`, a superset in any order."""
    ordered = np.transpose(x, [term.index(f) for f in out if f in term])
    shape = [sizes[f] if f in term else 1 for f in out]
    return np.broadcast_to(ordered.reshape(shape), [sizes[f] for f in out])


def _contraction(op: Op, xs: Sequence[Array]) -> list[Array]:
    return [contract(op.rule.ins, xs, op.rule.outs[0], op.sizes)]


def _contraction_vjp(op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]) -> list[Array]:
    """The gradient of each operand: dy contracted with all other operands, as a product is linear in each."""
    out: list[Array] = []
    for i, term in enumerate(op.rule.ins):
        others = [j for j in range(len(xs)) if j != i]
        terms = [op.rule.outs[0], *(op.rule.ins[j] for j in others)]
        out.append(contract(terms, [dys[0], *(xs[j] for j in others)], term, op.sizes))
    return out


def _pair(op: Op, xs: Sequence[Array]) -> tuple[Array, Array]:
    x, y = (repeat(v, t, op.rule.outs[0], op.sizes) for v, t in zip(xs, op.rule.ins, strict=True))
    return x, y


def _binary(
    function: Callable[[Array, Array], Array], slopes: Callable[[Array, Array], Sequence[Array]]
) -> Semantics:
    """The semantics of z = function(x, y); `slopes(x, y)` are the partial derivatives, of the shape of z."""

    def forward(op: Op, xs: Sequence[Array]) -> list[Array]:
        return [function(*_pair(op, xs))]

    def vjp(op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]) -> list[Array]:
        out = op.rule.outs[0]
        return [
            contract([out], [dys[0] * slope], term, op.sizes)
            for slope, term in zip(slopes(*_pair(op, xs)), op.rule.ins, strict=True)
        ]

    return Semantics(forward, vjp)


def _factor(op: Op) -> float:
    return float(op.attr("factor"))


def _dim(op: Op) -> int:
    return int(op.attr("dim"))


def _split(op: Op, xs: Sequence[Array]) -> list[Array]:
    return [np.take(xs[0], i, _dim(op)) for i in range(len(op.results))]


def _edges(op: Op, parts: Sequence[Array]) -> list[int]:
    """The first index of each part behind the first, and of what follows the last."""
    return [
        int(n)
        for n in np.cumsum([x.shape[t.index(_own(op, t))] for x, t in zip(parts, _terms(op), strict=True)])
    ]


def _terms(op: Op) -> Sequence[Term]:
    return op.rule.ins if op.kind == "concat" else op.rule.outs


def _own(op: Op, term: Term) -> str:
    """The factor of a part that stands for a dimension of the whole."""
    whole = op.rule.outs[0] if op.kind == "concat" else op.rule.ins[0]
    return next(f for f in term if f not in whole)


def _concat(op: Op, xs: Sequence[Array]) -> list[Array]:
    dim, out, sizes = _dim(op), op.rule.outs[0], op.sizes
    parts = []
    for x, term in zip(xs, op.rule.ins, strict=True):
        wide = (*out[:dim], _own(op, term), *out[dim + 1 :])
        parts.append(repeat(x, term, wide, sizes))
    left = sizes[out[dim]] - sum(p.shape[dim] for p in parts)
    shape = [left if d == dim else n for d, n in enumerate(parts[0].shape)]
    return [np.concatenate([*parts, np.zeros(shape, xs[0].dtype)], dim)]


def _concat_vjp(op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]) -> list[Array]:
    dim, out = _dim(op), op.rule.outs[0]
    parts = np.split(dys[0], _edges(op, xs), dim)[: len(xs)]
    return [
        _total(p, (*out[:dim], _own(op, t), *out[dim + 1 :]), t)
        for p, t in zip(parts, op.rule.ins, strict=True)
    ]


def _cut(op: Op, xs: Sequence[Array]) -> list[Array]:
    sizes = [v.type.shape[_dim(op)] for v in op.results]
    return np.split(xs[0], [int(n) for n in np.cumsum(sizes)], _dim(op))[: len(sizes)]


def _cut_vjp(op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]) -> list[Array]:
    grad = np.zeros_like(xs[0])
    first = 0
    for dy in dys:
        after = first + dy.shape[_dim(op)]
        grad[(*[slice(None)] * _dim(op), slice(first, after))] = dy
        first = after
    return [grad]


def _fill(op: Op, xs: Sequence[Array]) -> list[Array]:
    return [np.full(op.results[0].type.shape, float(op.attr("value")))]


_ONE: Final = np.ones((), np.float32)

SEMANTICS: Final[dict[str, Semantics]] = {
    "matmul": Semantics(_contraction, _contraction_vjp),
    "sum": Semantics(_contraction, _contraction_vjp),
    "expand": Semantics(_contraction, _contraction_vjp),
    "add": _binary(lambda x, y: x + y, lambda x, y: (_ONE, _ONE)),
    "sub": _binary(lambda x, y: x - y, lambda x, y: (_ONE, -_ONE)),
    "mul": _binary(lambda x, y: x * y, lambda x, y: (y, x)),
    "div": _binary(lambda x, y: x / y, lambda x, y: (1 / y, -x / (y * y))),
    "scale": Semantics(
        lambda op, xs: [_factor(op) * xs[0]],
        lambda op, xs, ys, dys: [_factor(op) * dys[0]],
    ),
    "cast": Semantics(lambda op, xs: [xs[0]], lambda op, xs, ys, dys: [dys[0]]),
    "partial_sum": Semantics(lambda op, xs: [reduce(np.add, xs)], lambda op, xs, ys, dys: [dys[0]] * len(xs)),
    "split": Semantics(_split, lambda op, xs, ys, dys: [np.stack(dys, _dim(op))]),
    "stack": Semantics(
        lambda op, xs: [np.stack(xs, _dim(op))],
        lambda op, xs, ys, dys: [np.take(dys[0], i, _dim(op)) for i in range(len(xs))],
    ),
    "concat": Semantics(_concat, _concat_vjp),
    "cut": Semantics(_cut, _cut_vjp),
    "fill": Semantics(_fill, no_gradient),
}
