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
    """Forward (or `backward`) work of one chunk of layers on one micro-batch, or one `part` of several of it, of which
    the `last` completes it."""

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
    """A task in the slot in which it may run first, all tasks and parts of tasks taking one slot."""

    slot: int
    stage: int
    task: Task


class StuckError(Exception):
    """Stages that wait for one another: by stage, its next task with what that needs first, None for one at its end."""

    def __init__(self, waits: list[tuple[Task, Task] | None]) -> None:
        super().__init__("the order of a stage waits for itself")
        self.waits = waits


def one_f_one_b(stages: int, each: int, microbatches: int) -> list[list[Task]]:
    """By stage, its tasks in order; chunk c lies on stage c mod `stages`, `each` chunks on one stage.

    A stage runs as many forwards ahead as it takes until its first backward can follow, then one backward
    after each forward. With several chunks, micro-batches go through them in groups of `stages`, so their
    number must be a multiple of it.
    """
    assert each == 1 or microbatches % stages == 0
    orders = []
    for stage in range(stages):
        forward = list(_tasks(stages, each, microbatches, stage, backward=False))
        backward = list(_tasks(stages, each, microbatches, stage, backward=True))
        ahead = stages - stage - 1 if each == 1 else 2 * (stages - stage - 1) + (each - 1) * stages
        ahead = min(ahead, len(forward))
        order = forward[:ahead]
        for f, b in zip(forward[ahead:], backward, strict=False):
            order += [f, b]
        orders.append(order + backward[len(forward) - ahead :])
    return orders


def _tasks(stages: int, each: int, microbatches: int, stage: int, *, backward: bool) -> Iterator[Task]:
    group = stages if each > 1 else microbatches
    for first in range(0, microbatches, group):
        for turn in range(each):
            level = each - 1 - turn if backward else turn
            for m in range(first, first + group):
                yield Task(backward, level * stages + stage, m)


def timed(orders: list[list[Task]], sources: Sources) -> list[Timed]:
    """When each task runs, in order of slots: as soon as its stage is free and what it needs has been made in an
    earlier slot. A forward task needs its sources; a backward task its forward task and its readers' gradients.
    Raises `StuckError` where none can go on."""
    readers: dict[int, list[int]] = {}
    for chunk, sources_of in sources.items():
        for s in sources_of:
            readers.setdefault(s, []).append(chunk)
    done: dict[Task, int] = {}
    position = [0] * len(orders)
    out: list[Timed] = []
    slot = 0
    while any(p < len(o) for p, o in zip(position, orders, strict=True)):
        now: list[Timed] = []
        for stage, order in enumerate(orders):
            if position[stage] < len(order):
                task = order[position[stage]]
                if all(done.get(n, slot) < slot for n in _needs(task, sources, readers)):
                    now.append(Timed(slot, stage, task))
        if not now:
            heads = [order[p] if p < len(order) else None for p, order in zip(position, orders, strict=True)]
            missing = {t: next(n for n in _needs(t, sources, readers) if n not in done) for t in heads if t}
            raise StuckError([(t, missing[t]) if t else None for t in heads])
        for t in now:
            if t.task.last:
                done[t.task.whole] = slot
            position[t.stage] += 1
        out += now
        slot += 1
    return out


def _needs(task: Task, sources: Sources, readers: dict[int, list[int]]) -> Iterator[Task]:
    if task.backward:
        yield Task(False, task.chunk, task.microbatch)
        for chunk in readers.get(task.chunk, ()):
            yield Task(True, chunk, task.microbatch)
    else:
        for chunk in sources.get(task.chunk, ()):
            yield Task(False, chunk, task.microbatch)
