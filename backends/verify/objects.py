"""Objects by the operands that wrote them, in the order in which they were born, and which of them an operand reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wscc.backends.verify.places import Places, bits

NEVER: Final = -1


class Objects:
    """`born` is the time at which each operand was last written, in births; `NEVER` for what the caller wrote. Operand
    v may read objects of the set `good[v]`. Whether a set covers an operand is asked once (`covered`)."""

    def __init__(self, places: Places, good: Sequence[int]) -> None:
        self.places, self.good = places, good
        self.born = [NEVER] * len(places.low)
        self.births = 0
        self.covered: dict[tuple[int, int], bool] = {}

    def bear(self, v: int) -> None:
        self.born[v] = self.births
        self.births += 1

    def cover(self, cover: int, v: int) -> bool:
        """True if every byte of v is in one of a set."""
        if (cover, v) not in self.covered:
            self.covered[cover, v] = self.places.covers(cover, v)
        return self.covered[cover, v]

    def that_hold(self, v: int, near: int, torn: int) -> int:
        """Objects that hold all bytes of v, and are newer than what v may not read; 0 if there are none. Of those that
        touch v, `near` are live and `torn` have been overwritten in part."""
        born = self.born
        if bad := near & ~self.good[v] | torn:
            near = self._later(near & ~bad, born[self._newest(bad)])
        if around := near & self.places.inside(v):
            newest = self._newest(around)
            later = self._later(near & ~around, born[newest])
            # An object around v may be older than all that v reads, and of memory that was reused.
            return later if later and self.cover(later, v) else 1 << newest
        return near if near and self.cover(near, v) else 0

    def with_parts(self, holders: int, among: int) -> int:
        """The objects, and those `among` a set that have been written into them since."""
        parts = holders
        for h in bits(holders & ~self.places.given):
            parts |= self._later(self.places.touching(h, among) & ~parts, self.born[h])
        return parts

    # Most time of a verification is spent in these two: no generator, and the highest number first, as in `bits`.
    def _newest(self, among: int) -> int:
        """The one that was written last; the lowest number of those that the caller wrote."""
        born, newest, at = self.born, -1, NEVER
        while among:
            u = among.bit_length() - 1
            among ^= 1 << u
            if born[u] >= at:
                newest, at = u, born[u]
        return newest

    def _later(self, among: int, since: int) -> int:
        """Those that were written after a time."""
        born, later = self.born, among
        while among:
            u = among.bit_length() - 1
            bit = 1 << u
            among ^= bit
            if born[u] <= since:
                later ^= bit
        return later
