"""A long periodic list of work as a short one: what repeats with growing micro-batches becomes a loop."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Item:
    """Some work on some micro-batches."""

    key: Hashable
    microbatches: tuple[int, ...]

    def moved(self, by: int) -> Item:
        return replace(self, microbatches=tuple(m + by for m in self.microbatches))


@dataclass(frozen=True, slots=True)
class Repeated:
    """`count` times the items, their micro-batches growing by `step` each time."""

    items: tuple[Item, ...]
    count: int
    step: int


def short_count(microbatches: int, stages: int, period: int) -> int:
    """A number of micro-batches, no more than given and the same modulo `period`, that is enough for the steady
    state of a schedule to show itself."""
    enough = 8 * stages + 4 * period
    return min(microbatches, enough + (microbatches - enough) % period)


def compressed(items: list[Item], period: int, extra: int) -> list[Item | Repeated]:
    """The list with its longest run that repeats with `period` as a loop, lengthened by `extra` micro-batches (a
    multiple of the period). Raises if nothing repeats and there is something to lengthen."""
    found = _longest_run(items, period)
    if found is None:
        assert extra == 0, "no steady state to lengthen"
        return list(items)
    start, length, count = found
    loop = Repeated(tuple(items[start : start + length]), count + extra // period, period)
    return [*items[:start], loop, *(i.moved(extra) for i in items[start + length * count :])]


def _longest_run(items: list[Item], period: int) -> tuple[int, int, int] | None:
    """(start, length, count >= 2) of the run that covers most items."""
    where = {item: i for i, item in enumerate(items)}
    best: tuple[int, int, int] | None = None
    lengths = {where[m] - i for i, item in enumerate(items) if (m := item.moved(period)) in where}
    for length in sorted(n for n in lengths if n > 0):
        run = 0
        for i in range(len(items) - length):
            run = run + 1 if items[i + length] == items[i].moved(period) else 0
            count = run // length + 1
            if run >= length and (best is None or count * length > best[1] * best[2]):
                best = (i + 1 - run, length, count)
    return best
