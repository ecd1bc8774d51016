"""Compilation of a `.wsl` file: front end, passes, emission and report give an artifact and the modules behind it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wscc.analysis.flops import hidden_model_flops, model_flops
from wscc.analysis.link_loads import phase_loads, procedure_loads, traffic_bytes
from wscc.backends.artifact.files import Artifact
from wscc.backends.artifact.graph_checks import graph_module
from wscc.backends.emit import emit
from wscc.backends.emit.profile import profile_of
from wscc.diagnostics import NO_SPAN, CompileError, Label, Source, Span
from wscc.driver.edges import prepared, with_edges
from wscc.driver.graph_report import graph_report
from wscc.driver.pads import pads_report
from wscc.driver.pipeline import Insertion, Observer, Pipeline, Timings, check
from wscc.driver.proposals import Trials, proposing
from wscc.driver.report import Loads, build_report, circuits_report
from wscc.files import read_source
from wscc.frontend.elaborate import elaborate
from wscc.frontend.overrides import NO_OVERRIDES, Overrides
from wscc.frontend.parse import parse
from wscc.frontend.resolve import resolve
from wscc.host.data_file import read_data
from wscc.ir.module import Module
from wscc.ir.text.call_order import to_call_order_text
from wscc.ir.text.print import to_text
from wscc.passes.choices import DEFAULT, Choices
from wscc.passes.hoist_casts import HoistCasts
from wscc.passes.partition import Partition
from wscc.passes.place import placement
from wscc.passes.schedule import Schedule
from wscc.passes.stages import Stages
from wscc.passes.stages.cut import layer_cut
from wscc.passes.stages.default_order import call_order
from wscc.passes.stagger import Stagger


@dataclass(frozen=True, eq=False)
class Compiled:
    """A program ready to run or to be written; `modules` are those after each pass, by its name."""

    graph: Module
    modules: dict[str, Module]
    artifact: Artifact

    @property
    def report(self) -> dict[str, Any]:
        return self.artifact.report


def load(path: str, overrides: Overrides = NO_OVERRIDES) -> Module:
    """The forward module of a `.wsl` file. Raises `CompileError` (`UsageError` for a malformed override)."""
    graph = elaborate(resolve(parse(read_source(path)), overrides))
    return with_edges(graph, _data(path, graph))


def compile_file(
    path: str, overrides: Overrides = NO_OVERRIDES, level: int = 2, *, choices: Choices = DEFAULT,
    observe: Observer = lambda name, module: None, insertions: Sequence[Insertion] = (),
) -> Compiled:  # fmt: skip
    """The compiled program of a `.wsl` file, at optimisation level 0 to 3, without a search.

    Its data file is looked for beside it and copied into the artifact. Raises `CompileError` with the mistakes of the
    program, W002 for a file that cannot be read.
    """
    return compile_source(
        read_source(path), overrides, level, choices=choices, observe=observe, insertions=insertions
    )


def compile_source(
    source: Source, overrides: Overrides = NO_OVERRIDES, level: int = 2, *, choices: Choices = DEFAULT,
    observe: Observer = lambda name, module: None, insertions: Sequence[Insertion] = (),
) -> Compiled:  # fmt: skip
    """The compiled program of a text in the language; the name of the source is its path. Raises as `compile_file`."""
    file = parse(source)
    with proposing(Trials(file, overrides, level, choices, insertions)):
        resolved = resolve(file, overrides)
        graph = elaborate(resolved)
        graph, data = prepared(graph, _data(source.name, graph))
        with placing_errors(resolved.config.strategy_span):
            return compile_graph(
                graph, level, choices=choices, data=data, file=Path(source.name).name,
                observe=observe, insertions=insertions,
            )  # fmt: skip


def call_order_text(path: str, overrides: Overrides = NO_OVERRIDES, choices: Choices = DEFAULT) -> str:
    """The call order of a `.wsl` file as a table that `Choices.call_order` takes back. Raises as `compile_file`."""
    file = parse(read_source(path))
    with proposing(Trials(file, overrides, choices=choices)):
        resolved = resolve(file, overrides)
        graph = elaborate(resolved)
        with placing_errors(resolved.config.strategy_span):
            sharded = Pipeline.default(2, choices).before(Stages).run(graph)
            order = call_order(sharded)
    strategy = " ".join(f"{a}={n}" for a, n in graph.axes) or "one die"
    title = f"{graph.name}, {strategy}: the calls of a step, {graph.train.microbatches} micro-batches"
    return to_call_order_text(order, title)


def graph_of(artifact: Artifact) -> Module:
    """The forward module that an artifact was compiled from. Raises `CompileError` where its text is damaged."""
    return with_edges(graph_module(artifact.graph), artifact.data)


@contextmanager
def placing_errors(span: Span) -> Iterator[None]:
    """Give an error the place of the strategy where a pass named none: wafer, memory and degrees are its choice."""
    try:
        yield
    except CompileError as error:
        raise CompileError(
            *(
                replace(d, label=Label(span))
                if d.code[:2] in ("W2", "W3", "W4") and d.label.span == NO_SPAN
                else d
                for d in error.diagnostics
            )
        ) from error


def compile_graph(
    graph: Module, level: int = 2, *, choices: Choices = DEFAULT, data: bytes | None = None, file: str = "",
    observe: Observer = lambda name, module: None, insertions: Sequence[Insertion] = (),
) -> Compiled:  # fmt: skip
    """The compiled program of a forward module; `data` are the bytes of its data file, `file` is the name of the file
    that it was read from. Raises as `compile_file`."""
    timings = Timings()
    modules: dict[str, Module] = {}
    graph = graph if graph.contents else with_edges(graph, data)

    def record(name: str, module: Module) -> None:
        modules[name] = module
        observe(name, module)

    check(graph, "elaborate")
    pipeline = Pipeline.default(level, choices).with_own(insertions)
    # Own passes are verified one by one; ours by the last module, which takes a quarter of the time.
    planned = pipeline.run(graph, observe=record, timings=timings, verify_each=bool(insertions))
    started = time.perf_counter()
    phases = phase_loads(modules["route"], bounds=True)
    loads = Loads(phases, procedure_loads(modules["route"], phases), traffic_bytes(modules["route"]))
    timings.passes["bounds"] = time.perf_counter() - started
    own = tuple(insertion.own.name for insertion in insertions)
    linked = _Linked(_on_set(graph, planned), modules, pipeline, choices, loads, timings, data, file, own)
    compiled = linked.compiled(planned)
    return _staggered(compiled, planned, linked, observe) if choices.stagger else compiled


def program_of(graph: Module, level: int = 2, *, choices: Choices = DEFAULT) -> tuple[Artifact, Module]:
    """The artifact of a forward module without its report, which takes as long as all else, and the last module: what a
    simulation needs. All dies start at once. Only the last module is verified: there are many such programs, and the
    one that is kept is compiled again."""
    modules: dict[str, Module] = {}
    graph = graph if graph.contents else with_edges(graph, None)
    check(graph, "elaborate")
    pipeline = Pipeline.default(level, choices)
    planned = pipeline.run(graph, observe=modules.__setitem__, verify_each=False)
    set_graph = _on_set(graph, planned)
    linked = _Linked(set_graph, modules, pipeline, choices, Loads((), (), 0), Timings(), None, "")
    return linked.artifact(planned), planned


def _on_set(graph: Module, planned: Module) -> Module:
    """The forward module, on the links that are up for its program where circuits set them."""
    return graph if graph.machine.circuits is None else graph.with_(machine=planned.machine)


@dataclass(frozen=True, eq=False)
class _Linked:
    """All that the artifact of a program with known routes needs besides its last modules."""

    graph: Module
    modules: dict[str, Module]
    pipeline: Pipeline
    choices: Choices
    loads: Loads
    timings: Timings
    data: bytes | None
    file: str
    own_passes: tuple[str, ...] = ()

    def artifact(self, planned: Module) -> Artifact:
        """The artifact of a planned module, without a report."""
        streams, manifest = emit(planned)
        flops = model_flops(self.graph) - hidden_model_flops(self.graph, self.modules[Partition.name])
        profile = profile_of(self.graph, self.modules["place"], planned, streams, flops, self.file)
        return Artifact(
            streams,
            manifest,
            to_text(self.graph),
            self.data,
            profile=profile,
            call_order=self._call_order,
            own_passes=self.own_passes,
            edges=planned.contents,
        )

    @property
    def _call_order(self) -> str:
        """The text of the call order, where it asks for another step than would be made without it."""
        order = self.choices.call_order
        if order is None or Stages().run(self.modules[Partition.name]) == self.modules[Stages.name]:
            return ""
        return order.text

    def compiled(self, planned: Module) -> Compiled:
        started = time.perf_counter()
        artifact = self.artifact(planned)
        self.timings.passes["emit"] = time.perf_counter() - started
        place = placement(self.modules["place"], self.choices.mapper)
        report = build_report(
            self.graph, self._sharded, planned, place, self.loads, artifact.streams, self.timings,
            cut=layer_cut(self.modules[Partition.name]), hoisting=HoistCasts.name in self.modules,
            pads=pads_report(self.graph, self.modules[Partition.name]),
        )  # fmt: skip
        report |= {"circuits": links} if (links := circuits_report(planned.machine)) else {}
        report |= {"graph": about} if (about := graph_report(self.graph, self.data)) else {}
        return Compiled(self.graph, self.modules, replace(artifact, report=report))

    def delayed(self, keep: tuple[int, ...]) -> Module:
        """The planned module with the delays of these numbers."""
        routed, scheduled = self.modules["route"], self.modules["schedule"]
        late = Stagger("+".join(map(str, keep))).run(routed)
        added = late.procedures[len(routed.procedures) :]
        scheduled = scheduled.with_(step=late.step, procedures=(*scheduled.procedures, *added))
        return self.pipeline.after(Schedule).run(scheduled)

    @property
    def _sharded(self) -> Module:
        return self.modules.get("fuse", self.modules["partition"])


def _staggered(compiled: Compiled, planned: Module, linked: _Linked, observe: Observer) -> Compiled:
    """The program with the delays that make its simulated step shorter; its report says what they do."""
    # Imported here: it simulates, which others do without.
    from wscc.driver.stagger import choose

    started = time.perf_counter()
    routed = compiled.modules["route"]
    candidates = len(Stagger().run(routed).procedures) - len(routed.procedures)
    outcome = choose(
        compiled.artifact,
        linked.choices.stagger,
        candidates,
        lambda keep: linked.artifact(linked.delayed(keep)),
    )
    if outcome.chosen:
        planned = linked.delayed(outcome.chosen)
    linked.timings.passes[Stagger.name] = time.perf_counter() - started
    linked.modules[Stagger.name] = planned
    observe(Stagger.name, planned)
    result = linked.compiled(planned) if outcome.chosen else compiled
    report = result.report | {"stagger": outcome.report(), "compile_seconds": linked.timings.report()}
    return replace(result, artifact=replace(result.artifact, report=report))


def _data(path: str, graph: Module) -> bytes | None:
    """The bytes of the data file, if the program names one."""
    if not graph.train.data:
        return None
    return read_data(Path(path).parent / graph.train.data).content
