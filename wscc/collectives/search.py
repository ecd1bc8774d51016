"""The fastest plan of a family, by hill climbing: times fall and then rise with the size of pieces and messages."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from wscc.collectives.family import Family
from wscc.collectives.timing import LinkModel, Timed, simulate

# How much less time is worth another step.
_GAIN: Final = 0.998
# So near to what is enough, other ties are not tried.
_SETTLED: Final = 1.01
# The part of all work that goes into places off the climb.
_SMALL: Final = 8
# Of how many of the best places they are.
_SEEDED: Final = 3

Place = tuple[int, int]


@dataclass
class Climb:
    """`run` gives the first plan that takes `enough` byte times or less, or the fastest met until the plans tried
    have `most_work` hops of chunks; `work` are those that they had."""

    family: Family
    model: LinkModel
    enough: float
    most_work: int
    work: int = 0
    _seen: dict[Place, Timed] = field(default_factory=dict)

    def run(self) -> Timed:
        at = self._begin()
        while not self._is_done(at):
            better = (p for p in self._beside(at) if self._at(p).end < _GAIN * self._at(at).end)
            found = next(better, None)
            if found is None:
                break
            at = found
        self._try_the_rest()
        best = min(self._seen.values(), key=lambda t: t.end)
        places = sorted(self._seen, key=lambda p: self._seen[p].end)[:_SEEDED]
        for place, seed in itertools.product(places, range(1, self.family.seeds)):
            if best.end <= _SETTLED * self.enough or self.work > self.most_work:
                break
            best = min(best, self._timed(place, seed), key=lambda t: t.end)
        return best

    def _try_the_rest(self) -> None:
        """Where plans are small, all places: ties make times uneven there."""
        best = min(t.end for t in self._seen.values())
        for row, (_, limits) in enumerate(self.family.rows):
            for column in range(len(limits)):
                if best <= _SETTLED * self.enough or self.work > self.most_work // _SMALL:
                    return
                best = min(best, self._at((row, column)).end)

    def _begin(self) -> Place:
        """The best of a few messages sizes."""
        rows = self.family.rows
        row = max(i for i, (pieces, _) in enumerate(rows) if pieces <= self.family.start)
        last = len(rows[row][1]) - 1
        best = (row, last // 2)
        for column in (0, last, last // 4, 3 * last // 4):
            if self._is_done(best):
                break
            best = min(best, (row, column), key=lambda p: self._at(p).end)
        return best

    def _is_done(self, place: Place) -> bool:
        return self._at(place).end <= self.enough or self.work > self.most_work

    def _at(self, place: Place) -> Timed:
        if place not in self._seen:
            self._seen[place] = self._timed(place, 0)
        return self._seen[place]

    def _timed(self, place: Place, seed: int) -> Timed:
        pieces, limits = self.family.rows[place[0]]
        plan = self.family.make(pieces, limits[place[1]], seed)
        self.work += sum(len(m.chunks) for m in plan.messages)
        return simulate(plan, self.model)

    def _beside(self, at: Place) -> Iterator[Place]:
        """Places to try from here: the next ones, and those beyond, lest a step without effect ends the climb."""
        row, column = at
        rows = self.family.rows
        limits = rows[row][1]
        places = [(row, column + i) for i in (1, -1, 2, -2) if 0 <= column + i < len(limits)]
        for near in (row + 1, row - 1, row + 2):
            if 0 <= near < len(rows):
                widths = [abs(n - limits[column]) for n in rows[near][1]]
                places.append((near, widths.index(min(widths))))
        for place in places:
            if place in self._seen or self.work <= self.most_work:
                yield place
