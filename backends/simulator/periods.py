"""Periods of a pipeline in its steady state: turns after which all stages are in the same relative state again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from wscc.backends.simulator.step_nodes import LoopNode

E = TypeVar("E", bound=Hashable)

# States that are stored: a pipeline that has not come back to one of them is simulated turn by turn.
_MOST_STATES: Final = 256


@dataclass(slots=True)
class Frame:
    """A loop that a stage is in, and its turn."""

    loop: LoopNode
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Leap(Generic[E]):
    """Whole periods that need not be simulated: their number; and of one, its ticks, its tally, and the turns of each
    stage's loop."""

    periods: int
    ticks: int
    tally: Counter[E]
    turns: tuple[int, ...]


@dataclass(slots=True)
class Periods(Generic[E]):
    """The states of one set of loops: (turns, time, tally) of each."""

    loops: tuple[int, ...] = ()
    states: dict[Hashable, tuple[tuple[int, ...], int, Counter[E]]] = field(default_factory=dict)

    def leap(
        self, stacks: Sequence[Sequence[Frame]], state: Hashable, time: int, tally: Counter[E]
    ) -> Leap[E] | None:
        """The leap from a state. None if the state is new, if less than a period is left, or if a stage is in no loop
        of equal turns, or in more than one."""
        if not all(len(stack) == 1 and stack[0].loop.uniform for stack in stacks):
            return None
        loops = tuple(id(stack[0].loop) for stack in stacks)
        if loops != self.loops:
            self.loops, self.states = loops, {}
        turns = tuple(stack[0].turn for stack in stacks)
        if state not in self.states:
            if len(self.states) < _MOST_STATES:
                self.states[state] = turns, time, tally.copy()
            return None
        turns_before, time_before, tally_before = self.states[state]
        steps = tuple(b - a for a, b in zip(turns_before, turns, strict=True))
        if min(steps) < 1:
            return None
        turns_left = (s[0].loop.count - 1 - s[0].turn for s in stacks)
        periods = min(n // step for n, step in zip(turns_left, steps, strict=True))
        self.states = {}
        return Leap(periods, time - time_before, tally - tally_before, steps) if periods else None
