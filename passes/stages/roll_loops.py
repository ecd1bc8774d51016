"""A long periodic list of work as a short one: what repeats with growing micro-batches becomes a loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Final

# Of an order without a pattern, how many distances are looked at, and how many runs are sought.
_STEPS: Final = 3
_LENGTHS: Final = 32
_RUNS: Final = 32


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
    state of 1F1B to show itself."""
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


def compressed_throughout(items: list[Item]) -> list[Item | Repeated]:
    """As `compressed`, and likewise what lies before and behind the longest run; micro-batches may grow by any step."""
    out: list[Item | Repeated] = []
    todo: list[list[Item] | Repeated] = [items]
    runs = 0
    while todo:
        part = todo.pop()
        if isinstance(part, Repeated):
            out.append(part)
            continue
        found = _best_run(part) if runs < _RUNS else None
        if found is None:
            out += part
            continue
        runs += 1
        period, (start, length, count) = found
        loop = Repeated(tuple(part[start : start + length]), count, period)
        todo += [part[start + length * count :], loop, part[:start]]
    return out


def _best_run(items: list[Item]) -> tuple[int, tuple[int, int, int]] | None:
    """The step of the micro-batches and (start, length, count) of the run that covers most items."""
    return max(
        ((period, run) for period in _steps(items) if (run := _longest_run(items, period))),
        key=lambda found: (found[1][1] * found[1][2], -found[0]),
        default=None,
    )


def _steps(items: list[Item]) -> list[int]:
    """The commonest distances of micro-batches between one piece of work and the next of its kind."""
    last: dict[Hashable, int] = {}
    found: Counter[int] = Counter()
    for item in items:
        if item.microbatches:
            m = item.microbatches[0]
            found[m - last.get(item.key, m)] += 1
            last[item.key] = m
    return [step for step, _ in found.most_common(_STEPS) if step]


def _longest_run(items: list[Item], period: int) -> tuple[int, int, int] | None:
    """(start, length, count >= 2) of the run that covers most items."""
    where = {item: i for i, item in enumerate(items)}
    best: tuple[int, int, int] | None = None
    lengths = Counter(where[m] - i for i, item in enumerate(items) if (m := item.moved(period)) in where)
    for length in sorted(n for n, _ in lengths.most_common(_LENGTHS) if n > 0):
        run = 0
        for i in range(len(items) - length):
            run = run + 1 if items[i + length] == items[i].moved(period) else 0
            count = run // length + 1
            if run >= length and (best is None or count * length > best[1] * best[2]):
                best = (i + 1 - run, length, count)
    return best
