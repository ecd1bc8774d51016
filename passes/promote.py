"""Keep what a procedure touches often in the fast memory while the procedure runs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar, Final

import numpy as np

from wscc.ir.die_arrays import as_array, as_ints, present, senders
from wscc.ir.fabric import NOBODY, Buffer, FabricStmt, Ints, Kernel, Transfer, View
from wscc.ir.module import Mode, Module, Op, Procedure
from wscc.ir.naming import fresh
from wscc.passes.aliases import aliases
from wscc.passes.base import Fact, Pass
from wscc.passes.lower_context import whole_view
from wscc.passes.plan_memory_arrays import array_bytes
from wscc.passes.promote_choice import Formal, chosen, needed_from

# Where arrays are no more than so many times the SRAM, a good part of them lies in it.
_MANY: Final = 4


@dataclass(frozen=True, slots=True)
class Promote(Pass):
    """Copy formals whose bytes lie in HBM into locals that may lie in SRAM (promotion into a scratchpad: M. Kandemir
    et al., "Dynamic Management of Scratch-Pad Memory Space", DAC 2001), where that saves more time than the copies
    take: a copy in before the first statement that touches the formal, unless it is only written, and a copy out
    after the last that writes it. Statements touch the local instead.

    A copy is a transfer of each die to itself: it takes no link, and goes on while the die computes. Nothing changes
    where a good part of the arrays lies in SRAM anyway. Formals that a call may bind to the bytes of others are left
    alone.

    Before: gemm %a = %w, ..; gemm %b = %w, ..
    After:  transfer 0 to=[0,1] %w -> %w.near; gemm %a = %w.near, ..; gemm %b = %w.near, ..
    """

    name: ClassVar[str] = "promote"
    requires: ClassVar[frozenset[Fact]] = frozenset({Fact.LOWERED})
    provides: ClassVar[frozenset[Fact]] = frozenset({Fact.PROMOTED})

    def run(self, module: Module) -> Module:
        die = module.machine.die
        if not die.hbm_bandwidth or sum(array_bytes(module).values()) <= _MANY * die.sram:
            return module
        names = aliases(module)
        return module.with_(
            procedures=tuple(
                promoted(p, chosen(p, _formals(p, module, names[p.name]), module.machine), module.dies_used)
                for p in module.procedures
            )
        )


def _formals(procedure: Procedure, module: Module, shared: dict[str, str]) -> list[Formal]:
    """Those whose bytes have one name."""
    held = {v.name for v in procedure.inputs}
    held |= {o.value.name for o in procedure.outputs if o.mode is Mode.ADD}
    values = {v.name: v.type for v in procedure.formals if v.name not in shared}
    return [
        Formal(name, prod(t.local_shape(module.sizes)), t.dtype, name in held) for name, t in values.items()
    ]


def promoted(procedure: Procedure, formals: list[Formal], dies: int) -> Procedure:
    """The procedure with statements that touch locals instead of these formals."""
    return _Promoted(procedure, dies).with_(formals)


class _Promoted:
    def __init__(self, procedure: Procedure, dies: int) -> None:
        self.procedure = procedure
        self.dies = dies
        self.channel = 1 + max((s.channel for s in procedure.body if isinstance(s, Transfer)), default=-1)

    def with_(self, formals: list[Formal]) -> Procedure:
        procedure = self.procedure
        taken = {v.name for v in procedure.formals} | {b.name for b in procedure.buffers}
        near: dict[str, str] = {}
        for f in formals:
            near[f.name] = fresh(f"{f.name}.near", taken)
            taken.add(near[f.name])
        before: dict[int, list[FabricStmt]] = defaultdict(list)
        after: dict[int, list[FabricStmt]] = defaultdict(list)
        for f in formals:
            far, local = (whole_view(n, (f.elements,), f.dtype) for n in (f.name, near[f.name]))
            first, last_write, to = self._touched(f)
            if first < 0:
                continue
            if f.held:
                before[needed_from(procedure, first)].append(self._copy(far, local, to))
            if last_write >= 0:
                after[last_write].append(self._copy(local, far, to))
        body: list[FabricStmt] = []
        for i, stmt in enumerate(procedure.body):
            assert not isinstance(stmt, Op)
            body += [*before[i], _renamed(stmt, near), *after[i]]
        buffers = tuple(Buffer(near[f.name], f.elements, f.dtype) for f in formals)
        return replace(procedure, body=tuple(body), buffers=(*procedure.buffers, *buffers))

    def _touched(self, f: Formal) -> tuple[int, int, Ints]:
        """The first statement that touches a formal, the last that writes it (or -1), and on which dies: each of
        them sends to itself."""
        first, last_write = -1, -1
        here = np.zeros(self.dies, np.bool_)
        for i, stmt in enumerate(self.procedure.body):
            for view, where, writes in _touches(stmt, self.dies):
                if view.buffer == f.name:
                    first = i if first < 0 else first
                    last_write = i if writes else last_write
                    here |= as_array(where, self.dies) != 0
        return first, last_write, as_ints(np.where(here, np.arange(self.dies), NOBODY))

    def _copy(self, read: View, write: View, to: Ints) -> Transfer:
        self.channel += 1
        return Transfer(self.channel - 1, to, read, write, source=write.buffer)


def _touches(stmt: object, dies: int) -> list[tuple[View, Ints, bool]]:
    """The views of a statement, the dies on which it touches them, and whether it writes."""
    if isinstance(stmt, Kernel):
        writes = [(v, stmt.where, True) for v in stmt.writes]
        return [*writes, *((v, stmt.where, False) for v in stmt.reads)]
    assert isinstance(stmt, Transfer)
    if stmt.to == NOBODY:
        return []
    return [
        (stmt.read, present(stmt.to, dies), False),
        (stmt.write, present(senders(stmt.to, dies), dies), True),
    ]


def _renamed(stmt: FabricStmt, near: dict[str, str]) -> FabricStmt:
    def view(v: View) -> View:
        return replace(v, buffer=near[v.buffer]) if v.buffer in near else v

    if isinstance(stmt, Kernel):
        return replace(stmt, writes=tuple(map(view, stmt.writes)), reads=tuple(map(view, stmt.reads)))
    assert isinstance(stmt, Transfer)
    return replace(stmt, read=view(stmt.read), write=view(stmt.write))
