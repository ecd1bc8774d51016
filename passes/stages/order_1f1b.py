"""The order of forward and backward work on pipeline stages: 1F1B, plain and interleaved.

Source: Narayanan et al., arXiv 2104.04473, sections 2.2.1 (PipeDream-Flush, "1F1B") and 2.2.2 (interleaved).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

# By chunk, the chunks whose results it reads.
Sources = dict[int, frozenset[int]]


@dataclass(frozen=True, slots=True)
class Task:
    """Forward (or `backward`) work of one chunk of layers on one micro-batch.

    A task that runs in several parts has one `Task` for each `part`, of which the `last` completes it.
    """

    backward: bool
    chunk: int
    microbatch: int
    part: int = 0
    last: bool = True

    @property
    def whole(self) -> Task:
        return Task(self.backward, self.chunk, self.microbatch)


@dataclass(frozen=True, slots=True)
class Timed:
    """A task with the earliest slot in which it can run, where each task or part of a task takes one slot."""

    slot: int
    stage: int
    task: Task


class DeadlockError(Exception):
    """Stages that wait for one another.

    `waits` holds by stage its next task with a task that it needs first; None for a stage at its end.
    """

    def __init__(self, waits: list[tuple[Task, Task] | None]) -> None:
        super().__init__("the order of a stage waits for itself")
        self.waits = waits


def one_f_one_b(stages: int, interleave: int, microbatches: int) -> list[list[Task]]:
    """By stage, its tasks in 1F1B order, with `interleave` chunks on each stage: chunk c is on stage c mod `stages`.

    A stage starts with forward tasks until its first backward task can follow, then runs one backward task after each
    forward task. With several chunks, micro-batches pass through them in groups of `stages`, so that `microbatches`
    must be a multiple of `stages`.
    """
    assert interleave == 1 or microbatches % stages == 0
    orders = []
    for stage in range(stages):
        forward = list(_tasks(stages, interleave, microbatches, stage, backward=False))
        backward = list(_tasks(stages, interleave, microbatches, stage, backward=True))
        later_stages = stages - stage - 1
        warmup = later_stages if interleave == 1 else 2 * later_stages + (interleave - 1) * stages
        warmup = min(warmup, len(forward))
        order = forward[:warmup]
        for f, b in zip(forward[warmup:], backward, strict=False):
            order += [f, b]
        orders.append(order + backward[len(forward) - warmup :])
    return orders


def _tasks(stages: int, interleave: int, microbatches: int, stage: int, *, backward: bool) -> Iterator[Task]:
    group = stages if interleave > 1 else microbatches
    for first in range(0, microbatches, group):
        for turn in range(interleave):
            local_chunk = interleave - 1 - turn if backward else turn
            for m in range(first, first + group):
                yield Task(backward, local_chunk * stages + stage, m)


def timed(orders: list[list[Task]], sources: Sources) -> list[Timed]:
    """The tasks of all stages with their slots, in order of slots.

    A task runs as soon as its stage is free and all that it needs is complete in an earlier slot (list scheduling). A
    forward task needs the forward tasks of its sources; a backward task its forward task and the backward tasks of the
    chunks that read its result. Raises `DeadlockError` where no stage can go on.
    """
    readers: dict[int, list[int]] = {}
    for chunk, sources_of in sources.items():
        for s in sources_of:
            readers.setdefault(s, []).append(chunk)
    completed: dict[Task, int] = {}
    position = [0] * len(orders)
    events: list[Timed] = []
    slot = 0
    while any(p < len(o) for p, o in zip(position, orders, strict=True)):
        ready: list[Timed] = []
        for stage, order in enumerate(orders):
            if position[stage] < len(order):
                task = order[position[stage]]
                if all(completed.get(n, slot) < slot for n in _needs(task, sources, readers)):
                    ready.append(Timed(slot, stage, task))
        if not ready:
            heads = [order[p] if p < len(order) else None for p, order in zip(position, orders, strict=True)]
            missing = {
                t: next(n for n in _needs(t, sources, readers) if n not in completed) for t in heads if t
            }
            raise DeadlockError([(t, missing[t]) if t else None for t in heads])
        for t in ready:
            if t.task.last:
                completed[t.task.whole] = slot
            position[t.stage] += 1
        events += ready
        slot += 1
    return events


def _needs(task: Task, sources: Sources, readers: dict[int, list[int]]) -> Iterator[Task]:
    if task.backward:
        yield Task(False, task.chunk, task.microbatch)
        for chunk in readers.get(task.chunk, ()):
            yield Task(True, chunk, task.microbatch)
    else:
        for chunk in sources.get(task.chunk, ()):
            yield Task(False, chunk, task.microbatch)
