"""From a `.wsl` file to a compiled program: front end, passes, emission and report in one place."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wscc.backends.emit import emit
from wscc.backends.emit_files import Artifact
from wscc.backends.emit_profile import profile_of
from wscc.diagnostics import NO_SPAN, CompileError, Label, Span
from wscc.frontend.elaborate import elaborate
from wscc.frontend.overrides import NO_OVERRIDES, Overrides
from wscc.frontend.parse import parse
from wscc.frontend.resolve import resolve
from wscc.frontend.scan import read_source
from wscc.host.data import read_text
from wscc.ir.fabric import Transfer
from wscc.ir.module import Module, calls
from wscc.ir.print import to_text
from wscc.passes.choices import DEFAULT, Choices
from wscc.passes.place import placement
from wscc.passes.route_loads import link_bytes, phase_loads, procedure_loads
from wscc.pipeline import Observer, Timings, compile_module
from wscc.report import Loads, build_report, hidden_model_flops, model_flops


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
    return elaborate(resolve(parse(read_source(path)), overrides))


def compile_file(
    path: str,
    overrides: Overrides = NO_OVERRIDES,
    level: int = 2,
    *,
    choices: Choices = DEFAULT,
    observe: Observer = lambda name, module: None,
) -> Compiled:
    """Compile a `.wsl` file. Its data file is looked for beside it and copied into the artifact."""
    resolved = resolve(parse(read_source(path)), overrides)
    graph = elaborate(resolved)
    try:
        return compile_graph(
            graph, level, choices=choices, data=_data(path, graph), file=Path(path).name, observe=observe
        )
    except CompileError as error:
        raise at_strategy(error, resolved.config.strategy_span) from error


def at_strategy(error: CompileError, span: Span) -> CompileError:
    """What passes refuse without a place of its own is the fault of the strategy: of wafer, memory or degrees."""
    return CompileError(
        *(
            replace(d, label=Label(span))
            if d.code[:2] in ("W2", "W3", "W4") and d.label.span == NO_SPAN
            else d
            for d in error.diagnostics
        )
    )


def compile_graph(
    graph: Module, level: int = 2, *, choices: Choices = DEFAULT, data: bytes | None = None, file: str = "",
    observe: Observer = lambda name, module: None,
) -> Compiled:  # fmt: skip
    """Compile a forward module; `file` is the name of the file that it was read from."""
    timings = Timings()
    modules: dict[str, Module] = {}

    def keep(name: str, module: Module) -> None:
        modules[name] = module
        observe(name, module)

    planned = compile_module(graph, level, choices=choices, observe=keep, timings=timings)
    started = time.perf_counter()
    streams, manifest = emit(planned)
    timings.passes["emit"] = time.perf_counter() - started
    started = time.perf_counter()
    phases = phase_loads(modules["route"], bounds=True)
    loads = Loads(phases, procedure_loads(modules["route"], phases), traffic_bytes(modules["route"]))
    timings.passes["bounds"] = time.perf_counter() - started
    sharded = modules.get("fuse", modules["partition"])
    report = build_report(
        graph,
        sharded,
        planned,
        placement(modules["place"], choices.mapper),
        loads,
        streams,
        timings,
    )
    flops = model_flops(graph) - hidden_model_flops(sharded)
    profile = profile_of(graph, modules["place"], modules["route"], planned, streams, flops, file)
    return Compiled(graph, modules, Artifact(streams, manifest, to_text(graph), data, report, profile))


def traffic_bytes(routed: Module) -> int:
    """Bytes x links of one step."""
    each = routed.dies_used // routed.stages
    total = 0
    for stage, step in enumerate(routed.steps()):
        own = range(stage * each, (stage + 1) * each)
        for call, times in calls(step):
            transfers = [s for s in routed.procedure(call.procedure).body if isinstance(s, Transfer)]
            if transfers:
                total += times * sum(link_bytes(routed, transfers, own).values())
    return total


def _data(path: str, graph: Module) -> bytes | None:
    """The bytes of the data file, if the program names one."""
    if not graph.train.data:
        return None
    return read_text(Path(path).parent / graph.train.data).tobytes()
