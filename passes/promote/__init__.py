"""Promotion of arguments that a procedure accesses often to the fast memory while the procedure runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar, Final

import numpy as np

from wscc.analysis.aliases import aliases
from wscc.analysis.cost import DieRates, Rates
from wscc.analysis.memory.array_layout import peak_array_bytes
from wscc.analysis.memory.handed import Handed, handed_in
from wscc.analysis.statement_accesses import where_of
from wscc.ir.die_arrays import as_array, as_ints
from wscc.ir.fabric import Buffer, FabricStmt, Transfer, with_views
from wscc.ir.module import Mode, Module, Procedure
from wscc.ir.naming import Names
from wscc.ir.op import GraphStmt
from wscc.ir.per_die import NOBODY, Ints
from wscc.ir.step import calls
from wscc.ir.views import View, whole_view
from wscc.machine.wafer import Die
from wscc.passes.base import Fact, Pass
from wscc.passes.promote.boxes import Argument
from wscc.passes.promote.choose import Choice, Measured, latest_copy_position, profitable_copies
from wscc.passes.promote.handed_on import handed_on
from wscc.passes.promote.phases import Copy
from wscc.passes.promote.spread import spread_pieces

# With arrays of at most so many times the SRAM, a good part of them is in SRAM anyway.
_MIN_RATIO: Final = 4


@dataclass(frozen=True, slots=True)
class Promote(Pass):
    """Copy arguments whose bytes are in HBM into locals that may be in SRAM, where that saves more time than the copies
    take (promotion into a scratchpad: M. Kandemir et al., "Dynamic Management of Scratch-Pad Memory Space", DAC 2001).

    There is a copy in before the first statement that accesses the argument, unless it is only written, and a copy out
    after the last that writes it. Statements access the local instead. A copy is a transfer of each die to itself: it
    takes no link, and goes on while the die computes. Nothing changes where a good part of the arrays is in SRAM
    anyway. Arguments that a call may bind to the bytes of others are left alone. What a call hands to the next stays in
    the fast memory between the two, where that saves time. Pieces of a kernel that reads arguments first move up among
    products, which then hide their copies.

    Before: gemm %a = %w, ..; gemm %b = %w, ..
    After:  transfer 0 to=[0,1] %w -> %w.near; gemm %a = %w.near, ..; gemm %b = %w.near, ..
    """

    name: ClassVar[str] = "promote"
    requires: ClassVar[frozenset[Fact]] = frozenset({Fact.LOWERED})
    provides: ClassVar[frozenset[Fact]] = frozenset({Fact.PROMOTED})

    def run(self, module: Module) -> Module:
        die = module.die
        if not DieRates.of(die).has_hbm or peak_array_bytes(module) <= _MIN_RATIO * die.sram:
            return module
        estimates = _Estimates(die)
        return estimates.promoted(handed_on(module, estimates.lost))


# A procedure by its identity, and its aliases; what its copies depend on besides is handed to it.
_Key = tuple[int, frozenset[tuple[str, str]]]


class _Estimates:
    """The copies of each procedure of a module, and what its calls then lose; the same procedure is looked at once."""

    def __init__(self, die: Die) -> None:
        self.die = die
        # With the procedure itself, so that no other has its identity.
        self._measured: dict[_Key, tuple[Procedure, Measured]] = {}
        self._found: dict[tuple[_Key, tuple[Handed, ...]], Choice] = {}

    def lost(self, module: Module) -> float:
        """The seconds that all calls of a step lose to HBM, by estimate."""
        times: Counter[str] = Counter()
        for call, count in calls(module.step):
            times[call.procedure] += count
        return sum(times[p.name] * choice.lost for p, choice in self._choices(module))

    def promoted(self, module: Module) -> Module:
        """The module with the copies."""
        dies = module.dies_used
        chosen = self._choices(module)
        return module.with_(procedures=tuple(promoted(p, choice.copies, dies) for p, choice in chosen))

    def _choices(self, module: Module) -> list[tuple[Procedure, Choice]]:
        names, handed = aliases(module), handed_in(module)
        return [self._choice(p, module, handed.get(p.name, ()), names[p.name]) for p in module.procedures]

    def _choice(
        self, p: Procedure, module: Module, near: tuple[Handed, ...], bound: dict[str, str]
    ) -> tuple[Procedure, Choice]:
        key = id(p), frozenset(bound.items())
        if key not in self._measured:
            self._measured[key] = (
                p,
                Measured.of(spread_pieces(p, self.die, bound), self.die, module.dies_used),
            )
        _, measured = self._measured[key]
        spread = measured.procedure
        if (key, near) not in self._found:
            left = bound.keys() | _saved(p) | {n for h in near for n in (*h.reads, *h.writes)}
            arguments = _arguments(spread, module, left)
            self._found[key, near] = profitable_copies(
                measured, arguments, Rates.of(module.machine, module.die), module.die, near
            )
        return spread, self._found[key, near]


def _saved(procedure: Procedure) -> set[str]:
    """The arguments that a copy within a die fills already."""
    return {s.write.buffer for s in procedure.body if isinstance(s, Transfer) and s.is_local}


def _arguments(procedure: Procedure, module: Module, left: Set[str]) -> list[Argument]:
    """The arguments of a procedure, but for those `left` where they are."""
    live_in = {v.name for v in procedure.inputs}
    live_in |= {o.value.name for o in procedure.outputs if o.mode is Mode.ADD}
    types = {v.name: v.type for v in procedure.arguments if v.name not in left}
    return [
        Argument(name, prod(t.local_shape(module.sizes)), t.dtype, name in live_in)
        for name, t in types.items()
    ]


def promoted(procedure: Procedure, copies: Sequence[Copy], dies: int) -> Procedure:
    """The procedure with these copies, each in a local of its own."""
    if not copies:
        return procedure
    names = Names([*(v.name for v in procedure.arguments), *(b.name for b in procedure.buffers)])
    channel = 1 + max((s.channel for s in procedure.body if isinstance(s, Transfer)), default=-1)
    transfers = [i for i, s in enumerate(procedure.body) if isinstance(s, Transfer)]
    before: dict[int, list[FabricStmt]] = defaultdict(list)
    after: dict[int, list[FabricStmt]] = defaultdict(list)
    redirected: dict[int, dict[View, View]] = defaultdict(dict)  # by position
    buffers = []
    for c in copies:
        name = names.new(f"{c.argument.name}.near")
        buffers.append(Buffer(name, c.box.view.elements, c.argument.dtype))
        far, near = c.box.view, whole_view(name, c.box.view.shape, c.argument.dtype)
        to = _dies(procedure, c, dies)
        if c.loads:
            before[latest_copy_position(transfers, c.first)].append(
                Transfer(channel, to, far, near, source=name)
            )
        if c.stores:
            after[c.last_write].append(Transfer(channel + 1, to, near, far, source=name))
        channel += 2
        for a in c.accesses:
            view = c.box.inside(a.view)
            assert view is not None
            redirected[a.position][a.view] = view.on(name)

    def on_copies(i: int) -> Callable[[View], View]:
        return lambda v: redirected[i].get(v, v)

    body: list[FabricStmt] = []
    for i, stmt in enumerate(procedure.body):
        assert not isinstance(stmt, GraphStmt)
        stmt = with_views(stmt, on_copies(i)) if i in redirected else stmt
        body += [*before.get(i, ()), stmt, *after.get(i, ())]
    return replace(procedure, body=tuple(body), buffers=(*procedure.buffers, *buffers))


def _dies(procedure: Procedure, c: Copy, dies: int) -> Ints:
    """Receivers of a copy by sender: each die that accesses the copy sends to itself."""
    accessing = np.zeros(dies, np.bool_)
    for a in c.accesses:
        where = where_of(procedure.body[a.position], dies, writes=a.writes)
        accessing |= as_array(where, dies) != 0
    return as_ints(np.where(accessing, np.arange(dies), NOBODY))
