"""A builder of procedure bodies, op by op; result types follow from index rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wscc.diagnostics import NO_SPAN, Span
from wscc.ir.naming import fresh
from wscc.ir.op import Attr, Op, Value
from wscc.ir.ops import OPS
from wscc.ir.rule import Rule, parse_rule
from wscc.ir.types import DType, TensorType


class ShapeMismatch(ValueError):
    """Operand shapes do not fit the rule; the message gives both sizes of the factor."""


class WrongOption(ShapeMismatch):
    """A number that is given by name is out of range; the message gives the range, `near` is one that is not."""

    def __init__(self, message: str, option: str, near: float) -> None:
        super().__init__(message)
        self.option, self.near = option, near


class Builder:
    """A body in SSA form; names are made unique in order of creation, so the same calls give the same names."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self._names: set[str] = set()

    def fresh(self, hint: str) -> str:
        """`hint`, or `hint.N` for the first N that is free."""
        name = fresh(hint, self._names)
        self._names.add(name)
        return name

    def input(self, hint: str, type: TensorType) -> Value:
        """An argument of the procedure, named `hint` if that is free."""
        return Value(self.fresh(hint), type)

    def emit(
        self,
        kind: str,
        operands: Sequence[Value],
        rule: Rule | str,
        *,
        sizes: dict[str, int] | None = None,
        dtypes: Iterable[DType] | None = None,
        attrs: dict[str, Attr] | None = None,
        hints: Sequence[str] = (),
        origin: str = "",
        span: Span = NO_SPAN,
    ) -> tuple[Value, ...]:
        """Append an op and return its results.

        `sizes` has the sizes of factors that no operand has; results take the element type of the first float
        operand unless `dtypes` has others; `hints` are names of results. Raises `ShapeMismatch`.
        """
        rule = parse_rule(rule) if isinstance(rule, str) else rule
        factor_sizes = _factor_sizes(kind, operands, rule, dict(sizes or {}))
        default = next((v.type.dtype for v in operands if v.type.dtype.is_float), DType.F32)
        types = list(dtypes) if dtypes is not None else [default] * len(rule.outs)
        results = tuple(
            Value(
                self.fresh(hints[i] if i < len(hints) else kind),
                TensorType(tuple(factor_sizes[f] for f in term), types[i]),
            )
            for i, term in enumerate(rule.outs)
        )
        given, names = attrs or {}, [*OPS[kind].attrs, *(k for k in OPS[kind].options if k in (attrs or {}))]
        ordered = tuple((k, given[k]) for k in names)
        self.ops.append(Op(kind, tuple(operands), results, rule, ordered, origin=origin, span=span))
        return results

    def one(self, kind: str, operands: Sequence[Value], rule: Rule | str, **options: object) -> Value:
        """`emit` for an op with one result."""
        (result,) = self.emit(kind, operands, rule, **options)  # type: ignore[arg-type]
        return result


def _factor_sizes(kind: str, operands: Sequence[Value], rule: Rule, sizes: dict[str, int]) -> dict[str, int]:
    """`sizes` with the size of each factor that an operand has; raises `ShapeMismatch`."""
    terms = rule.ins if operands else ()
    if operands and len(operands) != len(terms):
        raise ShapeMismatch(f"`{kind}` takes {len(terms)} operands, not {len(operands)}")
    first: dict[str, tuple[Value, int]] = {}
    for value, term in zip(operands, terms, strict=True):
        shape = value.type.shape
        if len(term) != len(shape):
            raise ShapeMismatch(
                f"`{kind}` takes {len(term)} dimensions here, and `{value.name}` {list(shape)} has {len(shape)}"
            )
        for d, (n, factor) in enumerate(zip(shape, term, strict=True)):
            if sizes.setdefault(factor, n) != n:
                other, dim = first.get(factor, (value, d))
                raise ShapeMismatch(_disagreement(kind, other, dim, value, d))
            first.setdefault(factor, (value, d))
    return sizes


def _disagreement(kind: str, a: Value, i: int, b: Value, j: int) -> str:
    """The message of two operands with different sizes of one factor: both shapes, and both dimensions."""
    return (
        f"`{kind}` of `{a.name}` {list(a.type.shape)} and `{b.name}` {list(b.type.shape)}: "
        f"dimension {i} of the first is {a.type.shape[i]}, dimension {j} of the second is {b.type.shape[j]}"
    )
