"""An estimate of the seconds of a step from the sharded module alone, by which plans are ranked.

Each procedure is scheduled by itself, statement by statement, what can start first before others: work waits for the
die, bytes in HBM for its port, messages for the links of their axis, and all for their operands. So messages and copies
hide behind work that does not need them. What a statement takes is told by `wscc.search.statement_times`.

A step is the slowest stage times the micro-batches, the other stages once, which fills and empties the pipeline, and
what is done once a step. Left out are queues between axes, routes and damage, and that calls overlap each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wscc.ir.array import Kind
from wscc.ir.module import Module, Procedure
from wscc.ir.op import Op, Reshard
from wscc.ir.step import calls
from wscc.search.statement_times import StatementTimes, Task

Statement = Op | Reshard


def estimate(sharded: Module, microbatches: int) -> float:
    """The seconds of a step of so many micro-batches, of which the module has some."""
    times_of = StatementTimes.of(sharded)
    seconds = {p.name: _procedure(p, times_of) for p in sharded.procedures}
    of_tokens = _of_tokens(sharded)
    once, each = [], []
    for step in sharded.steps():
        parts = [0.0, 0.0]
        for call, times in calls(step):
            parts[not of_tokens.isdisjoint(r.array for r in call.args)] += times * seconds[call.procedure]
        once.append(parts[0])
        each.append(parts[1] / sharded.train.microbatches)
    filling = (sum(each) - max(each)) / sharded.train.interleave
    return max(once) + microbatches * max(each) + filling


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
    """Statements, each as early as what it needs: when values are there, and when the die, the port of its HBM and the
    links of an axis are free, in seconds from the begin of the call."""

    ready: dict[str, float]
    die: float = 0.0
    port: float = 0.0
    links: dict[str, float] = field(default_factory=dict)

    def start(self, task: Task, operands: float) -> float:
        """The earliest start of a task whose operands are there at a time."""
        return max(operands, self.die if task.work or not task.axis else self.links.get(task.axis, 0.0))

    def run(self, task: Task, operands: float, fetched: float) -> float:
        """Run a task; the time when its results are there. What lies in HBM is read from `fetched` on."""
        start = self.start(task, operands)
        end = start + task.work
        if task.copies:
            self.port = max(self.port, fetched) + task.copies
            end = max(end, self.port)
        if task.axis:
            sent = max(self.links.get(task.axis, 0.0), fetched if task.work else operands) + task.messages
            self.links[task.axis] = sent
            end = max(end, sent + task.latency + task.work / task.chunks)
        if task.work or not task.axis:
            self.die = end
        return end


def _procedure(p: Procedure, times_of: StatementTimes) -> float:
    """The seconds of a call by itself."""
    made = {v.name for s in p.statements for v in s.results}
    schedule = _Schedule({v.name: 0.0 for v in p.inputs})
    waiting = list(zip(p.statements, times_of.tasks(p), strict=True))
    end = 0.0
    while waiting:
        s, task, operands = _first(waiting, schedule, made)
        local = [schedule.ready[v.name] for v in s.operands if v.name in made]
        done = schedule.run(task, operands, max(local, default=0.0))
        schedule.ready.update(dict.fromkeys((v.name for v in s.results), done))
        end = max(end, done)
    return max(end, schedule.port)


def _first(
    waiting: list[tuple[Statement, Task]], schedule: _Schedule, made: set[str]
) -> tuple[Statement, Task, float]:
    """Take the statement that can start first of those whose operands are known, with the time when those are there."""
    best: tuple[float, int, float] | None = None
    for i, (s, task) in enumerate(waiting):
        if any(v.name in made and v.name not in schedule.ready for v in s.operands):
            continue
        operands = max((schedule.ready.get(v.name, 0.0) for v in s.operands), default=0.0)
        start = schedule.start(task, operands)
        if best is None or start < best[0]:
            best = start, i, operands
    assert best is not None, "no statement stands before what it reads"
    s, task = waiting.pop(best[1])
    return s, task, best[2]
