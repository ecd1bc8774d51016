"""Loop rerolling: in a list of work, runs that repeat with growing micro-batches become loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

# Limits on the search: steps of micro-batches, lengths of a period, and runs in one list.
_STEPS: Final = 3
_LENGTHS: Final = 32
_RUNS: Final = 32


@dataclass(frozen=True, slots=True)
class Item:
    """The work `key` on some micro-batches."""

    key: Hashable
    microbatches: tuple[int, ...]

    def moved(self, by: int) -> Item:
        return Item(self.key, tuple(m + by for m in self.microbatches))


@dataclass(frozen=True, slots=True)
class Repeated:
    """A loop that runs the items `count` times, with micro-batches that grow by `step` each time."""

    items: tuple[Item, ...]
    count: int
    step: int


def short_count(microbatches: int, stages: int, period: int) -> int:
    """A number of micro-batches for which 1F1B reaches its steady state.

    It is at most `microbatches`, and equal to it modulo `period`.
    """
    enough = 8 * stages + 4 * period
    return min(microbatches, enough + (microbatches - enough) % period)


def compressed(items: list[Item], period: int, extra: int) -> list[Item | Repeated]:
    """The list with the run that repeats with `period` and covers most items as a loop, lengthened by `extra`.

    `extra` is a number of micro-batches and a multiple of `period`. Nothing may be lengthened where nothing repeats.
    """
    run = _longest_run(items, period)
    if run is None:
        assert extra == 0, "no steady state to lengthen"
        return list(items)
    start, length, count = run
    loop = Repeated(tuple(items[start : start + length]), count + extra // period, period)
    return [*items[:start], loop, *(i.moved(extra) for i in items[start + length * count :])]


def compressed_throughout(items: list[Item]) -> list[Item | Repeated]:
    """The list with every run that repeats as a loop, the one that covers most items first, with any period."""
    rolled: list[Item | Repeated] = []
    pending: list[list[Item] | Repeated] = [items]
    runs = 0
    while pending:
        part = pending.pop()
        if isinstance(part, Repeated):
            rolled.append(part)
            continue
        run = _best_run(part) if runs < _RUNS else None
        if run is None:
            rolled += part
            continue
        runs += 1
        period, (start, length, count) = run
        loop = Repeated(tuple(part[start : start + length]), count, period)
        pending += [part[start + length * count :], loop, part[:start]]
    return rolled


def _best_run(items: list[Item]) -> tuple[int, tuple[int, int, int]] | None:
    """The step of the micro-batches and (start, length, count) of the run that covers most items."""
    return max(
        ((period, run) for period in _steps(items) if (run := _longest_run(items, period))),
        key=lambda candidate: (candidate[1][1] * candidate[1][2], -candidate[0]),
        default=None,
    )


def _steps(items: list[Item]) -> list[int]:
    """The commonest distances in micro-batches between an item and the next one with its key."""
    last: dict[Hashable, int] = {}
    distances: Counter[int] = Counter()
    for item in items:
        if item.microbatches:
            m = item.microbatches[0]
            distances[m - last.get(item.key, m)] += 1
            last[item.key] = m
    return [step for step, _ in distances.most_common(_STEPS) if step]


def _longest_run(items: list[Item], period: int) -> tuple[int, int, int] | None:
    """(start, length, count >= 2) of the run that covers most items."""
    positions = {item: i for i, item in enumerate(items)}
    longest: tuple[int, int, int] | None = None
    lengths = Counter(
        positions[m] - i for i, item in enumerate(items) if (m := item.moved(period)) in positions
    )
    for length in sorted(n for n, _ in lengths.most_common(_LENGTHS) if n > 0):
        matches = 0
        for i in range(len(items) - length):
            matches = matches + 1 if items[i + length] == items[i].moved(period) else 0
            count = matches // length + 1
            if matches >= length and (longest is None or count * length > longest[1] * longest[2]):
                longest = (i + 1 - matches, length, count)
    return longest
