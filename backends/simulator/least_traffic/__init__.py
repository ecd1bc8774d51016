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

from collections.abc import Iterator
from dataclasses import dataclass, replace

from wscc.backends.simulator.calls import Builder
from wscc.backends.simulator.least_traffic.arguments import Arguments, OfDie, Touched
from wscc.backends.simulator.least_traffic.pieces import Counts, Piece
from wscc.backends.simulator.least_traffic.windows import Window
from wscc.ir.streams.program import ProgramCall, ProgramLoop, ProgramStep

# Windows of more statements than this are only looked at where they are all of a body.
_LONGEST = 24


def least_hbm_bytes(builder: Builder, die: int) -> int:
    """The fewest bytes that a logical die moves from and to HBM in the calls of a step."""
    step = builder.streams.steps[builder.stages[die]]
    return least_bytes(step, OfDie(builder, die), builder.costs.wafer.die.sram)


def least_bytes(step: ProgramStep, arguments: Arguments, sram: int) -> int:
    """The same for a step of procedures with these arguments; addresses from `sram` on are in HBM."""
    return _Least(arguments, sram).body(step, {})


@dataclass(frozen=True, slots=True)
class _Least:
    arguments: Arguments
    sram: int

    def body(self, step: ProgramStep, counts: Counts) -> int:
        """The bound of a body: the largest sum of bounds of windows that follow one another."""
        windows = [self.window(s, counts) for s in step]
        alone = [self._alone(s, w, counts) for s, w in zip(step, windows, strict=True)]
        best = [0] * (len(step) + 1)
        for first in range(len(step)):
            best[first + 1] = max(best[first + 1], best[first] + alone[first])
            for end, bytes_ in self._growing(windows, first, counts):
                best[end] = max(best[end], best[first] + bytes_)
        return best[-1]

    def _growing(self, windows: list[Window], first: int, counts: Counts) -> Iterator[tuple[int, int]]:
        """(end, bound) of the windows of more than one statement that begin with a certain one."""
        whole = first == 0
        last = len(windows) if whole else min(len(windows), first + _LONGEST)
        grown = Window()
        for end in range(first, last):
            grown.append(windows[end], counts)
            if end > first:
                yield end + 1, grown.bound(self.sram)

    def _alone(self, stmt: ProgramCall | ProgramLoop, window: Window, counts: Counts) -> int:
        """The bound of a statement: of a loop by turns, or by windows of several turns each."""
        if isinstance(stmt, ProgramCall):
            return window.bound(self.sram)
        if not stmt.count:
            return 0
        inner = {**counts, stmt.variable: stmt.count}
        bounds = [stmt.count * self.body(stmt.body, inner), window.bound(self.sram)]
        turn, turns = self._turn(stmt, inner), 2
        while turns < stmt.count:
            several = turn.repeated(stmt.variable, turns, inner, whole=False)
            bounds.append(stmt.count // turns * several.bound(self.sram))
            turns *= 2
        return max(bounds)

    def window(self, stmt: ProgramCall | ProgramLoop, counts: Counts) -> Window:
        """All of a statement as one window."""
        if isinstance(stmt, ProgramCall):
            return self._call(stmt, counts)
        if not stmt.count:
            return Window()
        inner = {**counts, stmt.variable: stmt.count}
        return self._turn(stmt, inner).repeated(stmt.variable, stmt.count, inner, whole=True)

    def _turn(self, loop: ProgramLoop, counts: Counts) -> Window:
        turn = Window()
        for stmt in loop.body:
            turn.append(self.window(stmt, counts), counts)
        return turn

    def _call(self, call: ProgramCall, counts: Counts) -> Window:
        window = Window()
        for bound in self._bound(call, counts):
            (_, reach), *others = bound
            if all(p.moves_as(reach) for _, p in others):
                binding = tuple((n, Piece.of(call.args[n], 0, 0).low) for n, _ in bound)
                t = self.arguments.touched(call.procedure, binding)
                window.add(replace(reach, low=t.low, high=t.high), t, counts)
                continue
            # Which of their bytes are the same differs from turn to turn.
            for _, p in bound:
                window.add(p, Touched(p.low, p.high, reads=True, read=0, writes=True, written=0), counts)
        return window

    def _bound(self, call: ProgramCall, counts: Counts) -> list[list[tuple[int, Piece]]]:
        """Arguments in HBM and where they are, those together that may be bound to the same bytes."""
        groups: list[list[tuple[int, Piece]]] = []
        for number, (low, high) in sorted(self.arguments.reaches(call.procedure).items()):
            reach = Piece.of(call.args[number], low, high)
            if reach.lowest(counts) < self.sram:
                continue
            near = [g for g in groups if not all(p.apart(reach, counts) for _, p in g)]
            groups = [g for g in groups if g not in near]
            groups.append([pair for g in near for pair in g] + [(number, reach)])
        return groups
