"""The state of an arena between calls: disjoint ranges of bytes with the object that was written to each."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

UNWRITTEN: Final = -1


@dataclass(frozen=True, slots=True)
class Object:
    """Bytes written by one call or by the host; `kind` is the number of the element type. `tensor` and `element` name
    the array element if the host wrote it."""

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
        """(start, end, object or UNWRITTEN) of consecutive ranges that cover [low, high)."""
        position = low
        for i in range(bisect_right(self.ends, low), bisect_left(self.starts, high)):
            if self.starts[i] > position:
                yield position, self.starts[i], UNWRITTEN
            position = min(self.ends[i], high)
            yield max(self.starts[i], low), position, self.held[i]
        if position < high:
            yield position, high, UNWRITTEN

    def write(self, low: int, high: int, number: int) -> None:
        """Put object `number` in the range; other objects that it covers in part end, unless they contain it."""
        new = self.objects[number]
        for _, _, old in list(self.pieces(low, high)):
            if old not in (UNWRITTEN, number):
                o = self.objects[old]
                if not (o.low <= new.low and new.high <= o.high):
                    self._end(old)
        self._replace(low, high, [number])

    def destroy(self, low: int, high: int) -> None:
        """End all objects in the range, which then holds nothing that may be read."""
        for _, _, old in list(self.pieces(low, high)):
            if old != UNWRITTEN:
                self._end(old)

    def add(self, o: Object) -> int:
        """The number of a new object."""
        self.objects.append(o)
        return len(self.objects) - 1

    def _end(self, number: int) -> None:
        o = self.objects[number]
        for start, end, held in list(self.pieces(o.low, o.high)):
            if held == number:
                self._replace(start, end, [])

    def _replace(self, low: int, high: int, held: list[int]) -> None:
        """Replace the contents of [low, high) by one object, or by none."""
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
