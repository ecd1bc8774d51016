"""An estimate of the seconds of a step from the sharded module alone, by which plans are ranked.

Each procedure is scheduled by itself, statement by statement in the order of the program, which `schedule` keeps: work
waits for the die, bytes in HBM for its port, messages for the links of their axis, and all for their operands. Messages
begin when the die has come to the group before them, but gathers that nothing precedes and reductions that nothing
needs, which `spread_messages` spreads. What a statement takes is told by `wscc.search.statement_times`.

A step is what is done for each micro-batch and what is done once; stages wait for each other where they meet
(`wscc.search.meetings`). Calls that wait overlap others as `wscc.search.overlaps` has it. Left out are queues between
axes, routes and damage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from wscc.ir.array import Kind
from wscc.ir.module import Module, Procedure
from wscc.ir.op import Op, Reshard, Value
from wscc.ir.step import Call, Loop, calls
from wscc.search.meetings import step_with_meetings
from wscc.search.overlaps import Load, overlapped
from wscc.search.statement_times import StatementTimes, Task

Statement = Op | Reshard
# A copy begins before the work that needs it by so many times its own seconds, if the port is free.
_AHEAD: Final = 1.5


def estimate(sharded: Sequence[Module], microbatches: int) -> float:
    """The seconds of a step of so many micro-batches, from modules with fewer: one, or for stages two with different
    numbers, which tell what each more adds to a pipeline that is full."""
    if len(sharded) == 1:
        return _plain(sharded[0], microbatches)
    counts = [module.train.microbatches for module in sharded]
    steps = [step_with_meetings(module, *overlapped(module, _loads(module))) for module in sharded]
    more = (steps[1] - steps[0]) / (counts[1] - counts[0]) if counts[1] > counts[0] else 0.0
    return steps[0] + (microbatches - counts[0]) * more


def _plain(sharded: Module, microbatches: int) -> float:
    loads, of_tokens = _loads(sharded), _of_tokens(sharded)
    (step,), (merged,), seconds = sharded.steps(), *overlapped(sharded, loads)
    each = sum(
        times * seconds[call.procedure]
        for call, times in calls(step)
        if not of_tokens.isdisjoint(r.array for r in call.args)
    )
    few = sharded.train.microbatches
    return _total(merged, seconds) + (microbatches - few) * each / few


def _total(step: Sequence[Call | Loop], seconds: Mapping[str, float]) -> float:
    return sum(times * seconds[call.procedure] for call, times in calls(tuple(step)))


def _loads(sharded: Module) -> dict[str, Load]:
    """What a call of each procedure takes."""
    times_of = StatementTimes.of(sharded)
    tasks = {p.name: times_of.tasks(p) for p in sharded.procedures}
    return {p.name: Load.of(tasks[p.name], _procedure(p, tasks[p.name])) for p in sharded.procedures}


def _of_tokens(module: Module) -> frozenset[str]:
    """The arrays that calls for one micro-batch touch, and no others: inputs, and what is computed of them, but for
    gradients of parameters that stages exchange."""
    parameters = {a.of or a.name for a in module.arrays if a.kind is Kind.PARAM}
    return frozenset(
        a.name
        for a in module.arrays
        if a.kind in (Kind.INPUT, Kind.RESIDUAL)
        or (a.kind is Kind.CARRIED and not (a.relation and a.relation.array in parameters))
    )


@dataclass(slots=True)
class _Schedule:
    """Statements in the order of the program: what is `ready` by when, and when the die, the port of its HBM and the
    links of an axis are free, in seconds from the begin of the call. `reached`: when the die came to the last group of
    messages, before which the next one does not begin."""

    ready: dict[str, float]
    die: float = 0.0
    port: float = 0.0
    reached: float = 0.0
    links: dict[str, float] = field(default_factory=dict)

    def run(self, task: Task, operands: float, moving: float, *, is_apart: bool) -> float:
        """Run a task whose operands are there at a time, those that move at another; the time when its results are
        there. One that `is_apart` from all other work, before or behind it, does not hold up the die."""
        there = self._brought(task)
        if task.axis and not task.work:
            return self._reshard(task, max(operands, there), is_apart=is_apart)
        return self._work(task, operands, moving, there)

    def _brought(self, task: Task) -> float:
        """The time when the copies that a task needs are there, but for those of its later parts."""
        if not task.brought:
            return 0.0
        begin = max(self.port, self.die - _AHEAD * task.brought)
        self.port = begin + task.brought
        return begin + task.brought / task.parts

    def _reshard(self, task: Task, ready: float, *, is_apart: bool) -> float:
        begin = max(self.links.get(task.axis, 0.0), ready if is_apart else max(ready, self.reached))
        self.links[task.axis] = begin + task.gathered
        whole = task.gathered + task.latency
        end = begin + whole
        if not is_apart:
            self.reached = self.die
            # The die relays what arrives: it waits for all rounds but the last.
            if task.rounds > 1:
                inner = whole / task.rounds
                self.die = max(self.die, begin + inner) + whole - 2 * inner
                end = self.die + inner
        if task.direct:
            self.port = max(self.port, begin) + task.direct
            end = max(end, self.port)
        return end

    def _work(self, task: Task, operands: float, moving: float, there: float) -> float:
        start = max(self.die, operands, there, self.port if task.direct else 0.0)
        end = start + max(task.work, task.direct)
        if task.direct:
            self.port = start + task.direct
        if task.axis:
            end = max(end, self._streamed(task, start, moving))
        end = max(end, self.port if task.brought else 0.0)
        if task.taken:
            # Each part is taken when it is done.
            first = start + (end - start) / task.parts
            self.port = max(max(self.port, first) + task.taken, end + task.taken / task.parts)
        self.die = end
        return end

    def _streamed(self, task: Task, start: float, moving: float) -> float:
        """The end of a stream as far as its messages are concerned. What is gathered arrives beside the work; where
        results are sent, too, before it, but beside the slices before. Results are sent while what is added to them is
        computed, those of two slices at a time."""
        free, part = self.links.get(task.axis, 0.0), task.work / task.parts
        latency = task.latency * task.slices
        begin, self.reached = max(free, moving, self.reached), self.die
        if not task.sent:
            self.links[task.axis] = begin + task.gathered
            return begin + task.gathered + latency + part
        first = (
            max(start, begin + (task.gathered + task.latency) / task.slices if task.gathered else 0.0) + part
        )
        self.links[task.axis] = max(free, first) + task.messages
        last = first + (task.sent + latency) / min(2, task.slices)
        return max(self.links[task.axis] + task.latency, last, first + task.work - part)


def _procedure(p: Procedure, tasks: Sequence[Task]) -> float:
    """The seconds of a call by itself, whose statements are these tasks."""
    made = {v.name for s in p.statements for v in s.results}
    read = {v.name for s in p.statements for v in s.operands}
    schedule = _Schedule({v.name: 0.0 for v in p.inputs})
    end = 0.0
    for s, task in zip(p.statements, tasks, strict=True):
        is_apart = _is_apart(s, task, made, read)
        operands, moving = (
            max((schedule.ready.get(v.name, 0.0) for v in values), default=0.0)
            for values in (s.operands, _moving(s))
        )
        done = schedule.run(task, operands, moving, is_apart=is_apart)
        schedule.ready.update(dict.fromkeys((v.name for v in s.results), done))
        end = max(end, done)
    return max(end, schedule.port)


def _is_apart(s: Statement, task: Task, made: set[str], read: set[str]) -> bool:
    """Whether a reshard is spread over work that it has nothing to do with: it has several messages, and either nothing
    made before it or nothing that needs it behind."""
    before = not made.isdisjoint(v.name for v in s.operands)
    behind = not read.isdisjoint(v.name for v in s.results)
    return isinstance(s, Reshard) and task.rounds > 1 and before != behind


def _moving(s: Statement) -> list[Value]:
    if isinstance(s, Reshard) or s.stream is None:
        return list(s.operands)
    return [s.operands[i] for i in s.stream.moving_in]
