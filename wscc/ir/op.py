"""Values, ops and reshards: what a procedure of the graph and sharded levels is made of."""

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
    """The op runs as a loop over the chunks of `factor`, one per die along `axis`.

    Operands in `moving_in` and accumulators in `moving_out` travel from neighbour to neighbour;
    other operands with the factor are sliced, other results are written per chunk or merged.
    """

    axis: str
    factor: str
    moving_in: tuple[int, ...] = ()
    moving_out: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Op:
    """One operation; `kind` is a row of `OPS`.

    `origin` names the forward result whose op this op differentiates or recomputes: both share factor
    names, and therefore their split.
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
        return OPS[self.kind]

    def attr(self, name: str) -> Attr:
        return next(v for k, v in self.attrs if k == name)

    def terms(self) -> Iterator[tuple[Value, tuple[str, ...]]]:
        """Each operand and result with its factors."""
        yield from zip(self.operands, self.rule.ins if self.operands else (), strict=True)
        yield from zip(self.results, self.rule.outs, strict=True)

    @property
    def sizes(self) -> dict[str, int]:
        """The whole size of each factor."""
        return {f: n for v, fs in self.terms() for f, n in zip(fs, v.type.shape, strict=True)}

    @property
    def flops(self) -> int:
        """FLOPs of the whole op on one device; elementwise work is not counted."""
        if not self.definition.heavy:
            return 0
        return self.definition.flops * prod(self.sizes.values())


@dataclass(frozen=True, slots=True)
class Reshard:
    """Another layout of one value along `axis`; `kind` is a row of `RESHARDS`, which says which fields it has.

    `dim` is gathered, scattered or sliced, and `to` is where all_to_all splits instead; `reduction` is how
    all_reduce combines parts; `source` and `target` are the stages of a permute.
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
        return (self.operand,)

    @property
    def results(self) -> tuple[Value, ...]:
        return (self.result,)

    def with_operands(self, new: Callable[[Value], Value]) -> Reshard:
        """The reshard of `new(operand)`."""
        return replace(self, operand=new(self.operand))


# A statement of the graph level (ops only) or of the sharded level.
GraphStmt = Op | Reshard
