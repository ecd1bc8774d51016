"""The evaluation of one plan: its estimate, its compiled program and simulated figures, or its refusal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from wscc.analysis.memory.array_layout import array_bytes, peak_array_bytes
from wscc.analysis.memory.report import format_bytes, memory_report
from wscc.backends.artifact.files import Artifact
from wscc.backends.simulator.costs import SECOND
from wscc.backends.simulator.least import least_ticks
from wscc.diagnostics import NO_SPAN, Code, CompileError, Label, UsageError, fail
from wscc.driver.compile import program_of
from wscc.driver.edges import with_edges_of
from wscc.driver.pipeline import Pipeline
from wscc.driver.proposals import Trials
from wscc.driver.simulate import builder_of, simulate
from wscc.frontend import ast
from wscc.frontend.elaborate import elaborate
from wscc.frontend.overrides import NO_OVERRIDES, Overrides, as_usage_error
from wscc.frontend.resolve import leaves_strategy_open, resolve
from wscc.frontend.resolve import pins as written_pins
from wscc.ir.array import Kind
from wscc.ir.module import Module
from wscc.ir.train import RECOMPUTE
from wscc.machine.links import CUT_THROUGH
from wscc.machine.wafer import Die, Wafer
from wscc.passes.base import Pass
from wscc.passes.choices import DEFAULT, Choices
from wscc.passes.differentiate import Differentiate
from wscc.passes.hoist_casts import HoistCasts
from wscc.passes.pad import Pad
from wscc.passes.place import Place
from wscc.search.estimate import estimate
from wscc.search.needed import needed_bytes
from wscc.search.pins import pins_of
from wscc.search.space import CHOICES, ONE_DIE, Pins, Plan, Strategy, plan_of, replicas_of, spell, stages_of
from wscc.strategy import dies_of, mesh_axes

LEVEL = 2
# Rounds of micro-batches that fill a pipeline, and one more.
_FULL = (1, 2)


@dataclass(frozen=True, slots=True)
class Refused:
    """The refusal of a plan. `bytes`: what a die would need, where memory is the reason; else 0."""

    code: Code
    message: str
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Compiled:
    """The program of a plan, the least seconds that it takes in whatever order, and the bytes of its fullest die."""

    plan: Plan
    artifact: Artifact
    wafer: Wafer
    seconds: float
    peak_bytes_per_die_max: int


@dataclass(frozen=True, slots=True)
class Figures:
    """The seconds of a simulated step, its part of the peak FLOP/s (MFU), and what the time of all live dies goes to,
    in shares of 1."""

    step_seconds: float
    mfu: float
    shares: dict[str, float]


@dataclass(frozen=True)
class Problem:
    """A program whose plan is open, and how others are compiled and simulated. `unpinned`: pins that do not hold."""

    file: ast.File
    overrides: Overrides = NO_OVERRIDES
    choices: Choices = DEFAULT
    link_model: str = CUT_THROUGH
    unpinned: frozenset[str] = frozenset()

    def settled(self, plan: Plan) -> Overrides:
        """The options with which the program has a plan."""
        sets = (*self.overrides.sets, *plan.sets)
        return replace(self.overrides, sets=sets, parallel=spell(plan.strategy))

    def graph(self, plan: Plan) -> Module:
        """The forward module under a plan. Raises `CompileError`."""
        return with_edges_of(elaborate(resolve(self.file, self.settled(plan))), self.file)

    def trials(self, strategy: Strategy | None = None) -> Trials:
        """Trials of changes of the program, under a strategy where it has none itself."""
        parallel = self.overrides.parallel if strategy is None else spell(strategy)
        return Trials(self.file, replace(self.overrides, parallel=parallel), LEVEL, self.choices)

    def one_die(self) -> Module:
        """The forward module on one die. Raises its `CompileError`: a mistake on one die is one of the program."""
        try:
            return self.graph(Plan(ONE_DIE))
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

    @cached_property
    def pins(self) -> Pins:
        """What the plan must have. Raises `CompileError`."""
        return self.wished.without(self.unpinned)

    @cached_property
    def wished(self) -> Pins:
        """All pins. Raises `CompileError`."""
        try:
            return pins_of(written_pins(self.file, self.overrides))
        except CompileError as error:
            raise as_usage_error(error) from None

    @cached_property
    def own_settings(self) -> dict[str, str]:
        """The value of each choice that the program has itself."""
        config = resolve(self.file, replace(self.overrides, parallel=spell(ONE_DIE))).config
        return {choice.key: str(getattr(config, choice.key)) for choice in CHOICES}

    def own(self, strategy: Strategy) -> Plan:
        """The plan of a strategy with the settings that the program has."""
        return plan_of(strategy, list(self.own_settings.values()))

    def saved(self) -> dict[str, int]:
        """The bytes that the forward pass of one sequence more saves for the backward one, by what is recomputed."""
        return {r: self._saved(2, r) - self._saved(1, r) for r in RECOMPUTE}

    def _saved(self, sequences: int, recompute: str) -> int:
        n = str(sequences)
        settings = (("microbatch", n), ("batch", n), ("interleave", "1"), ("recompute", recompute))
        module = Differentiate().run(self.graph(Plan(ONE_DIE, settings)))
        sizes = array_bytes(module)
        return sum(sizes[a.name] for a in module.arrays if a.kind in (Kind.RESIDUAL, Kind.CARRIED))

    def microbatches(self, plan: Plan) -> int:
        """The micro-batches of a step, where they are whole."""
        return -(-self._batch // (dies_of(replicas_of(plan.strategy)) * int(plan["microbatch"])))

    @cached_property
    def _batch(self) -> int:
        return resolve(self.file, replace(self.overrides, parallel=spell(ONE_DIE))).config.batch

    def differentiated(self, plan: Plan, rounds: int = 1) -> Module:
        """The training step under a plan, of few micro-batches: those that fill the pipeline so often, and two if there
        are. Plans with the same replicas and settings share all but the axes. Raises `CompileError`."""
        few = min(self.microbatches(plan), max(2, rounds * stages_of(plan.strategy)))
        batch = few * dies_of(replicas_of(plan.strategy)) * int(plan["microbatch"])
        shared = Plan(replicas_of(plan.strategy), (*plan.settings, ("batch", str(batch or self._batch))))
        if shared not in self._differentiated:
            self._differentiated[shared] = Differentiate().run(self.graph(shared))
        return self._differentiated[shared].with_(axes=plan.strategy)

    @cached_property
    def _differentiated(self) -> dict[Plan, Module]:
        return {}

    def sharded(self, plan: Plan, last: type[Pass] | None = None, rounds: int = 1) -> Module:
        """The sharded module of a plan, of few micro-batches; behind the pass `last`. Raises `CompileError`, also
        where inputs have pads for degrees that nobody asked for: there are enough that divide."""
        module = self.differentiated(plan, rounds)
        for p in (self.sharding.until(last) if last else self.sharding).passes:
            made = p.run(module)
            if p.name == Pad.name:
                self._refuse_pads(plan, made)
            if p.name != HoistCasts.name or needed_bytes(made) <= capacity(module.die):
                module = made  # without compute copies where the program will not fit with them, as `Pipeline` has it
        return module

    def _refuse_pads(self, plan: Plan, padded: Module) -> None:
        asked_for = {*self.pins.degrees.items(), *(self.given or ())}
        has_pads = any(a.kind is Kind.INPUT and a.unpadded for a in padded.arrays)
        if has_pads and not asked_for.issuperset(plan.strategy):
            message = f"`{spell(plan.strategy)}` divides sequences with pads alone, and is no pin"
            raise fail(Code.DEGREE, message)

    @cached_property
    def sharding(self) -> Pipeline:
        """The passes behind `differentiate` and before `place`."""
        return Pipeline.default(LEVEL, self.choices).after(Differentiate).before(Place)


def estimated(problem: Problem, plan: Plan) -> float | Refused:
    """The estimate of the seconds of a step, from the sharded module."""
    rounds = (1,) if stages_of(plan.strategy) == 1 else _FULL
    try:
        modules = [problem.sharded(plan, rounds=n) for n in rounds]
    except CompileError as error:
        return refused(error)
    needed = max(map(peak_array_bytes, modules))
    return too_large(modules[0].die, needed) or estimate(modules, problem.microbatches(plan))


def compiled(problem: Problem, plan: Plan) -> Compiled | Refused:
    """The program of a plan, as `--parallel` and `--set` would make it."""
    try:
        graph = problem.graph(plan)
        artifact, planned = program_of(graph, LEVEL, choices=problem.choices)
        ticks = least_ticks(builder_of(artifact, problem.link_model, wafer=planned.machine))
    except CompileError as error:
        return refused(error)
    return Compiled(plan, artifact, planned.machine, ticks / SECOND, memory_report(planned).peak)


def simulated(problem: Problem, program: Compiled) -> Figures:
    """The figures of one simulated step of a program."""
    figures = simulate(program.artifact, problem.link_model, wafer=program.wafer).figures()
    time = figures.time
    shares = {
        "compute": time["model"] + time["slow_dies"] + time["extra_flops"] + time["tile_rounding"],
        "hbm": time["hbm"],
        "links": sum(time["exposed"].values()),
        "bubble": time["bubble"] + time["idle"] + time["delayed"],
        "unused_dies": time["unused_dies"],
    }
    return Figures(figures.step_seconds, figures.mfu, shares)


def too_large(die: Die, needed: int) -> Refused | None:
    """The refusal of a plan whose stored arrays alone need more than the capacity of a die, in bytes."""
    if needed <= capacity(die):
        return None
    message = f"what rests on each die needs {format_bytes(needed)} of {format_bytes(capacity(die))}"
    return Refused(Code.OUT_OF_MEMORY, message, needed)


def capacity(die: Die) -> int:
    """The bytes of the memory of a die."""
    return die.sram + die.hbm


def refused(error: CompileError) -> Refused:
    """The refusal for the first mistake of an error."""
    first = error.diagnostics[0]
    return Refused(first.code, first.message)
