"""Compilation of a program on many damaged wafers: the share that compiles, and the throughput that is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import prod
from statistics import median
from typing import Final

from wscc.analysis.cost import Rates
from wscc.analysis.flops import computed_flops
from wscc.analysis.link_loads import phase_loads
from wscc.analysis.op_axes import working_axes
from wscc.diagnostics import Code, CompileError, Diagnostic
from wscc.driver.edges import with_edges_of
from wscc.driver.pipeline import Pipeline, check
from wscc.faults.patterns import CORES, KINDS, damaged
from wscc.frontend import ast
from wscc.frontend.elaborate import elaborate
from wscc.frontend.overrides import Overrides
from wscc.frontend.resolve import resolve
from wscc.ir.module import Module
from wscc.ir.op import Op
from wscc.ir.step import calls
from wscc.machine.topology import mesh_topology
from wscc.machine.wafer import Wafer
from wscc.passes.choices import DEFAULT, Choices
from wscc.passes.hoist_casts import HoistCasts
from wscc.passes.place import Place, placement
from wscc.passes.place.errors import spell
from wscc.passes.place.types import AxisSpec
from wscc.passes.route import Route
from wscc.strategy import Degrees, smaller

NO_DAMAGE: Final = "none"

# Smaller strategies that are tried on one wafer.
_MAX_TRIES = 16


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of compiling the program for one wafer: the seconds of a step under `strategy`, or the code of the
    refusal. `is_nearest`: the file's strategy needs more dies than are alive, and this is the nearest smaller one."""

    strategy: str
    is_nearest: bool = False
    seconds: float | None = None
    refusal: Code | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Results of all patterns of one rate and kind of damage, `dead` dies, links or cores each.

    `nearest` counts smaller strategies, `refused` codes; `throughputs` are those of the patterns that compile, as a
    share of that without damage, ascending.
    """

    rate: float
    kind: str
    dead: int
    patterns: int
    compiled: int
    nearest: dict[str, int]
    refused: dict[str, int]
    throughputs: list[float]

    @property
    def median(self) -> float | None:
        return median(self.throughputs) if self.throughputs else None

    @property
    def least(self) -> float | None:
        return self.throughputs[0] if self.throughputs else None

    @property
    def mean(self) -> float:
        """The mean throughput; 0 for a refused pattern."""
        return sum(self.throughputs) / self.patterns


@dataclass
class Study:
    """A study of one program. Its strategies are partitioned once; for each damaged wafer it is placed, lowered and
    routed."""

    file: ast.File
    overrides: Overrides
    level: int = 2
    choices: Choices = DEFAULT
    _sharded: dict[str, Module | CompileError] = field(default_factory=dict)
    _memory_refusals: dict[object, Code | None] = field(default_factory=dict)
    _outcomes: dict[Wafer, Outcome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        resolved = resolve(self.file, self.overrides)
        self.span = resolved.config.strategy_span
        self.graph = with_edges_of(elaborate(resolved), self.file)
        self.strategy = _words(self.graph.axes)

    @cached_property
    def whole(self) -> float:
        """Seconds of a step with no damage but the file's own. Raises `CompileError` if it does not compile."""
        sharded = self._sharded[self.strategy] = self._partitioned(self.graph)
        return self._seconds(sharded, self.graph.machine)

    def rows(
        self, rates: Sequence[float], seeds: int, done: Callable[[], None] = lambda: None
    ) -> Iterator[Row]:
        """A row for each rate and kind of damage (for rate 0, one row); `done` is called after every pattern."""
        seconds, machine = self.whole, self.graph.machine
        for rate in rates:
            for kind in KINDS if rate else (NO_DAMAGE,):
                wafers = [damaged(machine, kind, rate, seed) for seed in range(seeds if rate else 1)]
                outcomes = []
                for wafer in wafers:
                    outcomes.append(self.outcome(wafer))
                    done()
                yield _row(rate, kind, _dead(wafers[0]) - _dead(machine), outcomes, seconds)

    def outcome(self, wafer: Wafer) -> Outcome:
        """The outcome on one wafer, computed once."""
        outcome = self._outcomes.get(wafer)
        if outcome is None:
            outcome = self._outcomes[wafer] = self._outcome(wafer)
        return outcome

    def _outcome(self, wafer: Wafer) -> Outcome:
        if wafer.live_dies < self.graph.dies_used:
            return self._nearest(wafer)
        return self._try(self.strategy, wafer)

    def _nearest(self, wafer: Wafer) -> Outcome:
        """The outcome of the largest strategy that compiles of those with degrees that divide the file's.

        The first refusal if none of those strategy compiles."""
        tried = smaller(self.graph.axes, len(mesh_topology(wafer).islands[0]))
        first: Outcome | None = None
        for strategy in (*tried[:_MAX_TRIES], *tried[_MAX_TRIES:][-1:]):
            outcome = replace(self._try(_words(strategy), wafer), is_nearest=True)
            if outcome.refusal is None:
                return outcome
            first = first or outcome
        assert first is not None, "a strategy of one die is smaller than any other"
        return first

    def _try(self, strategy: str, wafer: Wafer) -> Outcome:
        if strategy not in self._sharded:
            parallel = strategy if "=" in strategy else f"{self.graph.axes[0][0]}=1"
            try:
                resolved = resolve(self.file, replace(self.overrides, parallel=parallel))
                graph = with_edges_of(elaborate(resolved), self.file)
                self._sharded[strategy] = self._partitioned(graph)
            except CompileError as error:
                self._sharded[strategy] = error
        sharded = self._sharded[strategy]
        try:
            if isinstance(sharded, CompileError):
                raise sharded
            return Outcome(strategy, seconds=self._seconds(sharded, wafer))
        except CompileError as error:
            return Outcome(strategy, refusal=error.diagnostics[0].code)

    # -- the passes, in three parts -----------------------------------------------------------------------

    @cached_property
    def _pipeline(self) -> Pipeline:
        """Without compute copies: a program that fits without them does."""
        return Pipeline.default(self.level, self.choices).without(HoistCasts)

    def _partitioned(self, graph: Module) -> Module:
        check(graph, "elaborate")
        return self._pipeline.before(Place).run(graph)

    def _seconds(self, sharded: Module, wafer: Wafer) -> float:
        placeable = sharded.with_(machine=wafer)
        routed = self._pipeline.since(Place).until(Route).run(placeable)
        self._check_memory(placeable, routed)
        return step_seconds(placeable, routed)

    def _check_memory(self, sharded: Module, routed: Module) -> None:
        """Plan the memory of one wafer for each strategy and placement of its groups, on which alone it depends.

        Raises `CompileError` if it does not fit."""
        groups = tuple((a.name, a.kind) for a in placement(sharded, self.choices.mapper).axes)
        key = (sharded.axes, groups)
        if key not in self._memory_refusals:
            self._memory_refusals[key] = None
            try:
                self._pipeline.after(Route).run(routed)
            except CompileError as error:
                self._memory_refusals[key] = error.diagnostics[0].code
                raise
        elif (code := self._memory_refusals[key]) is not None:
            raise CompileError(Diagnostic(code, "as on another wafer"))


