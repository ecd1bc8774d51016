"""The evaluation of one strategy: its estimate, its compiled program and simulated figures, or its refusal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from wscc.analysis.memory.array_layout import peak_array_bytes
from wscc.analysis.memory.report import format_bytes, memory_report
from wscc.backends.artifact.files import Artifact
from wscc.backends.simulator.costs import SECOND
from wscc.backends.simulator.least import least_ticks
from wscc.diagnostics import NO_SPAN, Code, CompileError, Label, UsageError
from wscc.driver.compile import program_of
from wscc.driver.pipeline import Pipeline
from wscc.driver.proposals import Trials
from wscc.driver.simulate import builder_of, simulate
from wscc.frontend import ast
from wscc.frontend.elaborate import elaborate
from wscc.frontend.overrides import NO_OVERRIDES, Overrides
from wscc.frontend.resolve import leaves_strategy_open, resolve
from wscc.ir.module import Module
from wscc.machine.links import CUT_THROUGH
from wscc.machine.wafer import Wafer
from wscc.passes.choices import DEFAULT, Choices
from wscc.passes.differentiate import Differentiate
from wscc.passes.place import Place
from wscc.search.estimate import estimate
from wscc.search.space import ONE_DIE, Strategy, replicas_of, spell
from wscc.strategy import mesh_axes

LEVEL = 2


@dataclass(frozen=True, slots=True)
class Refused:
    """The refusal of a strategy. `bytes`: what a die would need, where memory is the reason; else 0."""

    code: Code
    message: str
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program, the least seconds that it takes in whatever order, and the bytes of its fullest die."""

    artifact: Artifact
    wafer: Wafer
    seconds: float
    peak_bytes_per_die_max: int


@dataclass(frozen=True, slots=True)
class Figures:
    """The seconds of a simulated step, and its part of the peak FLOP/s (MFU)."""

    step_seconds: float
    mfu: float


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

    def trials(self, strategy: Strategy | None = None) -> Trials:
        """Trials of changes of the program, under a strategy where it has none itself."""
        parallel = self.overrides.parallel if strategy is None else spell(strategy)
        return Trials(self.file, replace(self.overrides, parallel=parallel), LEVEL, self.choices)

    def one_die(self) -> Module:
        """The forward module on one die. Raises its `CompileError`: a mistake on one die is one of the program."""
        try:
            return self.graph(ONE_DIE)
        except CompileError as error:
            option = f"--parallel {spell(ONE_DIE)}"
            raise type(error)(
                *(
                    replace(d, label=Label(NO_SPAN))
                    if d.label.span.source and d.label.span.source.text == option
                    else d
                    for d in error.diagnostics
                )
            ) from None

    @cached_property
    def given(self) -> Strategy | None:
        """The strategy that the program has, if it has one that fits its batch and its wafer."""
        if leaves_strategy_open(self.file, self.overrides):
            return None
        try:
            return mesh_axes(dict(resolve(self.file, self.overrides).config.strategy))
        except UsageError:
            raise
        except CompileError:
            return None  # `one_die` reports all other mistakes

    def differentiated(self, strategy: Strategy) -> Module:
        """The training step under a strategy: strategies with the same replicas share all but the axes. Raises
        `CompileError`."""
        replicas = replicas_of(strategy)
        if replicas not in self._differentiated:
            self._differentiated[replicas] = Differentiate().run(self.graph(replicas))
        return self._differentiated[replicas].with_(axes=strategy)

    @cached_property
    def _differentiated(self) -> dict[Strategy, Module]:
        return {}

    @cached_property
    def sharding(self) -> Pipeline:
        """The passes behind `differentiate` and before `place`."""
        return Pipeline.default(LEVEL, self.choices).after(Differentiate).before(Place)


def estimated(problem: Problem, strategy: Strategy) -> float | Refused:
    """The estimate of the seconds of a step, from the sharded module."""
    try:
        module = problem.differentiated(strategy)
        for p in problem.sharding.passes:
            module = p.run(module)
    except CompileError as error:
        return refused(error)
    return too_large(module, peak_array_bytes(module)) or estimate(module)


def compiled(problem: Problem, strategy: Strategy) -> Compiled | Refused:
    """The program of a strategy, as `--parallel` would make it."""
    try:
        graph = problem.graph(strategy)
        artifact, planned = program_of(graph, LEVEL, choices=problem.choices)
        ticks = least_ticks(builder_of(artifact, problem.link_model, wafer=graph.machine))
    except CompileError as error:
        return refused(error)
    return Compiled(artifact, graph.machine, ticks / SECOND, memory_report(planned).peak)


def simulated(problem: Problem, program: Compiled) -> Figures:
    """The figures of one simulated step of a program."""
    figures = simulate(program.artifact, problem.link_model, wafer=program.wafer).figures()
    return Figures(figures.step_seconds, figures.mfu)


def too_large(module: Module, needed: int) -> Refused | None:
    """The refusal of a strategy whose stored arrays alone need more than the capacity of a die, in bytes."""
    capacity = module.machine.die.sram + module.machine.die.hbm
    if needed <= capacity:
        return None
    message = f"what rests on each die needs {format_bytes(needed)} of {format_bytes(capacity)}"
    return Refused(Code.OUT_OF_MEMORY, message, needed)


def refused(error: CompileError) -> Refused:
    """The refusal for the first mistake of an error."""
    first = error.diagnostics[0]
    return Refused(first.code, first.message)
