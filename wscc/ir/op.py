"""Values and ops: what a procedure of the graph and sharded levels is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from wscc.diagnostics import NO_SPAN, Span
from wscc.ir.ops import OPS, RESHARDS, OpDef
from wscc.ir.rule import Rule
from wscc.ir.types import TensorType

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
    """One operation. `kind` is a row of `OPS` (then `rule` is set) or one of `RESHARDS`.

    `origin` names the forward result whose op this op differentiates or recomputes: both share factor
    names, and therefore their split.
    """

    kind: str
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    rule: Rule | None = None
    attrs: tuple[tuple[str, Attr], ...] = ()
    stream: Stream | None = None
    origin: str = ""
    span: Span = field(default=NO_SPAN, compare=False, repr=False)

    @property
    def is_reshard(self) -> bool:
        return self.kind in RESHARDS

    @property
    def definition(self) -> OpDef:
        return OPS[self.kind]

    def attr(self, name: str) -> Attr:
        return next(v for k, v in self.attrs if k == name)

    def terms(self) -> Iterator[tuple[Value, tuple[str, ...]]]:
        """Each operand and result with its factors."""
        assert self.rule is not None
        yield from zip(self.operands, self.rule.ins if self.operands else (), strict=True)
        yield from zip(self.results, self.rule.outs, strict=True)

    @property
    def sizes(self) -> dict[str, int]:
        """The whole size of each factor."""
        return {f: n for v, fs in self.terms() for f, n in zip(fs, v.type.shape, strict=True)}

    @property
    def flops(self) -> int:
        """FLOPs of the whole op on one device; elementwise work is not counted."""
        if self.is_reshard or not self.definition.heavy:
            return 0
        return self.definition.flops * prod(self.sizes.values())
