"""When the steady state of a pipeline comes back: all stages in turns of the same loops, all dies as far apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from wscc.backends.simulator.clusters import LoopNode

E = TypeVar("E", bound=Hashable)

# States that are remembered: a pipeline that has not come back by then is walked through.
_TRIED: Final = 256


@dataclass(slots=True)
class Frame:
    """A loop that a stage walks through, and its turn."""

    loop: LoopNode
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Leap(Generic[E]):
    """Whole periods that need not be walked through: how many, how long each is, what it does, turns of each loop."""

    periods: int
    ticks: int
    tally: Counter[E]
    turns: tuple[int, ...]


@dataclass(slots=True)
class Periods(Generic[E]):
    """The states seen in one set of loops: (turns, time, tally) of each."""

    loops: tuple[int, ...] = ()
    seen: dict[Hashable, tuple[tuple[int, ...], int, Counter[E]]] = field(default_factory=dict)

    def leap(
        self, stacks: Sequence[Sequence[Frame]], state: Hashable, time: int, tally: Counter[E]
    ) -> Leap[E] | None:
        """The leap to make from a state. None if it is new, if there is less than a period left, or if a stage is in no
        loop of equal turns, or in more than one."""
        if not all(len(stack) == 1 and stack[0].loop.uniform for stack in stacks):
            return None
        loops = tuple(id(stack[0].loop) for stack in stacks)
        if loops != self.loops:
            self.loops, self.seen = loops, {}
        turns = tuple(stack[0].turn for stack in stacks)
        if state not in self.seen:
            if len(self.seen) < _TRIED:
                self.seen[state] = turns, time, tally.copy()
            return None
        before, then, did = self.seen[state]
        steps = tuple(b - a for a, b in zip(before, turns, strict=True))
        if min(steps) < 1:
            return None
        left = (s[0].loop.count - 1 - s[0].turn for s in stacks)
        periods = min(n // step for n, step in zip(left, steps, strict=True))
        self.seen = {}
        return Leap(periods, time - then, tally - did, steps) if periods else None
