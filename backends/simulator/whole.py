"""A step simulated as one run of all instructions, without composing it from calls: exact, and only for small steps."""

from __future__ import annotations

from collections import Counter

from wscc.backends.simulator.calls import Builder
from wscc.backends.simulator.events import Simulation
from wscc.backends.simulator.scripts import Scripts
from wscc.ir.streams.program import ProgramCall, ProgramStep, dynamic_calls


def whole(b: Builder) -> Simulation:
    """The run of all calls of all dies. The n-th calls of a procedure on all stages are taken as one call."""
    scripts = {}
    numbers: dict[tuple[str, int], int] = {}
    for die, stage in enumerate(b.stages):
        counts: Counter[str] = Counter()
        script = []
        for name, args in dynamic_calls(b.streams.steps[stage]):
            counts[name] += 1
            number = numbers.setdefault((name, counts[name]), len(numbers))
            script.append((number, b.call(die, name, b.places(stage, name, args))))
        scripts[die] = script
    stations = dict(enumerate(b.streams.dies))
    return Simulation(b.costs, stations, Scripts.of(scripts), dict.fromkeys(scripts, 0)).run()


def length(b: Builder) -> int:
    """The number of instructions that all dies execute in a step; loops are not unrolled."""
    counts = [_calls(step) for step in b.streams.steps]
    return sum(
        times * len(b.code(die, name).body)
        for die, stage in enumerate(b.stages)
        for name, times in counts[stage].items()
    )


def _calls(step: ProgramStep) -> Counter[str]:
    totals: Counter[str] = Counter()
    for stmt in step:
        if isinstance(stmt, ProgramCall):
            totals[stmt.procedure] += 1
        else:
            for name, times in _calls(stmt.body).items():
                totals[name] += times * stmt.count
    return totals
