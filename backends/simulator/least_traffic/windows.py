"""Runs of successive calls: what they need from before, and what they leave behind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from wscc.backends.simulator.least_traffic.arguments import Touched
from wscc.backends.simulator.least_traffic.pieces import Counts, Piece

_INNER: Final = ".turn"


@dataclass(slots=True)
class Window:
    """Calls that follow one another. `needs` are distinct bytes that they read before any of them has written there,
    `leaves` distinct bytes that they write and do not read any more; both are at least so many. `reads` and `writes`
    are all places that they may read and write."""

    needs: list[Piece] = field(default_factory=list)
    leaves: list[Piece] = field(default_factory=list)
    reads: list[Piece] = field(default_factory=list)
    writes: list[Piece] = field(default_factory=list)

    def bound(self, sram: int) -> int:
        """The fewest bytes that come from HBM and go there meanwhile."""
        return sum(max(0, sum(p.amount for p in parts) - sram) for parts in (self.needs, self.leaves))

    def add(self, reach: Piece, t: Touched, counts: Counts) -> None:
        """Add what a call touches of an argument, within `reach`, to the window of that call alone."""
        for is_touched, least, parts, places in (
            (t.reads, t.read, self.needs, self.reads),
            (t.writes, t.written, self.leaves, self.writes),
        ):
            if is_touched:
                places.append(reach)
                _join(parts, replace(reach, amount=least), counts)

    def append(self, other: Window, counts: Counts) -> None:
        """Let the calls of another window follow."""
        for p in other.needs:
            if _all_apart(p, self.writes, counts):
                _join(self.needs, p, counts)
        self.leaves = [p for p in self.leaves if _all_apart(p, other.reads, counts)]
        for p in other.leaves:
            _join(self.leaves, p, counts)
        _extend(self.reads, other.reads)
        _extend(self.writes, other.writes)

    def repeated(self, variable: str, turns: int, counts: Counts, *, whole: bool) -> Window:
        """So many turns of a loop of which this is one: its `whole`, or else those from any multiple of `turns` on."""
        if not whole:
            grouped = Window(
                *([p.by_groups(variable, turns, _INNER) for p in parts] for parts in self._parts())
            )
            # Any number of groups, as far as addresses that are compared need to know.
            inner = {**counts, variable: max(1, counts[variable] // turns), _INNER: turns}
            return grouped.repeated(_INNER, turns, inner, whole=True)
        reads, writes = ([p.swept(variable, turns) for p in parts] for parts in (self.reads, self.writes))
        many = Window(reads=reads, writes=writes)
        for parts, others, found, turn in (
            (self.needs, self.writes, many.needs, 0),
            (self.leaves, self.reads, many.leaves, turns - 1),
        ):
            swept = [o.swept(variable, turns) for o in others]
            for p in parts:
                all_ = p.swept(variable, turns)
                others_near = (o for o, s in zip(others, swept, strict=True) if not all_.apart(s, counts))
                # What other turns write is not needed from before, what they read is not left.
                alone = all(p.at_same(o) for o in others_near)
                _join(found, all_ if alone else p.at(variable, turn), counts)
        return many

    def _parts(self) -> tuple[list[Piece], ...]:
        return self.needs, self.leaves, self.reads, self.writes


def _all_apart(p: Piece, others: Iterable[Piece], counts: Counts) -> bool:
    return all(p.apart(o, counts) for o in others)


def _join(pieces: list[Piece], new: Piece, counts: Counts) -> None:
    """Add a piece to pieces that are apart; of those that are not, the most bytes stay."""
    near = [p for p in pieces if not p.apart(new, counts)]
    if sum(p.amount for p in near) < new.amount:
        for p in near:
            pieces.remove(p)
        pieces.append(new)


def _extend(pieces: list[Piece], new: Iterable[Piece]) -> None:
    known = set(pieces)
    pieces += [p for p in dict.fromkeys(new) if p not in known]
