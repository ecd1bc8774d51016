"""Which formals of a procedure are worth a place in the fast memory, in competition with its locals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wscc.ir.fabric import Kernel, Transfer
from wscc.ir.memory import aligned
from wscc.ir.module import Procedure
from wscc.ir.types import DType
from wscc.machine.wafer import Wafer
from wscc.passes.plan_memory_cost import Pace, pace, slow_costs
from wscc.passes.plan_memory_fast import fill_fast
from wscc.passes.plan_memory_live import Lifetime

# Copies go on behind work as far as there is any: this part of their time is counted all the same.
_SHOWN: Final = 0.25
_NO_TIME: Final = 1e-30
# What saves less than this part of a link's latency is not worth its instructions.
_WORTH: Final = 0.1
# Messages are begun and end over so many other transfers (`Schedule.window`).
_WINDOW: Final = 2


@dataclass(frozen=True, slots=True)
class Formal:
    """Memory of `elements` that a call binds, which may hold something at entry (`held`)."""

    name: str
    elements: int
    dtype: DType
    held: bool

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.size


@dataclass(slots=True)
class _Use:
    first: int
    last: int
    written: int = -1


def chosen(procedure: Procedure, formals: list[Formal], machine: Wafer) -> list[Formal]:
    """Those that gain, and fit the fast memory beside the locals that gain more."""
    die = machine.die
    uses = _uses(procedure)
    costs = slow_costs(procedure, die)
    rhythm = pace(procedure, die)
    lives = [
        Lifetime(
            b.name, aligned(b.bytes), uses[b.name].first, uses[b.name].last, b.slot, costs.get(b.name, 0.0)
        )
        for b in procedure.buffers
        if b.name in uses
    ]
    wanted = {}
    copies = {
        f.name: _copies(f, uses[f.name]) * f.bytes / die.hbm_bandwidth for f in formals if f.name in uses
    }
    shown = max(_SHOWN, 1 - float(rhythm.seconds[-1]) / max(sum(copies.values()), _NO_TIME))
    for f in formals:
        gain = costs.get(f.name, 0.0) - shown * copies.get(f.name, 0.0)
        if gain > _WORTH * machine.link.latency:
            wanted[f.name] = f
            first, last = _held(f, uses[f.name], rhythm, f.bytes / die.hbm_bandwidth)
            lives.append(Lifetime(f.name, aligned(f.bytes), first, last, slot=False, cost=gain))
    if not wanted:
        return []
    found = fill_fast(tuple(lives), die.sram)
    return [f for name, f in wanted.items() if name in found]


def _copies(f: Formal, use: _Use) -> int:
    """In, out, or both."""
    return f.held + (use.written >= 0)


def _held(f: Formal, use: _Use, rhythm: Pace, seconds: float) -> tuple[int, int]:
    """The statements from which on and until which a copy is there, its own transfers included."""
    first = rhythm.before(use.first, seconds) if f.held else use.first
    last = max(use.last, rhythm.after(use.written, seconds)) if use.written >= 0 else use.last
    return first, last


def needed_from(procedure: Procedure, first: int) -> int:
    """The statement before which a copy must be there that statement `first` is the first to touch: a message may
    begin earlier than its transfer stands."""
    if not isinstance(procedure.body[first], Transfer):
        return first
    earlier = [i for i, s in enumerate(procedure.body[: first + 1]) if isinstance(s, Transfer)]
    return earlier[max(0, len(earlier) - 1 - _WINDOW)]


def _uses(procedure: Procedure) -> dict[str, _Use]:
    """By buffer and formal, the statements from which on and until which it is needed."""
    transfers = [i for i, s in enumerate(procedure.body) if isinstance(s, Transfer)]
    number = {i: n for n, i in enumerate(transfers)}
    uses: dict[str, _Use] = {}

    def touch(name: str, first: int, last: int, written: int) -> None:
        use = uses.setdefault(name, _Use(first, last))
        use.first, use.last = min(use.first, first), max(use.last, last)
        use.written = max(use.written, written)

    for i, stmt in enumerate(procedure.body):
        if isinstance(stmt, Kernel):
            for v in stmt.writes:
                touch(v.buffer, i, i, i)
            for v in stmt.reads:
                touch(v.buffer, i, i, -1)
        elif isinstance(stmt, Transfer):
            n = number[i]
            first = transfers[max(0, n - _WINDOW)]
            last = transfers[min(len(transfers) - 1, n + _WINDOW)]
            touch(stmt.read.buffer, i, last, -1)
            touch(stmt.write.buffer, first, i, i)
    return uses
