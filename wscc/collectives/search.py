"""Hill climbing for the fastest plan of a family: times fall and then rise with the size of pieces and messages."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from wscc.collectives.family import Family
from wscc.collectives.timing import LinkModel, Timed, simulate

# How much less time is worth another step.
_GAIN: Final = 0.998
# Within this factor of the time that is enough, no other seeds are tried.
_SETTLED: Final = 1.01
# One part in so many of all work goes into points off the climb.
_SMALL: Final = 8
# The best points of which other seeds are tried.
_SEEDED: Final = 3

# (row, index of a limit in it) of a family.
Point = tuple[int, int]


@dataclass
class HillClimb:
    """`run` returns the first plan that takes `enough` byte times or less, or the fastest until the plans tried have
    `most_work` hops of chunks; `work` is their number so far."""

    family: Family
    model: LinkModel
    enough: float
    most_work: int
    work: int = 0
    _seen: dict[Point, Timed] = field(default_factory=dict)

    def run(self) -> Timed:
        point = self._begin()
        while not self._is_done(point):
            better = (
                p
                for p in self._neighbours(point)
                if self._timed_at(p).end < _GAIN * self._timed_at(point).end
            )
            step = next(better, None)
            if step is None:
                break
            point = step
        self._try_the_rest()
        best = min(self._seen.values(), key=lambda t: t.end)
        points = sorted(self._seen, key=lambda p: self._seen[p].end)[:_SEEDED]
        for point, seed in itertools.product(points, range(1, self.family.seeds)):
            if best.end <= _SETTLED * self.enough or self.work > self.most_work:
                break
            best = min(best, self._timed(point, seed), key=lambda t: t.end)
        return best

    def _try_the_rest(self) -> None:
        """Try all points where plans are small: ties make times uneven there."""
        best = min(t.end for t in self._seen.values())
        for row, (_, limits) in enumerate(self.family.rows):
            for column in range(len(limits)):
                if best <= _SETTLED * self.enough or self.work > self.most_work // _SMALL:
                    return
                best = min(best, self._timed_at((row, column)).end)

    def _begin(self) -> Point:
        """The best of a few message sizes."""
        rows = self.family.rows
        row = max(i for i, (pieces, _) in enumerate(rows) if pieces <= self.family.start)
        last = len(rows[row][1]) - 1
        best = (row, last // 2)
        for column in (0, last, last // 4, 3 * last // 4):
            if self._is_done(best):
                break
            best = min(best, (row, column), key=lambda p: self._timed_at(p).end)
        return best

    def _is_done(self, point: Point) -> bool:
        return self._timed_at(point).end <= self.enough or self.work > self.most_work

    def _timed_at(self, point: Point) -> Timed:
        if point not in self._seen:
            self._seen[point] = self._timed(point, 0)
        return self._seen[point]

    def _timed(self, point: Point, seed: int) -> Timed:
        pieces, limits = self.family.rows[point[0]]
        plan = self.family.make(pieces, limits[point[1]], seed)
        self.work += sum(len(m.chunks) for m in plan.messages)
        return simulate(plan, self.model)

    def _neighbours(self, point: Point) -> Iterator[Point]:
        """Points to try next: the nearest, and those beyond, lest a step without effect ends the climb."""
        row, column = point
        rows = self.family.rows
        limits = rows[row][1]
        points = [(row, column + i) for i in (1, -1, 2, -2) if 0 <= column + i < len(limits)]
        for near in (row + 1, row - 1, row + 2):
            if 0 <= near < len(rows):
                widths = [abs(n - limits[column]) for n in rows[near][1]]
                points.append((near, widths.index(min(widths))))
        for point in points:
            if point in self._seen or self.work <= self.most_work:
                yield point
