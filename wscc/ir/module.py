"""The module: one data structure for the graph, the sharded and the fabric level.

A module is a set of *arrays* (what lives through a step: weights, gradients, residuals, inputs), a set of
*procedures* over argument values, and a *step*: loops of calls that bind arguments to array elements by affine
index. Layers and micro-batches are loops, never unrolled, so nothing here grows with either.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod

from wscc.ir.array import Array, Role
from wscc.ir.fabric import Buffer, FabricStmt
from wscc.ir.memory import Memory
from wscc.ir.op import GraphStmt, Op, Reshard, Value
from wscc.ir.routes import Route
from wscc.ir.step import Call, Loop, Stage, Step
from wscc.ir.train import Train
from wscc.machine.wafer import Wafer


class Level(StrEnum):
    GRAPH = "graph"
    SHARDED = "sharded"
    FABRIC = "fabric"


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

    `body` holds ops, from the sharded level on reshards too; at the fabric level it holds `FabricStmt`s over
    `buffers` (locals) and arguments of the same names.
    """

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Output, ...]
    body: tuple[GraphStmt | FabricStmt, ...]
    buffers: tuple[Buffer, ...] = ()

    @property
    def ops(self) -> tuple[Op, ...]:
        """What computes; only at the graph and sharded levels."""
        return tuple(op for op in self.body if isinstance(op, Op))

    @property
    def statements(self) -> tuple[GraphStmt, ...]:
        """Ops and reshards: the whole body at the graph and sharded levels."""
        return tuple(s for s in self.body if isinstance(s, Op | Reshard))

    @property
    def arguments(self) -> tuple[Value, ...]:
        return (*self.inputs, *(o.value for o in self.outputs))


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

    def related(self, role: Role) -> dict[str, str]:
        """By the name of an array, that of its gradient, its incomplete sum or its compute copy; before stages are
        cut, an array has one at most."""
        return {a.relation.array: a.name for a in self.arrays if a.relation and a.relation.role is role}

    def with_(self, **changes: object) -> Module:
        return replace(self, **changes)  # type: ignore[arg-type]
