"""The arguments of a procedure that are worth a place in the fast memory, in competition with its locals.

Seconds are those of `access_cost`, at the rates of the wafer. What copies wait for one another is an average queue;
that messages use the same port, and where in a body copies meet, is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from wscc.analysis.cost import Rates
from wscc.analysis.memory.access_cost import Pace, pace, slow_costs, statement_costs
from wscc.analysis.memory.live_ranges import Lifetime
from wscc.analysis.memory.pack_two_level import fill_fast
from wscc.analysis.statement_accesses import Access, accesses_by_buffer
from wscc.analysis.transfer_groups import WINDOW
from wscc.ir.fabric import Transfer
from wscc.ir.memory import aligned
from wscc.ir.module import Procedure
from wscc.ir.views import View
from wscc.machine.wafer import Die, Wafer
from wscc.passes.promote.boxes import Argument, Box, boxes

# Copies go on behind work as far as there is any: this part of their time is counted all the same.
_SHOWN: Final = 0.25
_NO_TIME: Final = 1e-30
# What saves less than this part of a link's latency is not worth its instructions.
_WORTH: Final = 0.1
# Uses of what is only read have a copy each if there is work between them for copies of this part of the SRAM.
_APART: Final = 0.7


@dataclass(frozen=True, slots=True)
class Copy:
    """A box of an argument that lies in a local for some touches, in order; `name` is its own."""

    name: str
    argument: Argument
    box: Box
    touches: tuple[Access, ...]

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
        return self.argument.held + (self.last_write >= 0)


def chosen(procedure: Procedure, arguments: list[Argument], machine: Wafer) -> list[Copy]:
    """Those that gain, and fit the fast memory beside the locals that gain more."""
    die, rates, rhythm = machine.die, Rates.of(machine), pace(procedure, machine.die)
    work = float(rhythm.seconds[-1])
    found = list(copies(procedure, arguments, rhythm, rates.die.hbm(_APART * die.sram)))
    seconds = {c.name: rates.die.hbm(c.times * c.bytes) for c in found}
    costs, queue = _costs(procedure, die), _queue(seconds, work)

    def gain(c: Copy, shown: float) -> float:
        saved = sum(costs[t.at, t.view] + queue[c.name] for t in c.touches)
        return saved - shown * (seconds[c.name] + c.times * queue[c.name])

    lives = list(_locals(procedure, die))

    def fitting(shown: float) -> tuple[list[Copy], float]:
        """The copies that fit if so much of their time shows, and how long the memory's port is busy then."""
        gains = {c.name: gain(c, shown) for c in found}
        wanted = [c for c in found if gains[c.name] > _WORTH * rates.link.latency]
        if not wanted:
            return [], 0.0
        fits = fill_fast((*lives, *(_life(c, gains[c.name]) for c in wanted)), die.sram)
        near = [c for c in wanted if c.name in fits]
        return near, sum(seconds[c.name] for c in near) + sum(x.cost for x in lives if x.name not in fits)

    first = _shown(work, sum(seconds.values()))
    near, port = fitting(first)
    # What does not fit keeps the port busy as well, and then hides less: known once it is known what fits.
    return fitting(_shown(work, port))[0] if _shown(work, port) > first else near


def _shown(work: float, port: float) -> float:
    """The part of copies' time that does not hide behind `work`, where the memory's port is busy for so long."""
    return max(_SHOWN, 1 - work / max(port, _NO_TIME))


def _queue(copies: dict[str, float], work: float) -> dict[str, float]:
    """How long, on average, an access waits for copies other than the one that would spare it: the part of the time
    that the port of the memory is busy with a copy, times half of what that takes (residual time of a queue)."""
    squares = sum(s * s for s in copies.values())
    whole = max(sum(copies.values()), work, _NO_TIME)
    return {name: (squares - s * s) / (2 * whole) for name, s in copies.items()}


def copies(procedure: Procedure, arguments: list[Argument], rhythm: Pace, apart: float) -> Iterator[Copy]:
    """All that may be copied: box by box, and for what is only read, use by use if those are `apart` in seconds."""
    touches = accesses_by_buffer(procedure.body)
    for f in arguments:
        own = touches.get(f.name, [])
        for n, box in enumerate(boxes(f, (t.view for t in own))):
            inside = [t for t in own if box.inside(t.view)]
            for k, part in enumerate(_clusters(inside, rhythm, apart) if f.held else [inside]):
                yield Copy(f"{f.name}.{n}.{k}", f, box, tuple(part))


def _clusters(touches: list[Access], rhythm: Pace, apart: float) -> Iterator[list[Access]]:
    if any(t.writes for t in touches):
        yield touches
        return
    start = 0
    for i, (a, b) in enumerate(pairwise(touches), 1):
        if rhythm.seconds[b.at] - rhythm.seconds[a.at] > apart:
            yield touches[start:i]
            start = i
    yield touches[start:]


def _costs(procedure: Procedure, die: Die) -> dict[tuple[int, View], float]:
    found: dict[tuple[int, View], float] = {}
    for i, view, seconds in statement_costs(procedure, die):
        found[i, view] = max(found.get((i, view), 0.0), seconds)
    return found


def _locals(procedure: Procedure, die: Die) -> Iterator[Lifetime]:
    uses, costs = _touched_from_to(procedure), slow_costs(procedure, die)
    for b in procedure.buffers:
        if b.name in uses:
            yield Lifetime(b.name, aligned(b.bytes), *uses[b.name], b.slot, costs.get(b.name, 0.0))


def _touched_from_to(procedure: Procedure) -> dict[str, tuple[int, int]]:
    """By buffer and argument, the statements from which on and until which it is needed: messages begin and end over
    other transfers."""
    transfers = [i for i, s in enumerate(procedure.body) if isinstance(s, Transfer)]
    number = {i: n for n, i in enumerate(transfers)}

    def first(a: Access) -> int:
        return transfers[max(0, number[a.at] - WINDOW)] if a.at in number and a.writes else a.at

    def last(a: Access) -> int:
        is_read = a.at in number and not a.writes
        return transfers[min(len(transfers) - 1, number[a.at] + WINDOW)] if is_read else a.at

    return {
        buffer: (min(map(first, accesses)), max(map(last, accesses)))
        for buffer, accesses in accesses_by_buffer(procedure.body).items()
    }


def _life(c: Copy, gain: float) -> Lifetime:
    """As long as it is used; `schedule` copies earlier and later as far as there is room."""
    return Lifetime(c.name, aligned(c.bytes), c.first, c.touches[-1].at, slot=False, cost=gain)


def needed_from(procedure: Procedure, first: int) -> int:
    """The statement before which a copy must be there that statement `first` is the first to touch: a message may
    begin earlier than its transfer stands."""
    if not isinstance(procedure.body[first], Transfer):
        return first
    earlier = [i for i, s in enumerate(procedure.body[: first + 1]) if isinstance(s, Transfer)]
    return earlier[max(0, len(earlier) - 1 - WINDOW)]
