"""The module: one data structure for the graph, the sharded and the fabric level.

A module is a set of *arrays* (what lives through a step: weights, gradients, saved values, inputs), a set of
*procedures* over formal values, and a *step*: loops of calls that bind formals to array elements by affine
index. Layers and micro-batches are loops, never unrolled, so nothing here grows with either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import prod
from typing import TYPE_CHECKING

from wscc.diagnostics import NO_SPAN, Span
from wscc.ir.memory import Memory
from wscc.ir.ops import OPS, RESHARDS, OpDef
from wscc.ir.routes import Route
from wscc.ir.rule import Rule
from wscc.ir.train import Train
from wscc.ir.types import TensorType
from wscc.machine.wafer import Wafer

if TYPE_CHECKING:
    from wscc.ir.fabric import Buffer, FabricStmt

Attr = bool | int | float | str


class Level(StrEnum):
    GRAPH = "graph"
    SHARDED = "sharded"
    FABRIC = "fabric"


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


class Mode(StrEnum):
    """How a procedure leaves a result in the array element that the call binds."""

    WRITE = "write"
    ADD = "add"


@dataclass(frozen=True, slots=True)
class Output:
    value: Value
    mode: Mode = Mode.WRITE


@dataclass(frozen=True, slots=True)
class Procedure:
    """A pure function from `inputs` to `outputs`; a call binds inputs first, then outputs.

    At the fabric level `body` holds `FabricStmt`s over `buffers` (locals) and formals of the same names.
    """

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Output, ...]
    body: tuple[Op | FabricStmt, ...]
    buffers: tuple[Buffer, ...] = ()

    @property
    def ops(self) -> tuple[Op, ...]:
        """The body as ops; only at the graph and sharded levels."""
        return tuple(op for op in self.body if isinstance(op, Op))

    @property
    def formals(self) -> tuple[Value, ...]:
        return (*self.inputs, *(o.value for o in self.outputs))


class Kind(StrEnum):
    """What an array is for; memory is reported by it."""

    PARAM = "param"
    WORKING = "working"  # a parameter in the type of computation, made of it in every step
    GRAD = "grad"
    STATE = "state"
    INPUT = "input"
    CARRIED = "carried"
    SAVED = "saved"
    SCALAR = "scalar"


@dataclass(frozen=True, slots=True)
class Init:
    """How the host fills an array before the first step: `zeros`, `ones`, or `normal` with a deviation."""

    kind: str = "zeros"
    std: float = 0.0


@dataclass(frozen=True, slots=True)
class Array:
    """`prod(extents)` elements of one tensor type; `storage` names the array whose bytes it shares.

    Where stages are cut, an array may lie on one `stage` only (-1: on all). It may hold for the host the
    elements of the array `of` from `first` on; several that hold the same element hold replicas of it.
    """

    name: str
    type: TensorType
    kind: Kind
    extents: tuple[int, ...] = ()
    init: Init = Init()
    storage: str = ""
    stage: int = -1
    of: str = ""
    first: int = 0
    span: Span = field(default=NO_SPAN, compare=False, repr=False)

    @property
    def count(self) -> int:
        return prod(self.extents)


@dataclass(frozen=True, slots=True)
class Affine:
    """`(base + sum of coefficient x loop variable) mod modulus`; modulus 0 means no wrap."""

    base: int = 0
    terms: tuple[tuple[str, int], ...] = ()
    modulus: int = 0

    def at(self, variables: dict[str, int]) -> int:
        n = self.base
        for v, c in self.terms:
            n += c * variables[v]
        return n % self.modulus if self.modulus else n


@dataclass(frozen=True, slots=True)
class Ref:
    """An element of an array."""

    array: str
    index: tuple[Affine, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    procedure: str
    args: tuple[Ref, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """`variable` runs from 0 to `count` - 1."""

    variable: str
    count: int
    body: tuple[Call | Loop, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """What the dies of pipeline stage `index` do, and no others. Stages meet in the calls that both make."""

    index: int
    body: tuple[Call | Loop, ...]


Step = tuple[Call | Loop | Stage, ...]


@dataclass(frozen=True, slots=True)
class Module:
    """A training program at one level.

    `axes` is the strategy as an ordered logical mesh, first axis major; a logical die index is row-major over
    it. `dies` is the physical die of each logical index (from `place` on), `routes` those that
    messages take (from `route` on), `memory` the map of every die's arena (from `plan_memory` on). Sequences
    split by an axis of `zigzag` lie in that order (`wscc.ir.zigzag`).
    """

    name: str
    level: Level
    axes: tuple[tuple[str, int], ...]
    train: Train
    machine: Wafer
    arrays: tuple[Array, ...]
    procedures: tuple[Procedure, ...]
    step: Step
    dies: tuple[int, ...] = ()
    routes: tuple[Route, ...] = ()
    memory: Memory | None = None
    zigzag: tuple[str, ...] = ()

    @property
    def sizes(self) -> dict[str, int]:
        return dict(self.axes)

    @property
    def dies_used(self) -> int:
        return prod(n for _, n in self.axes)

    @property
    def stages(self) -> int:
        """Pipeline stages; each is an equal block of logical dies."""
        return sum(isinstance(s, Stage) for s in self.step) or 1

    def steps(self) -> tuple[tuple[Call | Loop, ...], ...]:
        """The step of each stage."""
        own = {s.index: s.body for s in self.step if isinstance(s, Stage)}
        if not own:
            return (tuple(s for s in self.step if not isinstance(s, Stage)),)
        return tuple(own[i] for i in range(len(own)))

    def procedure(self, name: str) -> Procedure:
        return next(p for p in self.procedures if p.name == name)

    def array(self, name: str) -> Array:
        return next(a for a in self.arrays if a.name == name)

    def with_(self, **changes: object) -> Module:
        return replace(self, **changes)  # type: ignore[arg-type]


def calls(step: Step) -> Iterator[tuple[Call, int]]:
    """Every call of the step with the number of times it runs."""
    for stmt in step:
        if isinstance(stmt, Call):
            yield stmt, 1
        else:
            count = stmt.count if isinstance(stmt, Loop) else 1
            for call, times in calls(stmt.body):
                yield call, times * count


def walk(step: Step, variables: dict[str, int] | None = None) -> Iterator[tuple[Call, dict[str, int]]]:
    """Every dynamic call in order, with the values of the loop variables. Unrolls: for engines and tests."""
    variables = variables or {}
    for stmt in step:
        if isinstance(stmt, Call):
            yield stmt, variables
        elif isinstance(stmt, Stage):
            yield from walk(stmt.body, variables)
        else:
            for i in range(stmt.count):
                yield from walk(stmt.body, {**variables, stmt.variable: i})
