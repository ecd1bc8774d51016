"""How many micro-batches are in flight in each chunk: the slots that its values need."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wscc.passes.stages.cut import Message
from wscc.passes.stages.order_1f1b import Task, Timed

# A task runs at twice its slot (from the first of its parts to the last), and what it made crosses to other stages
# right after.
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Slots:
    """Of one chunk: for values that it is handed and hands on (live from their arrival to the backward task), for
    values that it saves (from the forward task on), and for gradients (from arrival to what the backward task
    sends on): enough that micro-batches of one slot are never live together."""

    carried: int
    residuals: int
    gradients: int


def in_flight(events: list[Timed], messages: list[Message], chunks: int) -> list[Slots]:
    """The slots that each chunk needs."""
    begin: dict[Task, int] = {}
    end: dict[Task, int] = {}
    for e in events:
        begin.setdefault(e.task.whole, 2 * e.slot)
        end[e.task.whole] = 2 * e.slot
    count = 1 + max((t.microbatch for t in end), default=0)
    found = []
    for c in range(chunks):
        sources = {m.source for m in messages if m.target == c}
        readers = {m.target for m in messages if m.source == c}
        carried: list[Span] = []
        residuals: list[Span] = []
        gradients: list[Span] = []
        for m in range(count):
            made, first, back = begin[Task(False, c, m)], begin[Task(True, c, m)], end[Task(True, c, m)]
            residuals.append((made, back))
            carried.append((min([made, *(end[Task(False, s, m)] + 1 for s in sources)]), back))
            gradients.append((min([first, *(end[Task(True, r, m)] + 1 for r in readers)]), back + 1))
        found.append(Slots(*map(_needed, (carried, residuals, gradients))))
    return found


def _needed(spans: list[Span]) -> int:
    """The least K of which i and i + K (and i + K + 1, ..) are never live together."""
    first, last = np.array(spans, np.int64).reshape(-1, 2).T
    widest = 0
    for i in range(len(spans)):
        later = slice(i + widest + 1, None)
        together = np.flatnonzero((first[later] <= last[i]) & (first[i] <= last[later]))
        if together.size:
            widest += 1 + int(together[-1])
    return widest + 1
