"""Which formals of a procedure are worth a place in the fast memory, in competition with its locals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from wscc.ir.fabric import Transfer, View, views_of
from wscc.ir.memory import aligned
from wscc.ir.module import Procedure
from wscc.machine.wafer import Die, Wafer
from wscc.passes.plan_memory_cost import Pace, pace, slow_costs, statement_costs
from wscc.passes.plan_memory_fast import fill_fast
from wscc.passes.plan_memory_live import Lifetime
from wscc.passes.promote_boxes import Box, Formal, boxes
from wscc.passes.schedule_moments import WINDOW

# Copies go on behind work as far as there is any: this part of their time is counted all the same.
_SHOWN: Final = 0.25
_NO_TIME: Final = 1e-30
# What saves less than this part of a link's latency is not worth its instructions.
_WORTH: Final = 0.1
# Uses of what is only read have a copy each if there is work between them for so many copies.
_APART: Final = 6


@dataclass(frozen=True, slots=True)
class Touch:
    """A view of statement `at` on a formal."""

    at: int
    view: View
    writes: bool


@dataclass(frozen=True, slots=True)
class Copy:
    """A box of a formal that lies in a local for some touches, in order; `name` is its own."""

    name: str
    formal: Formal
    box: Box
    touches: tuple[Touch, ...]

    @property
    def first(self) -> int:
        return self.touches[0].at

    @property
    def last_write(self) -> int:
        """The last statement that writes it, or -1."""
        return max((t.at for t in self.touches if t.writes), default=-1)

    @property
    def bytes(self) -> int:
        return self.box.view.bytes

    @property
    def times(self) -> int:
        """In, out, or both."""
        return self.formal.held + (self.last_write >= 0)


def chosen(procedure: Procedure, formals: list[Formal], machine: Wafer) -> list[Copy]:
    """Those that gain, and fit the fast memory beside the locals that gain more."""
    die = machine.die
    rhythm = pace(procedure, die)
    found = list(copies(procedure, formals, rhythm, die.hbm_bandwidth))
    seconds = {c.name: c.times * c.bytes / die.hbm_bandwidth for c in found}
    shown = max(_SHOWN, 1 - float(rhythm.seconds[-1]) / max(sum(seconds.values()), _NO_TIME))
    costs = _costs(procedure, die)
    lives = list(_locals(procedure, die))
    wanted = []
    for c in found:
        saved = sum(costs[t.at, t.view] for t in c.touches)
        if saved - shown * seconds[c.name] > _WORTH * machine.link.latency:
            wanted.append(c)
            lives.append(_life(c, rhythm, c.bytes / die.hbm_bandwidth, saved - shown * seconds[c.name]))
    near = fill_fast(tuple(lives), die.sram) if wanted else {}
    return [c for c in wanted if c.name in near]


def copies(procedure: Procedure, formals: list[Formal], rhythm: Pace, bandwidth: float) -> Iterator[Copy]:
    """All that may be copied: box by box, and for what is only read, use by use."""
    touches = _touches(procedure)
    for f in formals:
        own = touches.get(f.name, [])
        for n, box in enumerate(boxes(f, (t.view for t in own))):
            inside = [t for t in own if box.inside(t.view)]
            apart = _APART * box.view.bytes / bandwidth
            for k, part in enumerate(_clusters(inside, rhythm, apart) if f.held else [inside]):
                yield Copy(f"{f.name}.{n}.{k}", f, box, tuple(part))


def _clusters(touches: list[Touch], rhythm: Pace, apart: float) -> Iterator[list[Touch]]:
    if any(t.writes for t in touches):
        yield touches
        return
    start = 0
    for i, (a, b) in enumerate(pairwise(touches), 1):
        if rhythm.seconds[b.at] - rhythm.seconds[a.at] > apart:
            yield touches[start:i]
            start = i
    yield touches[start:]


def _touches(procedure: Procedure) -> dict[str, list[Touch]]:
    """By buffer and formal, in order."""
    found: dict[str, list[Touch]] = {}
    for i, stmt in enumerate(procedure.body):
        for view, writes in views_of(stmt):
            found.setdefault(view.buffer, []).append(Touch(i, view, writes))
    return found


def _costs(procedure: Procedure, die: Die) -> dict[tuple[int, View], float]:
    found: dict[tuple[int, View], float] = {}
    for i, view, seconds in statement_costs(procedure, die):
        found[i, view] = max(found.get((i, view), 0.0), seconds)
    return found


def _locals(procedure: Procedure, die: Die) -> Iterator[Lifetime]:
    uses, costs = _uses(procedure), slow_costs(procedure, die)
    for b in procedure.buffers:
        if b.name in uses:
            yield Lifetime(b.name, aligned(b.bytes), *uses[b.name], b.slot, costs.get(b.name, 0.0))


def _life(c: Copy, rhythm: Pace, seconds: float, gain: float) -> Lifetime:
    """Its own transfers included."""
    first = rhythm.before(c.first, seconds) if c.formal.held else c.first
    last = max(c.touches[-1].at, rhythm.after(c.last_write, seconds) if c.last_write >= 0 else 0)
    return Lifetime(c.name, aligned(c.bytes), first, last, slot=False, cost=gain)


def needed_from(procedure: Procedure, first: int) -> int:
    """The statement before which a copy must be there that statement `first` is the first to touch: a message may
    begin earlier than its transfer stands."""
    if not isinstance(procedure.body[first], Transfer):
        return first
    earlier = [i for i, s in enumerate(procedure.body[: first + 1]) if isinstance(s, Transfer)]
    return earlier[max(0, len(earlier) - 1 - WINDOW)]


def _uses(procedure: Procedure) -> dict[str, tuple[int, int]]:
    """By buffer and formal, the statements from which on and until which it is needed."""
    transfers = [i for i, s in enumerate(procedure.body) if isinstance(s, Transfer)]
    number = {i: n for n, i in enumerate(transfers)}
    uses: dict[str, tuple[int, int]] = {}
    for i, stmt in enumerate(procedure.body):
        for view, writes in views_of(stmt):
            first = last = i
            if isinstance(stmt, Transfer) and writes:
                first = transfers[max(0, number[i] - WINDOW)]
            elif isinstance(stmt, Transfer):
                last = transfers[min(len(transfers) - 1, number[i] + WINDOW)]
            low, high = uses.get(view.buffer, (first, last))
            uses[view.buffer] = min(low, first), max(high, last)
    return uses
