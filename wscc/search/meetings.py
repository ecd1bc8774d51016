"""The seconds of a step whose pipeline stages meet in calls that both make, from those of each call by itself.

After each piece of work, what two stages have for each other crosses in one call, in an order that all have (ADR 009):
who comes first waits. Stages of plain 1F1B are at work all the while once the pipeline is full. With interleaved chunks
they meet after each piece, forward ones beside backward ones, which take about twice as long: what is waited for there
can be more than what interleaving saves at the ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf

from wscc.ir.module import Module
from wscc.ir.op import Reshard
from wscc.ir.step import Call, Loop, calls
from wscc.strategy import stage_axes

# A call that stages make together, and the seconds of work since the one before; none at the end of the step.
_Meeting = tuple[float, str | None]


def step_with_meetings(
    staged: Module, steps: Sequence[Sequence[Call | Loop]], seconds: Mapping[str, float]
) -> float:
    """The seconds of a step of a staged module, from the steps of its stages; `seconds` are those of a call of each
    procedure."""
    joint = _joint(staged)
    walks = [_meetings(step, seconds, joint) for step in steps]
    made = [{call.procedure for call, _ in calls(tuple(step))} for step in steps]
    partners = {name: [s for s, names in enumerate(made) if name in names] for name in joint}
    now = [0.0] * len(steps)
    waiting: list[str | None] = [None] * len(steps)

    def go_on(stages: Sequence[int]) -> None:
        for s in stages:
            work, waiting[s] = next(walks[s])
            now[s] += work

    go_on(range(len(steps)))
    while name := next((n for n in waiting if n and all(waiting[s] == n for s in partners[n])), None):
        met = max(now[s] for s in partners[name]) + seconds[name]
        for s in partners[name]:
            now[s] = met
        go_on(partners[name])
    return inf if any(waiting) else max(now)


def _joint(module: Module) -> frozenset[str]:
    """The procedures in which stages exchange something."""
    axes = stage_axes(module.sizes)
    return frozenset(
        p.name
        for p in module.procedures
        if any(isinstance(s, Reshard) and s.axis in axes for s in p.statements)
    )


def _meetings(
    step: Sequence[Call | Loop], seconds: Mapping[str, float], joint: frozenset[str]
) -> Iterator[_Meeting]:
    work = 0.0
    for spent, name in _parts(step, seconds, joint):
        work += spent
        if name is not None:
            yield work, name
            work = 0.0
    yield work, None


def _parts(
    step: Sequence[Call | Loop], seconds: Mapping[str, float], joint: frozenset[str]
) -> Iterator[_Meeting]:
    """The calls in order; loops without meetings are one piece of work."""
    for stmt in step:
        if isinstance(stmt, Call):
            is_joint = stmt.procedure in joint
            yield (0.0, stmt.procedure) if is_joint else (seconds[stmt.procedure], None)
        elif joint.isdisjoint(call.procedure for call, _ in calls(stmt.body)):
            yield stmt.count * sum(n * seconds[call.procedure] for call, n in calls(stmt.body)), None
        else:
            for _ in range(stmt.count):
                yield from _parts(stmt.body, seconds, joint)
