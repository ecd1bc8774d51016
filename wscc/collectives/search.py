"""The fastest plan of a family, by hill climbing: times fall and then rise with the size of pieces and messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from wscc.collectives.family import Family
from wscc.collectives.timing import LinkModel, Timed, simulate

Place = tuple[int, int]


def fastest(family: Family, model: LinkModel, enough: float) -> Timed:
    """The first that takes `enough` byte times or less, or the fastest met."""
    return _Climb(family, model, enough).run()


@dataclass
class _Climb:
    family: Family
    model: LinkModel
    enough: float
    seen: dict[Place, Timed] = field(default_factory=dict)

    def run(self) -> Timed:
        row = self.family.rows[0][1]
        at = (0, len(row) // 2)
        while self._at(at).end > self.enough:
            better = next((p for p in self._beside(at) if self._at(p).end < self._at(at).end), None)
            if better is None:
                return self._seeded(at)
            at = better
        return self._at(at)

    def _at(self, place: Place) -> Timed:
        if place not in self.seen:
            self.seen[place] = self._timed(place, 0)
        return self.seen[place]

    def _timed(self, place: Place, seed: int) -> Timed:
        pieces, limits = self.family.rows[place[0]]
        return simulate(self.family.make(pieces, limits[place[1]], seed), self.model)

    def _beside(self, at: Place) -> Iterator[Place]:
        """Places to try from here: the next ones, and those beyond, lest a step without effect ends the climb."""
        row, column = at
        rows = self.family.rows
        limits = rows[row][1]
        yield from ((row, column + i) for i in (1, -1, 2, -2) if 0 <= column + i < len(limits))
        for near in (row + 1, row - 1, row + 2):
            if 0 <= near < len(rows):
                yield (
                    near,
                    min(range(len(rows[near][1])), key=lambda i: abs(rows[near][1][i] - limits[column])),
                )

    def _seeded(self, at: Place) -> Timed:
        best = self._at(at)
        for seed in range(1, self.family.seeds):
            if best.end <= self.enough:
                break
            best = min(best, self._timed(at, seed), key=lambda t: t.end)
        return best
