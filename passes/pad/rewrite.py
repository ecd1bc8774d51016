"""A module in which some dimensions have grown."""

from __future__ import annotations

from dataclasses import replace

from wscc.ir.array import Array
from wscc.ir.module import Module, Procedure
from wscc.ir.naming import Names
from wscc.ir.op import Attr, Op, Value
from wscc.ir.ops import IGNORED
from wscc.ir.rule import Rule
from wscc.passes.pad.seen import Seen
from wscc.passes.pad.tokens import Sizes

# Sizes before and after, by dimension of a value.
Dims = dict[int, tuple[int, int]]


class Rewriter:
    """Writer of a module with pads: `weights` and `tokens` have the size of each dimension that grows, before and
    after. An op that would see those of tokens (`seen`) reads what is cut off before them, and zeros are put behind
    its results."""

    def __init__(self, weights: Sizes, tokens: Sizes, seen: Seen) -> None:
        self.tokens = tokens
        self.grown = weights | tokens
        self.seen = seen

    def module(self, module: Module) -> Module:
        return module.with_(
            arrays=tuple(map(self._array, module.arrays)),
            procedures=tuple(_Body(self, p).procedure() for p in module.procedures),
        )

    def shape(self, procedure: str, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.grown.get((procedure, name, d), (n, n))[1] for d, n in enumerate(shape))

    def _array(self, a: Array) -> Array:
        shape = self.shape("", a.name, a.type.shape)
        if shape == a.type.shape:
            return a
        filler = IGNORED if a.name in self.seen.ignored else 0
        return replace(a, type=replace(a.type, shape=shape), unpadded=a.type.shape, filler=filler)


class _Body:
    """Writer of one procedure."""

    def __init__(self, module: Rewriter, procedure: Procedure) -> None:
        self.module = module
        self.p = procedure
        values = [*procedure.inputs, *(v for op in procedure.ops for v in op.results)]
        self.names = Names(v.name for v in values)
        self.now = {v.name: self._padded(v) for v in procedure.inputs}
        self.cuts: dict[tuple[str, tuple[int, ...]], Value] = {}
        self.body: list[Op] = []

    def procedure(self) -> Procedure:
        for op in self.p.ops:
            self._op(op)
        return replace(
            self.p,
            inputs=tuple(map(self._padded, self.p.inputs)),
            outputs=tuple(replace(o, value=self.now[o.value.name]) for o in self.p.outputs),
            body=tuple(self.body),
        )

    def _padded(self, v: Value) -> Value:
        return _resized(v, v.name, self.module.shape(self.p.name, v.name, v.type.shape))

    def _op(self, op: Op) -> None:
        seen = [self._seen_dims(op, v, term) for v, term in op.terms()]
        of_operands, of_results = seen[: len(op.operands)], seen[len(op.operands) :]
        operands = [self._cut(op, v, dims) for v, dims in zip(op.operands, of_operands, strict=True)]
        results = [self._without(v, dims) for v, dims in zip(op.results, of_results, strict=True)]
        attrs = self._attrs(op, seen)
        self.body.append(replace(op, operands=tuple(operands), results=tuple(results), attrs=attrs))
        for v, result, dims in zip(op.results, results, of_results, strict=True):
            self.now[v.name] = self._behind(op, result, dims)

    def _seen_dims(self, op: Op, v: Value, term: tuple[str, ...]) -> Dims:
        """The sizes, before and after, of the dimensions of a value whose pads the op would see."""
        grown = {d: self.module.tokens.get((self.p.name, v.name, d)) for d in range(len(term))}
        return {d: n for d, n in grown.items() if n and self.module.seen.sees(self.p, op, term[d])}

    def _without(self, v: Value, dims: Dims) -> Value:
        """The value with the model's size of some dimensions."""
        shape = self.module.shape(self.p.name, v.name, v.type.shape)
        return _resized(v, v.name, tuple(dims.get(d, (n, n))[0] for d, n in enumerate(shape)))

    def _cut(self, op: Op, v: Value, dims: Dims) -> Value:
        """What comes before the pads of some dimensions of an operand."""
        value = self.now[v.name]
        for n, d in enumerate(dims):
            key = v.name, tuple(dims)[: n + 1]
            if key not in self.cuts:
                part = self._new(value, "real", d, dims[d][0])
                self.body.append(_joint("cut", d, value, part, op))
                self.cuts[key] = part
            value = self.cuts[key]
        return value

    def _behind(self, op: Op, value: Value, dims: Dims) -> Value:
        """A result with pads of zeros behind it."""
        for d, (_, size) in dims.items():
            whole = self._new(value, "padded", d, size)
            self.body.append(_joint("concat", d, value, whole, op))
            value = whole
        return value

    def _new(self, value: Value, word: str, dim: int, size: int) -> Value:
        shape = value.type.shape
        return _resized(
            value, self.names.new(f"{value.name}.{word}"), (*shape[:dim], size, *shape[dim + 1 :])
        )

    def _attrs(self, op: Op, seen: list[Dims]) -> tuple[tuple[str, Attr], ...]:
        """The attributes of an op; of one that knows pads, with the number of columns or keys that are none."""
        if op.definition.limits is None:
            return op.attrs
        place, dim = op.definition.limits
        value = (*op.operands, *op.results)[place]
        dim %= len(value.type.shape)
        size, _ = self.module.grown.get((self.p.name, value.name, dim), (0, 0))
        if not size or dim in seen[place] or _is_behind_queries(op, size):
            return op.attrs
        options = {name: kind() for name, kind in op.definition.options.items()}
        names = [*op.definition.attrs, *options]
        given = {**options, **dict(op.attrs), "limit": size}
        return tuple((name, given[name]) for name in names)


def _is_behind_queries(op: Op, keys: int) -> bool:
    """Whether a causal mask hides the pads of so many keys from all queries of the model."""
    return op.definition.positional and bool(op.attr("causal")) and op.operands[0].type.shape[1] <= keys


def _resized(v: Value, name: str, shape: tuple[int, ...]) -> Value:
    return Value(name, replace(v.type, shape=shape))


def _joint(kind: str, dim: int, operand: Value, result: Value, of: Op) -> Op:
    """A `cut` of what comes first along a dimension, or a `concat` of it with zeros."""
    others = [f"i{d}" for d in range(len(operand.type.shape))]
    terms = [(*others[:dim], own, *others[dim + 1 :]) for own in (f"i{dim}", "u")]
    ins, out = reversed(terms) if kind == "cut" else terms
    rule = Rule((ins,), (out,), frozenset({f"i{dim}", "u"}))
    return Op(kind, (operand,), (result,), rule, (("dim", dim),), span=of.span)
