"""Turns of a loop, and when its state has come back, so that all further turns repeat those in between.

Times of dies and links are sums and maxima of earlier ones, as long as messages are served in the same order, and such
a map brings no two states further apart (Crandall and Tartar 1980; Baccelli et al., Synchronization and Linearity,
1992, lemma 3.8). So a state that has come back but for d ticks errs by at most d in each period that is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from wscc.backends.simulator.records import Hold, Link

# A state is back where it differs by no more than this part of the time since.
WITHIN = 256


class Entered(NamedTuple):
    """How some dies that depend on one another enter a turn: the time of the first, and counted from it those of all
    and of the links that they hold, until these are free."""

    first: int
    after: tuple[int, ...]
    free: dict[Link, int]

    @staticmethod
    def of(times: Sequence[int], held: Iterable[Hold]) -> Entered:
        """From the times of the dies and, counted from the first of these, what their messages hold."""
        first = min(times)
        free: dict[Link, int] = {}
        for hold in held:
            free[hold.link] = max(free.get(hold.link, 0), hold.end)
        return Entered(first, tuple(t - first for t in times), free)

    def away(self, other: Entered) -> int:
        """The ticks by which a die or link differs at most."""
        dies = max(abs(a - b) for a, b in zip(self.after, other.after, strict=True))
        if self.free == other.free:
            return dies
        links = self.free.keys() | other.free.keys()
        return max(dies, *(abs(self.free.get(k, 0) - other.free.get(k, 0)) for k in links))


@dataclass(slots=True)
class Turns:
    """The turns of a loop so far, by the states of its classes of dies; with `within` 0 only equal states are back."""

    within: int = WITHIN
    states: list[tuple[Entered, ...]] = field(default_factory=list)

    def back(self, state: tuple[Entered, ...], left: int) -> int | None:
        """The earlier turn whose state is nearest, if it is back and as many turns as since are `left`."""
        found = [
            (away, -turn)
            for turn in range(max(0, len(self.states) - left), len(self.states))
            if (away := self._away(self.states[turn], state)) is not None
        ]
        return -min(found)[1] if found else None

    def _away(self, before: tuple[Entered, ...], state: tuple[Entered, ...]) -> float | None:
        """The largest difference as a part of the time since, None if it is too large."""
        most = 0.0
        for a, b in zip(before, state, strict=True):
            if away := a.away(b):
                if away * self.within > b.first - a.first or not self.within:
                    return None
                most = max(most, away / (b.first - a.first))
        return most

    def lengths(self, turn: int, state: tuple[Entered, ...]) -> list[int]:
        """Of each class the ticks since a turn: those of its slowest die, so that no die has less than it works."""
        return [
            b.first - a.first + max(y - x for x, y in zip(a.after, b.after, strict=True))
            for a, b in zip(self.states[turn], state, strict=True)
        ]
