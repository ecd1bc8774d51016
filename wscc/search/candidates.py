"""What becomes of one strategy: estimated from its sharded module, or compiled and simulated, or refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from wscc.compiler import program_of
from wscc.diagnostics import Code, CompileError
from wscc.frontend import ast
from wscc.frontend.elaborate import elaborate
from wscc.frontend.overrides import NO_OVERRIDES, Overrides
from wscc.frontend.resolve import resolve
from wscc.ir.module import Module
from wscc.machine.links import CUT_THROUGH
from wscc.passes import default_passes
from wscc.passes.base import Pass
from wscc.passes.choices import DEFAULT, Choices
from wscc.passes.plan_memory_report import memory_report, size
from wscc.search.estimate import estimate, resting_bytes
from wscc.search.space import Strategy, spell
from wscc.simulation import simulate

LEVEL = 2


@dataclass(frozen=True, slots=True)
class Refused:
    """`bytes`: what a die would need, where that is what is wrong and as far as known."""

    code: Code
    message: str
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Simulated:
    """Figures of a compiled program."""

    step_seconds: float
    mfu: float
    peak_bytes_per_die_max: int


@dataclass(frozen=True)
class Problem:
    """A program whose strategy is open, and how others are compiled and simulated."""

    file: ast.File
    overrides: Overrides = NO_OVERRIDES
    choices: Choices = DEFAULT
    link_model: str = CUT_THROUGH

    def graph(self, strategy: Strategy) -> Module:
        """The forward module under a strategy. Raises `CompileError`."""
        return elaborate(resolve(self.file, replace(self.overrides, parallel=spell(strategy))))

    @cached_property
    def _passes(self) -> list[Pass]:
        """Those that shard."""
        passes = default_passes(LEVEL, self.choices)
        return passes[: [p.name for p in passes].index("place")]


def estimated(problem: Problem, strategy: Strategy) -> float | Refused:
    """Seconds of a step by the sharded module."""
    try:
        module = problem.graph(strategy)
        for p in problem._passes:
            module = p.run(module)
    except CompileError as error:
        return _refused(error)
    return too_large(module, resting_bytes(module)) or estimate(module)


def simulated(problem: Problem, strategy: Strategy) -> Simulated | Refused:
    """What its compiled program does."""
    try:
        graph = problem.graph(strategy)
        artifact, planned = program_of(graph, LEVEL, choices=problem.choices)
        found = simulate(artifact, problem.link_model, wafer=graph.machine).figures()
    except CompileError as error:
        return _refused(error)
    return Simulated(found.step_seconds, found.mfu, memory_report(planned).peak)


def too_large(module: Module, needed: int) -> Refused | None:
    """Where what rests on a die alone does not fit it."""
    capacity = module.machine.die.sram + module.machine.die.hbm
    if needed <= capacity:
        return None
    message = f"what rests on each die needs {size(needed)} of {size(capacity)}"
    return Refused(Code.OUT_OF_MEMORY, message, needed)


def _refused(error: CompileError) -> Refused:
    first = error.diagnostics[0]
    return Refused(first.code, first.message)