def _counted(words: Iterable[str]) -> dict[str, int]:
    """Counts of words, the most frequent first, then by word."""
    counts = Counter(words)
    return {w: counts[w] for w in sorted(counts, key=lambda w: (-counts[w], w))}


def _words(axes: Degrees) -> str:
    return spell([AxisSpec(name, size) for name, size in axes])


def _dead(wafer: Wafer) -> int:
    """Dead dies and links, and the cores whose share of the peak is gone."""
    lost = sum(max(0, CORES - die.cores_of(wafer.die, CORES)) for _, die in wafer.unlike)
    return len(wafer.dead_dies) + len(wafer.dead_links) + lost


def _row(rate: float, kind: str, dead: int, outcomes: Sequence[Outcome], seconds: float) -> Row:
    compiled = [f for f in outcomes if f.seconds is not None]
    return Row(
        rate=rate,
        kind=kind,
        dead=dead,
        patterns=len(outcomes),
        compiled=len(compiled),
        nearest=_counted(f.strategy for f in compiled if f.is_nearest),
        refused=_counted(str(f.refusal) for f in outcomes if f.refusal is not None),
        throughputs=sorted(seconds / f.seconds for f in compiled if f.seconds is not None),
    )


MODEL: Final = (
    "load model: of each call, FLOPs per die over peak, plus bytes of the most loaded link of each phase over its "
    "bandwidth; nothing overlaps; the slowest stage sets the pace, (m v + p - 1) / (m v) for filling the pipeline"
)


def step_seconds(sharded: Module, routed: Module) -> float:
    """Seconds of a step by the load model `MODEL`, at the rates of the wafer; `sharded` is the module before `place`,
    `routed` after `route`. Left out are HBM, latency, queues, tiles that are not full, and all overlap."""
    rates, train = Rates.of(routed.machine, routed.die), routed.train
    link_bytes: dict[str, int] = {}
    for load in phase_loads(routed):
        procedure = load.name.rsplit("/", 1)[0]
        link_bytes[procedure] = link_bytes.get(procedure, 0) + load.max_link_bytes
    flops = {p.name: sum(_die_flops(op, sharded) for op in p.ops) for p in sharded.procedures}
    slowest = max(
        sum(
            times * (rates.die.compute(float(flops[c.procedure])) + rates.link.busy(link_bytes.get(c.procedure, 0)))
            for c, times in calls(step)
        )
        for step in routed.steps()
    )  # fmt: skip
    slots = train.microbatches * (train.interleave if routed.stages > 1 else 1)
    return slowest * (slots + routed.stages - 1) / slots


def _die_flops(op: Op, sharded: Module) -> Fraction:
    if not op.flops:
        return Fraction(0)
    return computed_flops(op, sharded) / prod(sharded.sizes[a] for a in working_axes(op))
