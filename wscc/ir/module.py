"""The module: one data structure for the graph, the sharded and the fabric level.

A module is a set of *arrays* (tensors that live through a step: weights, gradients, residuals, inputs), a set of
*procedures* with arguments, and a *step*: loops of calls that bind arguments to array elements by affine index.
Layers and micro-batches are loops, never unrolled, so the size of a module does not grow with either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import prod
from typing import Any

from numpy.typing import NDArray

from wscc.diagnostics import NO_SPAN, Span
from wscc.ir.array import Array, Role
from wscc.ir.fabric import Buffer, FabricStmt
from wscc.ir.memory import Memory
from wscc.ir.op import GraphStmt, Op, Reshard, Value
from wscc.ir.routes import Route
from wscc.ir.step import Call, Loop, Stage, Step
from wscc.ir.train import Rates, Train
from wscc.machine.wafer import Die, Wafer


class Level(StrEnum):
    """The level of a module: logical tensors, sharded tensors, or buffers and transfers."""

    GRAPH = "graph"
    SHARDED = "sharded"
    FABRIC = "fabric"


class Mode(StrEnum):
    """The effect of an output on the array element that the call binds."""

    WRITE = "write"  # the element is replaced
    ADD = "add"  # the output is added to it


@dataclass(frozen=True, slots=True)
class Output:
    """An output argument of a procedure."""

    value: Value
    mode: Mode = Mode.WRITE


@dataclass(frozen=True, slots=True)
class Procedure:
    """A pure function from `inputs` to `outputs`; a call binds inputs first, then outputs (`arguments`).

    `body` holds ops, from the sharded level on reshards too; at the fabric level it holds `FabricStmt`s over
    `buffers` (locals) and arguments of the same names.
    """

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Output, ...]
    body: tuple[GraphStmt | FabricStmt, ...]
    buffers: tuple[Buffer, ...] = ()
    span: Span = field(default=NO_SPAN, compare=False, repr=False)

    @property
    def ops(self) -> tuple[Op, ...]:
        """The statements that compute; there are none at the fabric level."""
        return tuple(op for op in self.body if isinstance(op, Op))

    @property
    def statements(self) -> tuple[GraphStmt, ...]:
        """Ops and reshards: the whole body at the graph and sharded levels."""
        return tuple(s for s in self.body if isinstance(s, Op | Reshard))

    @property
    def arguments(self) -> tuple[Value, ...]:
        """Inputs, then outputs: the order in which a call binds them to array elements."""
        return (*self.inputs, *(o.value for o in self.outputs))


@dataclass(frozen=True, slots=True)
class HeaderSpans:
    """The places of what a text says of a module before and behind its arrays and procedures."""

    title: Span = NO_SPAN
    stages: Span = NO_SPAN
    dies: Span = NO_SPAN
    memory: Span = NO_SPAN
    step: Span = NO_SPAN


@dataclass(frozen=True, slots=True)
class Module:
    """A training program at one level.

    `axes` is the strategy as an ordered logical mesh, first axis major; a logical die index is row-major over
    it. `dies` is the physical die of each logical index (from `place` on), `routes` those that
    messages take (from `route` on), `memory` the map of every die's arena (from `plan_memory` on).
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
    spans: HeaderSpans = field(default=HeaderSpans(), compare=False, repr=False)
    # What arrays of edges hold, by name; a module that was read from a text has none.
    contents: Mapping[str, NDArray[Any]] = field(default_factory=dict, compare=False, repr=False)
    # Filled by the first look-up, as most modules between two passes see none; many stages have many arrays.
    _by_name: dict[str, Array] = field(init=False, default_factory=dict, compare=False, repr=False)

    @property
    def sizes(self) -> dict[str, int]:
        """Degree of each axis."""
        return dict(self.axes)

    @property
    def dies_used(self) -> int:
        """Number of logical dies."""
        return prod(n for _, n in self.axes)

    @property
    def die(self) -> Die:
        """What every die of the program has at least; before they are placed, as many of the fastest."""
        machine = self.machine
        return (
            machine.weakest(self.dies or machine.by_speed()[: self.dies_used])
            if machine.unlike
            else machine.die
        )

    @property
    def zigzag(self) -> tuple[str, ...]:
        """The axes along which sequences lie in zigzag order: the first of each dimension that arrays name so."""
        orders = (a.type.layout.dims[d][0] for a in self.arrays if a.type.layout for d in a.zigzag)
        return tuple(dict.fromkeys(orders))

    @property
    def stages(self) -> int:
        """Number of pipeline stages; each is an equal block of logical dies."""
        return sum(isinstance(s, Stage) for s in self.step) or 1

    def steps(self) -> tuple[tuple[Call | Loop, ...], ...]:
        """The step of each stage."""
        bodies = {s.index: s.body for s in self.step if isinstance(s, Stage)}
        if not bodies:
            return (tuple(s for s in self.step if not isinstance(s, Stage)),)
        return tuple(bodies[i] for i in range(len(bodies)))

    def procedure(self, name: str) -> Procedure:
        """The procedure of this name."""
        return next(p for p in self.procedures if p.name == name)

    def array(self, name: str) -> Array:
        """The array of this name."""
        if not self._by_name:
            self._by_name.update({a.name: a for a in reversed(self.arrays)})
        return self._by_name[name]

    def rates_of(self, parameter: Array) -> Rates:
        """What the optimizer uses for a parameter."""
        return parameter.rates or self.train.rates

    def related(self, role: Role) -> dict[str, str]:
        """By the name of an array, that of its gradient, its pending sum or its compute copy; before stages are cut,
        an array has one at most."""
        return {a.relation.array: a.name for a in self.arrays if a.relation and a.relation.role is role}

    def with_(self, **changes: object) -> Module:
        """The module with some fields replaced."""
        return replace(self, **changes)  # type: ignore[arg-type]
