"""Contractions, sums and elementwise arithmetic, all read off the op's index rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Final

import numpy as np

from wscc.ir.op import Op
from wscc.reference.meaning import Array, Meaning, no_gradient

Term = tuple[str, ...]


def contract(terms: Sequence[Term], arrays: Sequence[Array], out: Term, sizes: Mapping[str, int]) -> Array:
    """Multiply, sum over the factors that `out` lacks, repeat along those that no operand has."""
    number = {f: n for n, f in enumerate(sizes)}
    kept = tuple(f for f in out if any(f in t for t in terms))
    if len(arrays) == 1:
        made = _total(arrays[0], terms[0], kept)
    else:
        spec = [part for x, t in zip(arrays, terms, strict=True) for part in (x, [number[f] for f in t])]
        made = np.einsum(*spec, [number[f] for f in kept], optimize=True)
    return repeat(made, kept, out, sizes)


def _total(x: Array, term: Term, out: Term) -> Array:
    """Sum in f64: the reference of an f32 run should not add its own error over long batches."""
    gone = tuple(d for d, f in enumerate(term) if f not in out)
    left = [f for f in term if f in out]
    summed = x.sum(gone, dtype=np.float64).astype(x.dtype) if gone else x
    return np.transpose(summed, [left.index(f) for f in out])


def repeat(x: Array, term: Term, out: Term, sizes: Mapping[str, int]) -> Array:
    """Broadcast `x` with factors `term` to factors `out`, a superset in any order."""
    ordered = np.transpose(x, [term.index(f) for f in out if f in term])
    shape = [sizes[f] if f in term else 1 for f in out]
    return np.broadcast_to(ordered.reshape(shape), [sizes[f] for f in out])


def _contraction(op: Op, xs: Sequence[Array]) -> list[Array]:
    return [contract(op.rule.ins, xs, op.rule.outs[0], op.sizes)]


def _contraction_vjp(op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]) -> list[Array]:
    """A product is linear in each operand: contract the gradient with all the others."""
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
) -> Meaning:
    """`slopes` gives the partial derivatives with respect to both operands, already broadcast."""

    def forward(op: Op, xs: Sequence[Array]) -> list[Array]:
        return [function(*_pair(op, xs))]

    def vjp(op: Op, xs: Sequence[Array], ys: Sequence[Array], dys: Sequence[Array]) -> list[Array]:
        out = op.rule.outs[0]
        return [
            contract([out], [dys[0] * slope], term, op.sizes)
            for slope, term in zip(slopes(*_pair(op, xs)), op.rule.ins, strict=True)
        ]

    return Meaning(forward, vjp)


def _factor(op: Op) -> float:
    return float(op.attr("factor"))


def _dim(op: Op) -> int:
    return int(op.attr("dim"))


def _split(op: Op, xs: Sequence[Array]) -> list[Array]:
    return [np.take(xs[0], i, _dim(op)) for i in range(len(op.results))]


def _fill(op: Op, xs: Sequence[Array]) -> list[Array]:
    return [np.full(op.results[0].type.shape, float(op.attr("value")))]


_ONE: Final = np.ones((), np.float32)

MEANINGS: Final[dict[str, Meaning]] = {
    "matmul": Meaning(_contraction, _contraction_vjp),
    "sum": Meaning(_contraction, _contraction_vjp),
    "add": _binary(lambda x, y: x + y, lambda x, y: (_ONE, _ONE)),
    "sub": _binary(lambda x, y: x - y, lambda x, y: (_ONE, -_ONE)),
    "mul": _binary(lambda x, y: x * y, lambda x, y: (y, x)),
    "div": _binary(lambda x, y: x / y, lambda x, y: (1 / y, -x / (y * y))),
    "scale": Meaning(
        lambda op, xs: [_factor(op) * xs[0]],
        lambda op, xs, ys, dys: [_factor(op) * dys[0]],
    ),
    "cast": Meaning(lambda op, xs: [xs[0]], lambda op, xs, ys, dys: [dys[0]]),
    "gsum": Meaning(lambda op, xs: [reduce(np.add, xs)], lambda op, xs, ys, dys: [dys[0]] * len(xs)),
    "split": Meaning(_split, lambda op, xs, ys, dys: [np.stack(dys, _dim(op))]),
    "stack": Meaning(
        lambda op, xs: [np.stack(xs, _dim(op))],
        lambda op, xs, ys, dys: [np.take(dys[0], i, _dim(op)) for i in range(len(xs))],
    ),
    "fill": Meaning(_fill, no_gradient),
}
