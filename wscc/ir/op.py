"""Values, ops and reshards: the statements of procedures at the graph and sharded levels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import prod

from wscc.diagnostics import NO_SPAN, Span
from wscc.ir.ops import OPS, OpDef
from wscc.ir.rule import Rule
from wscc.ir.types import Reduction, TensorType

Attr = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Value:
    """A named tensor of one procedure (SSA at the graph and sharded levels)."""

    name: str
    type: TensorType


@dataclass(frozen=True, slots=True)
class Stream:
    """The op runs as a loop over the chunks of `factor`, one for each die along `axis`: a collective matmul, of any op
    (S. Wang et al., "Overlap Communication with Dependent Computation via Decomposition in Large Deep Learning
    Models", ASPLOS 2023).

    Operands numbered in `moving_in` and accumulators of results numbered in `moving_out` travel from neighbour to
    neighbour; other operands with the factor are sliced, other results are written chunk by chunk or merged.
    """

    axis: str
    factor: str
    moving_in: tuple[int, ...] = ()
    moving_out: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Op:
    """One operation; `kind` is a row of `OPS`.

    `origin` names the result of the forward op that this op differentiates or recomputes: both have the same factor
    names, and so the same split.
    """

    kind: str
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    rule: Rule
    attrs: tuple[tuple[str, Attr], ...] = ()
    stream: Stream | None = None
    origin: str = ""
    span: Span = field(default=NO_SPAN, compare=False, repr=False)

    def with_operands(self, new: Callable[[Value], Value]) -> Op:
        """The op with `new(operand)` for each operand."""
        return replace(self, operands=tuple(map(new, self.operands)))

    @property
    def definition(self) -> OpDef:
        """The row of `OPS`; `KeyError` for a kind that has none."""
        return OPS[self.kind]

    def attr(self, name: str) -> Attr:
        """The value of an attribute that the op has; `KeyError` for another."""
        return dict(self.attrs)[name]

    def terms(self) -> Iterator[tuple[Value, tuple[str, ...]]]:
        """Each operand and result with its factors."""
        yield from zip(self.operands, self.rule.ins if self.operands else (), strict=True)
        yield from zip(self.results, self.rule.outs, strict=True)

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each factor in logical (whole) shapes."""
        return {f: n for v, fs in self.terms() for f, n in zip(fs, v.type.shape, strict=True)}

    @property
    def flops(self) -> int:
        """FLOPs of the whole op on one device; elementwise work is not counted."""
        if not self.definition.heavy:
            return 0
        return self.definition.flops * prod(self.sizes.values())


@dataclass(frozen=True, slots=True)
class Reshard:
    """A change of the layout of one value along `axis`; `kind` is a row of `RESHARDS`, which lists its fields.

    `dim` is the dimension that is gathered, scattered or sliced, `to` the one that all_to_all splits instead;
    `reduction` combines the parts in all_reduce; `source` and `target` are the stages of a permute.
    """

    kind: str
    axis: str
    operand: Value
    result: Value
    dim: int = -1
    to: int = -1
    reduction: Reduction | None = None
    source: int = -1
    target: int = -1
    span: Span = field(default=NO_SPAN, compare=False, repr=False)

    @property
    def operands(self) -> tuple[Value, ...]:
        """The one operand, as an op has them."""
        return (self.operand,)

    @property
    def results(self) -> tuple[Value, ...]:
        """The one result, as an op has them."""
        return (self.result,)

    def with_operands(self, new: Callable[[Value], Value]) -> Reshard:
        """The reshard of `new(operand)`."""
        return replace(self, operand=new(self.operand))


# A statement of the graph level (ops only) or of the sharded level.
GraphStmt = Op | Reshard
