"""A step simulated as one run of all instructions, without composing it from calls: exact, and only for small steps."""

from __future__ import annotations

from collections import Counter

from wscc.backends.simulator.calls import Builder
from wscc.backends.simulator.events import Simulation
from wscc.ir.streams.program import ProgramCall, ProgramStep, dynamic_calls


def whole(b: Builder) -> Simulation:
    """All calls of all dies in one run. The n-th calls of a procedure are taken for one, on whatever stages."""
    scripts = {}
    numbers: dict[tuple[str, int], int] = {}
    for die, stage in enumerate(b.stages):
        seen: Counter[str] = Counter()
        script = []
        for name, args in dynamic_calls(b.streams.steps[stage]):
            seen[name] += 1
            number = numbers.setdefault((name, seen[name]), len(numbers))
            script.append((number, b.call(die, name, b.places(stage, name, args)).steps))
        scripts[die] = script
    return Simulation(b.costs, dict(enumerate(b.streams.dies)), scripts, dict.fromkeys(scripts, 0)).run()


def length(b: Builder) -> int:
    """The instructions that all dies execute in a step; loops are not walked through."""
    counts = [_calls(step) for step in b.streams.steps]
    return sum(
        times * len(b.code(die, name).body)
        for die, stage in enumerate(b.stages)
        for name, times in counts[stage].items()
    )


def _calls(step: ProgramStep) -> Counter[str]:
    found: Counter[str] = Counter()
    for stmt in step:
        if isinstance(stmt, ProgramCall):
            found[stmt.procedure] += 1
        else:
            for name, times in _calls(stmt.body).items():
                found[name] += times * stmt.count
    return found
