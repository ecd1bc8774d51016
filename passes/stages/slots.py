"""The slots of each chunk: the number of micro-batches whose values must have memory at the same time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wscc.passes.stages.cut import Message
from wscc.passes.stages.order_1f1b import Task, Timed

# Live range (first, last). A task runs at twice its slot, from the first of its parts to the last, and its result
# crosses to other stages at the odd time after it.
LiveRange = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Slots:
    """Numbers of slots of one chunk, so that the live ranges of micro-batches in one slot never overlap.

    `carried`: of values that it receives and passes on, live from arrival to the backward task. `residuals`: live from
    the forward to the backward task. `gradients`: live from arrival until the backward task has sent its own.
    """

    carried: int
    residuals: int
    gradients: int


def slots_in_flight(events: list[Timed], messages: list[Message], chunks: int) -> list[Slots]:
    """The slots of each of `chunks` chunks, from the times of all tasks."""
    begin: dict[Task, int] = {}
    end: dict[Task, int] = {}
    for event in events:
        begin.setdefault(event.task.whole, 2 * event.slot)
        end[event.task.whole] = 2 * event.slot
    microbatches = 1 + max((t.microbatch for t in end), default=0)
    slots = []
    for c in range(chunks):
        sources = {m.source for m in messages if m.target == c}
        readers = {m.target for m in messages if m.source == c}
        carried: list[LiveRange] = []
        residuals: list[LiveRange] = []
        gradients: list[LiveRange] = []
        for m in range(microbatches):
            forward = begin[Task(False, c, m)]
            backward_begin, backward_end = begin[Task(True, c, m)], end[Task(True, c, m)]
            residuals.append((forward, backward_end))
            carried.append((min([forward, *(end[Task(False, s, m)] + 1 for s in sources)]), backward_end))
            gradients.append(
                (min([backward_begin, *(end[Task(True, r, m)] + 1 for r in readers)]), backward_end + 1)
            )
        slots.append(Slots(*map(_needed, (carried, residuals, gradients))))
    return slots


def _needed(ranges: list[LiveRange]) -> int:
    """The least K for which live ranges i and i + K (and i + K + 1, ..) never overlap."""
    first, last = np.array(ranges, np.int64).reshape(-1, 2).T
    widest = 0
    for i in range(len(ranges)):
        later = slice(i + widest + 1, None)
        overlapping = np.flatnonzero((first[later] <= last[i]) & (first[i] <= last[later]))
        if overlapping.size:
            widest += 1 + int(overlapping[-1])
    return widest + 1
