"""Streams of a planned module: one program per role, a binding table, a manifest.

A statement that a die takes no part in is not in its program. Peers in the table are *logical* dies;
`Streams.dies` gives the physical die of each, and routes are paths of physical dies.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress
from math import prod

import numpy as np

from wscc.backends.emit.manifest import manifest_of
from wscc.backends.emit.statements import Bindings, Names, instruction, participants
from wscc.ir.array import Array
from wscc.ir.die_arrays import as_array
from wscc.ir.memory import Placement
from wscc.ir.module import Module, Procedure
from wscc.ir.op import GraphStmt
from wscc.ir.per_die import Ints, per_die
from wscc.ir.step import Call, Loop, Ref, calls
from wscc.ir.streams.artifact import Manifest
from wscc.ir.streams.program import (
    Address,
    Code,
    Instruction,
    Program,
    ProgramCall,
    ProgramLoop,
    ProgramStep,
    Streams,
)


@dataclass(frozen=True, slots=True)
class _Line:
    """An instruction and the mask of the dies that execute it."""

    where: Ints
    instruction: Instruction


def emit(module: Module) -> tuple[Streams, Manifest]:
    """The streams and the manifest of a module after `plan_memory`.

    Roles are numbered by their first die; each integer that differs between dies is one column of the
    binding table, equal columns being one.
    """
    assert module.memory is not None, "emit needs a planned module"
    table = Bindings(module.dies_used)
    bodies = {p.name: _Body(p, _lines(p, table), module.dies_used) for p in module.procedures}
    masks = dict.fromkeys(mask for body in bodies.values() for mask in body.masks)
    stage_dies = module.dies_used // module.stages
    stages = per_die(die // stage_dies for die in range(module.dies_used))
    roles, firsts = _roles([stages, *masks], module.dies_used)
    called = [{c.procedure for c, _ in calls(step)} for step in module.steps()]
    programs = tuple(
        Program(
            role,
            tuple(
                bodies[p.name].code(first) for p in module.procedures if p.name in called[first // stage_dies]
            ),
            first // stage_dies,
        )
        for role, first in enumerate(firsts)
    )
    streams = Streams(
        programs,
        program_steps(module),
        module.dies,
        roles,
        table.array(),
        module.routes,
        module.memory.arena_bytes,
    )
    return streams, manifest_of(module)


class _Body:
    """The code of a procedure by die: dies with the same masks of all lines share one."""

    def __init__(self, procedure: Procedure, lines: list[_Line], dies: int) -> None:
        self.masks = tuple(dict.fromkeys(line.where for line in lines))
        self._procedure = procedure
        self._instructions = [line.instruction for line in lines]
        number = {mask: i for i, mask in enumerate(self.masks)}
        self._mask_of = np.asarray([number[line.where] for line in lines], np.intp)
        self._takes_part = np.asarray([as_array(mask, dies) for mask in self.masks], np.bool_)
        self._codes: dict[bytes, Code] = {}  # by the masks of a die

    def code(self, die: int) -> Code:
        """The procedure as a die runs it."""
        if not self.masks:
            return Code(self._procedure.name, len(self._procedure.arguments), ())
        own = self._takes_part[:, die]
        key = own.tobytes()
        if key not in self._codes:
            body = tuple(compress(self._instructions, own[self._mask_of].tolist()))
            self._codes[key] = Code(self._procedure.name, len(self._procedure.arguments), body)
        return self._codes[key]


def _lines(procedure: Procedure, table: Bindings) -> list[_Line]:
    """The instructions of a procedure that any die executes."""
    names = Names(procedure)
    lines = []
    for stmt in procedure.body:
        assert not isinstance(stmt, GraphStmt)
        where = participants(stmt, table.dies)
        if where != 0:
            lines.append(_Line(where, instruction(stmt, names, table)))
    return lines


def _roles(masks: list[Ints], dies: int) -> tuple[tuple[int, ...], list[int]]:
    """The role of each die, and the first die of each role: dies with equal integers share one."""
    columns = [as_array(m, dies) for m in masks]
    number: dict[bytes, int] = {}
    firsts: list[int] = []
    roles = []
    for die, row in enumerate(np.stack(columns, axis=1)):
        key = row.tobytes()
        if key not in number:
            number[key] = len(firsts)
            firsts.append(die)
        roles.append(number[key])
    return tuple(roles), firsts


def program_steps(module: Module) -> tuple[ProgramStep, ...]:
    """The step of each stage of a planned module."""
    assert module.memory is not None
    places = {p.array: p for p in module.memory.arrays}
    arrays = {a.name: a for a in module.arrays}

    def address(ref: Ref) -> Address:
        return _address(arrays[ref.array], places[ref.array], ref)

    def convert(step: tuple[Call | Loop, ...]) -> ProgramStep:
        return tuple(
            ProgramLoop(s.variable, s.count, convert(s.body))
            if isinstance(s, Loop)
            else ProgramCall(s.procedure, tuple(map(address, s.args)))
            for s in step
        )

    return tuple(map(convert, module.steps()))


def _address(array: Array, place: Placement, ref: Ref) -> Address:
    """The address of an array element; elements lie in row-major order of the extents."""
    base, terms = place.address, []
    assert len(ref.index) == len(array.extents), f"`{array.name}` takes {len(array.extents)} indices"
    for i, index in enumerate(ref.index):
        stride = place.stride * prod(array.extents[i + 1 :])
        if index.terms:
            terms.append((index, stride))
        else:
            base += index.at({}) * stride
    return Address(base, tuple(terms))
