"""What the bytes of an arena hold between calls, as disjoint ranges with the object that was written there."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

UNWRITTEN: Final = -1


@dataclass(frozen=True, slots=True)
class Object:
    """Bytes written by one call or by the host; `kind` is its element type's number. `tensor` and `element` if the
    host made it."""

    low: int
    high: int
    kind: int
    tensor: str = ""
    element: int = 0


@dataclass(slots=True)
class Ledger:
    """Ranges in ascending order. Invariant: `starts[i] < ends[i] <= starts[i + 1]`."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    objects: list[Object] = field(default_factory=list)

    def pieces(self, low: int, high: int) -> Iterator[tuple[int, int, int]]:
        """(start, end, object or UNWRITTEN) of everything from `low` to `high`."""
        at = low
        for i in range(bisect_right(self.ends, low), bisect_left(self.starts, high)):
            if self.starts[i] > at:
                yield at, self.starts[i], UNWRITTEN
            at = min(self.ends[i], high)
            yield max(self.starts[i], low), at, self.held[i]
        if at < high:
            yield at, high, UNWRITTEN

    def write(self, low: int, high: int, number: int) -> None:
        """The range holds the object now; other objects that it covers in part, and that do not contain the new
        one, are at their end."""
        new = self.objects[number]
        for _, _, old in list(self.pieces(low, high)):
            if old not in (UNWRITTEN, number):
                o = self.objects[old]
                if not (o.low <= new.low and new.high <= o.high):
                    self._end(old)
        self._replace(low, high, [number])

    def destroy(self, low: int, high: int) -> None:
        """The range holds nothing that may be read, nor does the rest of what it was a part of."""
        for _, _, old in list(self.pieces(low, high)):
            if old != UNWRITTEN:
                self._end(old)

    def add(self, o: Object) -> int:
        self.objects.append(o)
        return len(self.objects) - 1

    def _end(self, number: int) -> None:
        o = self.objects[number]
        for start, end, held in list(self.pieces(o.low, o.high)):
            if held == number:
                self._replace(start, end, [])

    def _replace(self, low: int, high: int, held: list[int]) -> None:
        """Cut [low, high) out, and put it in again with what it holds now, if anything."""
        first, last = bisect_right(self.ends, low), bisect_left(self.starts, high)
        starts, ends, numbers = [low] * len(held), [high] * len(held), held
        if first < last:
            if self.starts[first] < low:
                starts, ends = [self.starts[first], *starts], [low, *ends]
                numbers = [self.held[first], *numbers]
            if self.ends[last - 1] > high:
                starts, ends = [*starts, high], [*ends, self.ends[last - 1]]
                numbers = [*numbers, self.held[last - 1]]
        self.starts[first:last], self.ends[first:last], self.held[first:last] = starts, ends, numbers
