"""Objects by the operands that wrote them, in the order in which they were born, and which of them an operand reads."""

from __future__ import annotations

from typing import Final

from wscc.backends.verify.places import Places

NEVER: Final = -1


class Objects:
    """`born` is the time at which each operand was last written, in accesses; `NEVER` for what the caller wrote."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.born = [NEVER] * len(places.low)

    def hold(self, v: int, near: int, bad: int) -> bool:
        """True if objects hold all bytes of v and are newer than those that v may not read, where `near` are the others
        that touch v, and `bad` those that it may not read or that have been overwritten in part."""
        if bad:
            near = self.later(near & ~bad, self._newest(bad))
        return bool(near) and (bool(near & self.places.inside(v)) or self.places.covers(near, v))

    def _newest(self, among: int) -> int:
        """The time of the last write."""
        newest = NEVER
        while among:
            u = among.bit_length() - 1
            among ^= 1 << u
            newest = max(newest, self.born[u])
        return newest

    def later(self, among: int, since: int) -> int:
        """Those that were written after a time."""
        later = among
        while among:
            u = among.bit_length() - 1
            bit = 1 << u
            among ^= bit
            if self.born[u] <= since:
                later ^= bit
        return later
