"""The streams level: one program per role, a binding table per die, and for each stage the calls of a step.

A *role* is a set of dies whose instructions are the same but for some integers; each such integer is a
`Column` of the binding table (peers, routes, chunk offsets). Physical dies are `row * columns + column`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from wscc.ir.routes import Route
from wscc.ir.step import Affine
from wscc.ir.types import DType


@dataclass(frozen=True, slots=True)
class Column:
    """The integer in column `index` of the die's row of the binding table."""

    index: int


Field = int | Column
T = TypeVar("T")


def resolve(value: T | Column, row: NDArray[np.int64]) -> T | int:
    """The value of a field or scalar on the die with this row of the binding table."""
    return int(row[value.index]) if isinstance(value, Column) else value


@dataclass(frozen=True, slots=True)
class Operand:
    """A typed strided view of the die's memory.

    `arg` is -1 for a procedure's local memory (`offset` is then an arena address in bytes), else the number of
    the call argument to whose address `offset` (bytes) is added. Strides are in elements.
    """

    arg: int
    offset: Field
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType


Scalar = bool | int | float | str | Column


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction of a die; `attrs` are in the order of `INSTRUCTIONS[opcode].attr_names`."""

    opcode: str
    writes: tuple[Operand, ...] = ()
    reads: tuple[Operand, ...] = ()
    attrs: tuple[tuple[str, Scalar], ...] = ()

    def attr(self, name: str) -> Scalar:
        for k, v in self.attrs:
            if k == name:
                return v
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Code:
    """The instructions of one procedure in one role."""

    name: str
    args: int
    body: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """The procedures that the dies of one role execute; the dies are all of one stage."""

    role: int
    procedures: tuple[Code, ...]
    stage: int = 0

    def code(self, name: str) -> Code:
        return next(c for c in self.procedures if c.name == name)


@dataclass(frozen=True, slots=True)
class Address:
    """The address `base + sum(index x stride)` in bytes, each index affine in the loop variables."""

    base: int
    terms: tuple[tuple[Affine, int], ...] = ()

    def at(self, variables: dict[str, int]) -> int:
        return self.base + sum(index.at(variables) * stride for index, stride in self.terms)

    def span(self, counts: Mapping[str, int]) -> tuple[int, int]:
        """The least and the greatest value in loops of these counts, each at least 1."""
        ends = [[n * stride for n in index.span(counts)] for index, stride in self.terms]
        return self.base + sum(map(min, ends)), self.base + sum(map(max, ends))


@dataclass(frozen=True, slots=True)
class ProgramCall:
    procedure: str
    args: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class ProgramLoop:
    variable: str
    count: int
    body: tuple[ProgramCall | ProgramLoop, ...]


ProgramStep = tuple[ProgramCall | ProgramLoop, ...]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Streams:
    """A whole program: `dies[i]` is the physical die of logical die i, `roles[i]` its role, `bindings[i]` its row of
    the binding table; `steps[s]` are the calls of the dies of stage s; `routes` are the paths of physical dies that
    sends take."""

    programs: tuple[Program, ...]
    steps: tuple[ProgramStep, ...]
    dies: tuple[int, ...]
    roles: tuple[int, ...]
    bindings: NDArray[np.int64]
    routes: tuple[Route, ...]
    arena_bytes: int


def stage_of_role(streams: Streams) -> dict[int, int]:
    """The pipeline stage of each role."""
    return {p.role: p.stage for p in streams.programs}


def dynamic_calls(
    step: ProgramStep, variables: dict[str, int] | None = None
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every call of a step in order, as (procedure, argument addresses)."""
    variables = variables or {}
    for stmt in step:
        if isinstance(stmt, ProgramCall):
            yield stmt.procedure, tuple(a.at(variables) for a in stmt.args)
        else:
            for i in range(stmt.count):
                yield from dynamic_calls(stmt.body, {**variables, stmt.variable: i})


def extreme_calls(
    step: ProgramStep, counts: Mapping[str, int] | None = None
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Calls between which all calls of a step lie, without unrolling it: of each one the least and the greatest value
    of every argument."""
    counts = counts or {}
    for stmt in step:
        if isinstance(stmt, ProgramLoop):
            if stmt.count > 0:
                yield from extreme_calls(stmt.body, {**counts, stmt.variable: stmt.count})
            continue
        spans = [a.span(counts) for a in stmt.args]
        yield from ((stmt.procedure, tuple(ends)) for ends in zip(*spans, strict=True))
        if not spans:
            yield stmt.procedure, ()


def calls_by_name(step: ProgramStep, times: int = 1) -> dict[str, int]:
    """The number of calls of each procedure in a step."""
    counts: dict[str, int] = {}
    for stmt in step:
        if isinstance(stmt, ProgramLoop):
            inner = calls_by_name(stmt.body, times * stmt.count)
        else:
            inner = {stmt.procedure: times}
        for name, n in inner.items():
            counts[name] = counts.get(name, 0) + n
    return counts
