"""Grouping of the single calls of a call order into tasks, parts of tasks and statements outside the chain."""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from wscc.diagnostics import Span
from wscc.ir.text.call_order import One
from wscc.passes.stages.order_1f1b import Task
from wscc.passes.stages.roll_loops import Item
from wscc.passes.stages.work_items import Orders, OutsideWork, Portion, Work

# By call: the number of its work on the stage, its iteration of that work, and the work.
CallIndex: TypeAlias = dict[One, tuple[int, int, Work]]
_Calls: TypeAlias = list[tuple[One, Span]]


def orders_of(calls: list[_Calls], index: list[CallIndex]) -> tuple[Orders, list[dict[Task, Span]]]:
    """The orders of all stages, and by stage the line on which each task, or part of a task, begins."""
    stages = [_Stage(k, c) for c, k in zip(calls, index, strict=True)]
    orders = Orders(
        [s.tasks for s in stages],
        [s.work for s in stages],
        [s.before for s in stages],
        [s.pending for s in stages],
    )
    return orders, [s.starts for s in stages]


class _Stage:
    """The tasks of one stage, and the items between them, from its calls in order."""

    def __init__(self, index: CallIndex, calls: _Calls) -> None:
        self.index = index
        self.tasks: list[Task] = []
        self.work: dict[Task, list[Item]] = {}
        self.starts: dict[Task, Span] = {}
        self.before: list[Item] = []
        self.pending: list[Item] = []
        runs = _runs(index, calls)
        parts_left = Counter(key for key, _ in runs if key is not None)
        self.whole = Counter((w.task, one.microbatch) for one, (_, _, w) in index.items() if w.task)
        parts_done: Counter[tuple[bool, int, int]] = Counter()
        for key, run in runs:
            if key is None:
                self.pending += [self._outside_item(one) for one, _ in run]
                continue
            parts_left[key] -= 1
            task = Task(*key, part=parts_done[key], last=not parts_left[key])
            parts_done[key] += 1
            self.tasks.append(task)
            self.starts[task] = run[0][1]
            if len(self.tasks) == 1:
                self.before, self.pending = self.pending, []
            self.work[task] = [*self.pending, self._item(task, [one for one, _ in run])]
            self.pending = []

    def _item(self, task: Task, run: list[One]) -> Item:
        """The item of a run: of the whole task if it has all its calls in their order, so that loops can merge it."""
        spans: list[tuple[int, int, int]] = []
        for one in run:
            _, i, work = self.index[one]
            if spans and spans[-1][0] == work.piece_index and sum(spans[-1][1:]) == i:
                piece_index, first, count = spans.pop()
                spans.append((piece_index, first, count + 1))
            else:
                spans.append((work.piece_index, i, 1))
        whole = len(run) == self.whole[(task.backward, task.chunk), task.microbatch]
        if whole and spans == sorted(spans) and len({s[0] for s in spans}) == len(spans):
            return Item((task.backward, task.chunk), (task.microbatch,))
        return Item(Portion(task.backward, task.chunk, task.part == 0, tuple(spans)), (task.microbatch,))

    def _outside_item(self, one: One) -> Item:
        number, i, work = self.index[one]
        iteration = [one.microbatch or 0] * (work.microbatches > 0) + [i] * (len(work.layers) > 0)
        return Item(OutsideWork(number), tuple(iteration))


def _runs(index: CallIndex, calls: _Calls) -> list[tuple[tuple[bool, int, int] | None, _Calls]]:
    """Maximal runs of neighbouring calls of one task and micro-batch, or of none."""
    runs: list[tuple[tuple[bool, int, int] | None, _Calls]] = []
    for call in calls:
        task = index[call[0]][2].task
        key = (*task, call[0].microbatch or 0) if task else None
        if runs and runs[-1][0] == key:
            runs[-1][1].append(call)
        else:
            runs.append((key, [call]))
    return runs
