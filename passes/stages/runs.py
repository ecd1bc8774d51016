"""From single calls in an order to tasks, parts of tasks and statements outside the chain."""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from wscc.diagnostics import Span
from wscc.ir.text.call_order import One
from wscc.passes.stages.order_1f1b import Task
from wscc.passes.stages.roll_loops import Item
from wscc.passes.stages.work_items import Once, Orders, Portion, Work

# By call: the number of its work on the stage, which of its turns it is, and the work.
Known: TypeAlias = dict[One, tuple[int, int, Work]]
_Calls: TypeAlias = list[tuple[One, Span]]


def orders_of(calls: list[_Calls], known: list[Known]) -> tuple[Orders, list[dict[Task, Span]]]:
    """The orders of all stages, and by stage the line at which each task, or part of one, begins."""
    stages = [_Stage(k, c) for c, k in zip(calls, known, strict=True)]
    orders = Orders(
        [s.tasks for s in stages],
        [s.work for s in stages],
        [s.before for s in stages],
        [s.pending for s in stages],
    )
    return orders, [s.starts for s in stages]


class _Stage:
    def __init__(self, known: Known, calls: _Calls) -> None:
        self.known = known
        self.tasks: list[Task] = []
        self.work: dict[Task, list[Item]] = {}
        self.starts: dict[Task, Span] = {}
        self.before: list[Item] = []
        self.pending: list[Item] = []
        runs = _runs(known, calls)
        left = Counter(key for key, _ in runs if key is not None)
        self.whole = Counter((w.task, one.microbatch) for one, (_, _, w) in known.items() if w.task)
        done: Counter[tuple[bool, int, int]] = Counter()
        for key, run in runs:
            if key is None:
                self.pending += [self._once(one) for one, _ in run]
                continue
            left[key] -= 1
            task = Task(*key, part=done[key], last=not left[key])
            done[key] += 1
            self.tasks.append(task)
            self.starts[task] = run[0][1]
            if len(self.tasks) == 1:
                self.before, self.pending = self.pending, []
            self.work[task] = [*self.pending, self._item(task, [one for one, _ in run])]
            self.pending = []

    def _item(self, task: Task, run: list[One]) -> Item:
        """All of a task in its own order under its plain key, so that it is one with that of other micro-batches."""
        spans: list[tuple[int, int, int]] = []
        for one in run:
            _, i, work = self.known[one]
            if spans and spans[-1][0] == work.piece_index and sum(spans[-1][1:]) == i:
                index, first, count = spans.pop()
                spans.append((index, first, count + 1))
            else:
                spans.append((work.piece_index, i, 1))
        whole = len(run) == self.whole[(task.backward, task.chunk), task.microbatch]
        if whole and spans == sorted(spans) and len({s[0] for s in spans}) == len(spans):
            return Item((task.backward, task.chunk), (task.microbatch,))
        return Item(Portion(task.backward, task.chunk, task.part == 0, tuple(spans)), (task.microbatch,))

    def _once(self, one: One) -> Item:
        number, i, work = self.known[one]
        turn = [one.microbatch or 0] * (work.microbatches > 0) + [i] * (len(work.layers) > 0)
        return Item(Once(number), tuple(turn))


def _runs(known: Known, calls: _Calls) -> list[tuple[tuple[bool, int, int] | None, _Calls]]:
    """Neighbours of one task and micro-batch, or of none, together."""
    runs: list[tuple[tuple[bool, int, int] | None, _Calls]] = []
    for call in calls:
        task = known[call[0]][2].task
        key = (*task, call[0].microbatch or 0) if task else None
        if runs and runs[-1][0] == key:
            runs[-1][1].append(call)
        else:
            runs.append((key, [call]))
    return runs
