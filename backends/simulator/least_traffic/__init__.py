"""The fewest bytes that a die moves from and to its HBM in a step: what the calls of its program need, whatever the
SRAM keeps between.

A *window* is a run of successive calls. What its calls read and nothing in it has written before has to come from HBM,
but for what the SRAM holds when it begins; what they write and others read later has to go there, but for what the SRAM
holds when it ends. Windows that follow one another add up: the bound is that of the best division of the step into
windows, with those of loops inside. (The argument is that of Hong and Kung, "I/O complexity: the red-blue pebble game",
STOC 1981.) It holds for what calls hand to one another in HBM in this program, of which each value is read again, and
for any order and any places of what they do inside.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from wscc.backends.simulator.calls import Builder
from wscc.backends.simulator.least_traffic.arguments import Arguments, OfDie, Touched
from wscc.backends.simulator.least_traffic.pieces import Counts, Piece
from wscc.backends.simulator.least_traffic.windows import Window
from wscc.ir.streams.program import ProgramCall, ProgramLoop, ProgramStep

# Windows of more statements are looked at only where they begin a body.
_LONGEST: Final = 24


def least_hbm_bytes(builder: Builder, die: int) -> int:
    """The fewest bytes that a logical die moves from and to HBM in the calls of a step."""
    step = builder.streams.steps[builder.stages[die]]
    return least_bytes(step, OfDie(builder, die), builder.costs.wafer.die.sram)


def least_bytes(step: ProgramStep, arguments: Arguments, sram: int) -> int:
    """The same for a step of procedures with these arguments; addresses from `sram` on are in HBM."""
    return _Least(arguments, sram).body(step, {})[1]


@dataclass(frozen=True, slots=True)
class _Least:
    arguments: Arguments
    sram: int

    def body(self, step: ProgramStep, counts: Counts) -> tuple[Window, int]:
        """All of a body as one window, and its bound: the largest sum of bounds of windows that follow one another."""
        statements = [self._statement(s, counts) for s in step]
        windows, alone = [w for w, _ in statements], [bound for _, bound in statements]
        whole, best = Window(), [0] * (len(step) + 1)
        for first in range(len(step)):
            best[first + 1] = max(best[first + 1], best[first] + alone[first])
            grown = Window() if first else whole
            for end in range(first, min(len(step), first + _LONGEST) if first else len(step)):
                grown.append(windows[end], counts)
                if end > first:
                    best[end + 1] = max(best[end + 1], best[first] + grown.bound(self.sram))
        return whole, best[-1]

    def _statement(self, stmt: ProgramCall | ProgramLoop, counts: Counts) -> tuple[Window, int]:
        """A statement as one window, and its bound: of a loop by turns, by windows of several turns, or by all."""
        if isinstance(stmt, ProgramCall):
            window = self._call(stmt, counts)
            return window, window.bound(self.sram)
        if not stmt.count:
            return Window(), 0
        inner = {**counts, stmt.variable: stmt.count}
        turn, bound = self.body(stmt.body, inner)
        window = turn.repeated(stmt.variable, stmt.count, inner, whole=True)
        bounds, turns = [stmt.count * bound, window.bound(self.sram)], 2
        while turns < stmt.count:
            several = turn.repeated(stmt.variable, turns, inner, whole=False)
            bounds.append(stmt.count // turns * several.bound(self.sram))
            turns *= 2
        return window, max(bounds)

    def _call(self, call: ProgramCall, counts: Counts) -> Window:
        window = Window()
        for bound in self._bound(call, counts):
            (first, reach), *others = bound
            address = call.args[first]
            if all(call.args[n] == address for n, _ in others):
                t = self.arguments.touched(call.procedure, tuple(n for n, _ in bound))
                low, high = (Piece.of(address, end, end).low for end in (t.low, t.high))
                window.add(replace(reach, low=low, high=high), t, counts)
                continue
            # Which of their bytes are the same may differ from turn to turn.
            for _, p in bound:
                window.add(p, Touched(p.low, p.high, reads=True, read=0, writes=True, written=0), counts)
        return window

    def _bound(self, call: ProgramCall, counts: Counts) -> list[list[tuple[int, Piece]]]:
        """Arguments in HBM and where they are, those together that may be bound to the same bytes."""
        groups: list[list[tuple[int, Piece]]] = []
        for number, (low, high) in sorted(self.arguments.reaches(call.procedure).items()):
            if call.args[number].span(counts)[0] + low < self.sram:
                continue
            reach = Piece.of(call.args[number], low, high)
            near = [g for g in groups if not all(p.apart(reach, counts) for _, p in g)]
            groups = [g for g in groups if g not in near]
            groups.append([pair for g in near for pair in g] + [(number, reach)])
        return groups
