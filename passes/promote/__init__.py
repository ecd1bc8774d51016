"""Keep what a procedure touches often in the fast memory while the procedure runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar, Final

import numpy as np

from wscc.analysis.aliases import aliases
from wscc.analysis.cost import DieRates
from wscc.analysis.memory.array_layout import resting_bytes
from wscc.analysis.statement_accesses import where_of
from wscc.ir.die_arrays import as_array, as_ints
from wscc.ir.fabric import Buffer, FabricStmt, Transfer, with_views
from wscc.ir.module import Mode, Module, Procedure
from wscc.ir.naming import fresh
from wscc.ir.op import GraphStmt
from wscc.ir.per_die import NOBODY, Ints
from wscc.ir.views import View, whole_view
from wscc.passes.base import Fact, Pass
from wscc.passes.promote.boxes import Argument
from wscc.passes.promote.choose import Copy, chosen, needed_from
from wscc.passes.promote.spread import spread_pieces

# Where arrays are no more than so many times the SRAM, a good part of them lies in it.
_MANY: Final = 4


@dataclass(frozen=True, slots=True)
class Promote(Pass):
    """Copy arguments whose bytes lie in HBM into locals that may lie in SRAM (promotion into a scratchpad: M. Kandemir
    et al., "Dynamic Management of Scratch-Pad Memory Space", DAC 2001), where that saves more time than the copies
    take: a copy in before the first statement that touches the argument, unless it is only written, and a copy out
    after the last that writes it. Statements touch the local instead.

    A copy is a transfer of each die to itself: it takes no link, and goes on while the die computes. Nothing changes
    where a good part of the arrays lies in SRAM anyway. Arguments that a call may bind to the bytes of others are left
    alone. Pieces of a kernel that reads arguments first move up among products, so that their copies hide there.

    Before: gemm %a = %w, ..; gemm %b = %w, ..
    After:  transfer 0 to=[0,1] %w -> %w.near; gemm %a = %w.near, ..; gemm %b = %w.near, ..
    """

    name: ClassVar[str] = "promote"
    requires: ClassVar[frozenset[Fact]] = frozenset({Fact.LOWERED})
    provides: ClassVar[frozenset[Fact]] = frozenset({Fact.PROMOTED})

    def run(self, module: Module) -> Module:
        die = module.machine.die
        if not DieRates.of(die).has_hbm or resting_bytes(module) <= _MANY * die.sram:
            return module
        names, dies = aliases(module), module.dies_used
        spread = [spread_pieces(p, die, names[p.name]) for p in module.procedures]
        return module.with_(
            procedures=tuple(
                promoted(p, chosen(p, _arguments(p, module, names[p.name]), module.machine), dies)
                for p in spread
            )
        )


def _arguments(procedure: Procedure, module: Module, shared: dict[str, str]) -> list[Argument]:
    """Those whose bytes have one name."""
    held = {v.name for v in procedure.inputs}
    held |= {o.value.name for o in procedure.outputs if o.mode is Mode.ADD}
    values = {v.name: v.type for v in procedure.arguments if v.name not in shared}
    return [
        Argument(name, prod(t.local_shape(module.sizes)), t.dtype, name in held) for name, t in values.items()
    ]


def promoted(procedure: Procedure, copies: list[Copy], dies: int) -> Procedure:
    """The procedure with these copies, in locals of their own."""
    if not copies:
        return procedure
    taken = {v.name for v in procedure.arguments} | {b.name for b in procedure.buffers}
    channel = 1 + max((s.channel for s in procedure.body if isinstance(s, Transfer)), default=-1)
    before: dict[int, list[FabricStmt]] = defaultdict(list)
    after: dict[int, list[FabricStmt]] = defaultdict(list)
    moved: dict[tuple[int, View], View] = {}
    buffers = []
    for c in copies:
        name = fresh(f"{c.argument.name}.near", taken)
        taken.add(name)
        buffers.append(Buffer(name, c.box.view.elements, c.argument.dtype))
        far, near = c.box.view, whole_view(name, c.box.view.shape, c.argument.dtype)
        to = _dies(procedure, c, dies)
        if c.argument.held:
            before[needed_from(procedure, c.first)].append(Transfer(channel, to, far, near, source=name))
        if c.last_write >= 0:
            after[c.last_write].append(Transfer(channel + 1, to, near, far, source=name))
        channel += 2
        for t in c.touches:
            view = c.box.inside(t.view)
            assert view is not None
            moved[t.at, t.view] = replace(view, buffer=name)

    def on_copies(i: int) -> Callable[[View], View]:
        return lambda v: moved.get((i, v), v)

    body: list[FabricStmt] = []
    for i, stmt in enumerate(procedure.body):
        assert not isinstance(stmt, GraphStmt)
        body += [*before[i], with_views(stmt, on_copies(i)), *after[i]]
    return replace(procedure, body=tuple(body), buffers=(*procedure.buffers, *buffers))


def _dies(procedure: Procedure, c: Copy, dies: int) -> Ints:
    """Each die that touches the copy sends to itself."""
    here = np.zeros(dies, np.bool_)
    for t in c.touches:
        where = where_of(procedure.body[t.at], dies, writes=t.writes)
        here |= as_array(where, dies) != 0
    return as_ints(np.where(here, np.arange(dies), NOBODY))
