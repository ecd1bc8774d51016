"""Compiled programs: `compile` makes one, `load` reads one, and its methods run, simulate, verify and draw it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wscc.api.arguments import one_of, refuse, whole
from wscc.api.request import ALLGATHER, MAPPER, Degrees, Model, Request, Values, link_model_of, request
from wscc.api.results import PassModule, Picture, Placement, Run, Simulation, Verification
from wscc.driver.compile import Compiled, compile_source, graph_of
from wscc.driver.pipeline import Insertion, Observer
from wscc.driver.types import DEFAULT, Artifact, write_artifact
from wscc.host.data_file import DataFile, read_data
from wscc.ir.module import Module
from wscc.machine.links import CUT_THROUGH
from wscc.machine.wafer import Wafer as Machine

# What runs, simulates, verifies, draws and searches is imported by the function that asks for it: each is as large as
# all that compiles.
if TYPE_CHECKING:
    from wscc.driver.train import OnStep
    from wscc.host.rows import Data

SEARCHED = 3  # the level at which the strategy may be left open
SEMANTICS = {
    True: "run in f64, equal to one device",
    False: "too large to run here; every instruction is what the passes make of its graph",
}
StrPath = str | os.PathLike[str]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """A compiled program: one instruction stream per die, with the model that it comes from.

    `artifact` is all that runs; `passes` are the modules after each pass by its name, `compiled_from` is the forward
    module: none for one that was loaded.
    """

    artifact: Artifact
    passes: Mapping[str, Module]
    compiled_from: Module | None = None

    @cached_property
    def graph(self) -> Module:
        """The forward module: the model on one device."""
        return self.compiled_from or graph_of(self.artifact)

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.graph.name

    @property
    def strategy(self) -> dict[str, int]:
        """Degrees of the axes that are more than 1, in the order of the logical mesh."""
        return dict(self.graph.axes)

    @property
    def wafer(self) -> Machine:
        """The wafer: mesh, dies, links (SI units) and damage."""
        return self.graph.machine

    @property
    def report(self) -> Mapping[str, Any]:
        """The report of the compilation, as in report.json: cost, storage, placement; in bytes and seconds."""
        return MappingProxyType(self.artifact.report)

    @cached_property
    def modules(self) -> Mapping[str, PassModule]:
        """The module after each pass by its name, `graph` first; `print` shows the IR. A loaded program has `graph`
        alone."""
        by_name = {"graph": self.graph, **self.passes}
        return MappingProxyType({name: PassModule(name, module) for name, module in by_name.items()})

    @cached_property
    def placement(self) -> Placement:
        """Where the dies lie on the wafer; a notebook shows the map."""
        places = tuple(self.wafer.coordinate(die) for die in self.artifact.streams.dies)
        return Placement(self.graph.axes, places, self.draw("wafer"))

    def save(self, folder: StrPath) -> None:
        """Write the artifact, which `load` and the command line read.

        Raises `CompileError` W501 where something else is there or the folder cannot be written.
        """
        write_artifact(Path(folder), self.artifact)

    def run(
        self, steps: int = 1, *, weights: StrPath | Mapping[str, NDArray[Any]] | None = None,
        data: StrPath | bytes | NDArray[Any] | Mapping[str, NDArray[Any]] | None = None, seed: int | None = None,
        processes: int = 2, check: bool = False, save: StrPath | None = None, arrays: bool = True,
        validate_every: int = 0, on_step: OnStep = lambda step, loss: None,
        on_validation: OnStep = lambda step, loss: None,
    ) -> Run:  # fmt: skip
        """The outcome of training for `steps` steps with real numbers: losses, weights and gradients.

        `weights` to start from: a .safetensors file, or arrays by the name of the parameter, layers stacked in front;
        from a folder that `save` wrote into, with optimizer state, training goes on bit for bit.
        `data` in place of the program's: the path of a text, `.npz` or `.safetensors`, the bytes of a text, an array of
        tokens `[n]`, or arrays `[rows, *positions]` by the name of the input. Rows that `validation` holds out are
        looked at after the last step, with `validate_every` also after every so many. `processes` run the dies, best
        one for each core. `check` runs in checked mode and compares with one device. In the end `save` writes
        the weights: to a file, if it ends in .safetensors, else into a folder, with optimizer state. `arrays=False`
        leaves weights and gradients out of the result.
        Raises `UsageError` W006 for arguments of the wrong kind, `CompileError` W503 for data and W505 for weights that
        do not fit, W002 for files that cannot be read or written, W506 where a process ends, and W507 after the first
        step that leaves a number that is not finite: then there is no result, and `save` is as it was.
        """
        from wscc.driver.train import RunOptions, run

        options = RunOptions(
            steps=whole("steps", steps, 1),
            threads=whole("processes", processes, 1, 64),
            data=_data(data),
            validate_every=whole("validate_every", validate_every, 0),
            seed=whole("seed", seed, 0) if seed is not None else None,
            weights=_weights(weights),
            save=Path(save) if save is not None else None,
            arrays=arrays,
        )
        outcome = run(self.artifact, options, check=check, on_step=on_step, on_validation=on_validation)
        return Run(
            np.array(outcome.losses, np.float64), outcome.weights, outcome.gradients, outcome.seconds_per_step,
            outcome.peak_bytes_per_die_max, outcome.data, outcome.validation, outcome.check, outcome.notes,
            outcome.experts,
        )  # fmt: skip

    def simulate(self, link_model: str = CUT_THROUGH, *, trace: bool = False) -> Simulation:
        """The time of a step on the wafer, in seconds, and where it goes. `trace` adds a trace for Perfetto.
        Raises `UsageError` W006 for an unknown link model, `CompileError` W501 for an artifact that does not fit
        itself, W502 if dies wait for one another."""
        from wscc.driver.simulate import alike_seconds, simulate

        model = link_model_of(link_model)
        simulated = simulate(self.artifact, model, tracing=trace)
        text, cut = simulated.trace.text() if simulated.trace else ("", "")
        alike = alike_seconds(self.artifact, model)
        return Simulation(simulated.figures(), simulated.hbm_traffic(), link_model, text, cut, alike)

    def static_mesh_seconds(self, link_model: str = CUT_THROUGH) -> float | None:
        """Where links are circuits, the seconds of a step on the static mesh with the same ports: all links are up,
        each with its share of the bandwidth. The model is compiled for it, at `-O2`. None without circuits, and where
        it does not compile."""
        from wscc.driver.static_mesh import static_mesh_seconds

        return static_mesh_seconds(self.artifact, link_model_of(link_model))

    def verify(self, *, semantics: bool = False) -> Verification:
        """The findings of a check without training: messages, waits, memory, routes. With `semantics`, also of a
        comparison of what it computes with its model.

        Mistakes are findings of the result. Raises `CompileError` W003 for `semantics` of a program that is too large
        to run here and was compiled with own passes: there is nothing to compare it with.
        """
        from wscc.driver.loaded import verify_program
        from wscc.equivalence import check_semantics

        verdict = verify_program(self.artifact)
        compared = check_semantics(self.artifact) if semantics and verdict.ok else None
        findings = (*verdict.findings, *(compared.findings if compared else ()))
        return Verification(
            findings, verdict.left_out, verdict.min_slot_depth, verdict.messages, verdict.instructions, verdict.calls,
            verdict.seconds, SEMANTICS[compared.ran] if compared else "",
        )  # fmt: skip

    def draw(self, what: str = "wafer") -> Picture:
        """A picture: `wafer` (where dies lie, and rings), `timeline` (what stages do when), `load` (what links carry).
        Raises `UsageError` W006 for another one."""
        from wscc.api.drawing import DRAWINGS

        one_of("what", what, list(DRAWINGS))
        return Picture(DRAWINGS[what](self.artifact))

    def __repr__(self) -> str:
        axes = " ".join(f"{a}={n}" for a, n in self.graph.axes) or "one die"
        return f"<{self.name} on {self.wafer.name}: {axes}, {len(self.artifact.streams.dies)} dies>"

    def _repr_svg_(self) -> str:
        return self.draw("wafer").svg


def compile(
    program: Model, overrides: Values | None = None, *, parallel: Degrees | None = None, dtype: str | None = None,
    dead: Sequence[str] = (), level: int = 2, mapper: str = MAPPER, routing: str = "", allgather: str = ALLGATHER,
    stagger: bool = False, call_order: StrPath | None = None, passes: Iterable[Insertion] = (), jobs: int | None = None,
    max_iter: int = DEFAULT.max_iter, enough: int = DEFAULT.enough,
) -> Program:  # fmt: skip
    """The compiled program of a `.wsl` file (its path), or of a `Train` that was built in Python.

    `overrides` change the program as `--set` does: `{"model.layers": 2, "wafer.mesh": "2x2"}`. `parallel` is the
    strategy, `"dp=2,tp=2"` or a dict; `dtype` is `f64`, `f32` or `bf16` for everything; `dead` has `"die:1,3"` and
    `"link:0,0-0,1"`. `level` is 0 (for debugging) to 3 (`parallel auto` is searched, with `jobs` processes, by default
    one for each core). `mapper`, `routing` (`xy`, `adaptive`), `allgather`, `stagger`, `max_iter` and `enough` are
    as on the command line; `call_order` is the file of a call order; `passes` are own passes, from `insert`.
    Raises `CompileError` with every mistake in the program, `UsageError` (one too) for a wrong argument.
    """
    inputs = request(
        program, overrides, parallel=parallel, dtype=dtype, dead=dead, mapper=mapper, routing=routing,
        allgather=allgather, stagger=stagger, call_order=call_order, passes=passes, max_iter=max_iter, enough=enough,
    )  # fmt: skip
    number = whole("level", level, 0, SEARCHED)
    return compiled(inputs, number, jobs=whole("jobs", jobs, 1, 64) if jobs is not None else cores())


def compiled(
    inputs: Request, level: int = 2, *, jobs: int = 1, observe: Observer = lambda name, module: None,
    progress: Progress = lambda words, done, of: None,
) -> Program:  # fmt: skip
    """The program of a request; `observe` sees the module after each pass. Raises as `compile`."""
    if level == SEARCHED:
        from wscc.search.optimise import compile_searched

        return _program(compile_searched(
            inputs.source, inputs.overrides, choices=inputs.choices, jobs=jobs, observe=observe, progress=progress,
            insertions=inputs.insertions,
        ))  # fmt: skip
    return _program(compile_source(
        inputs.source, inputs.overrides, level, choices=inputs.choices, observe=observe, insertions=inputs.insertions
    ))  # fmt: skip


def load(folder: StrPath) -> Program:
    """The program in an artifact folder.

    Raises `CompileError` W501 for one that is incomplete, changed or none, `UsageError` W006 for what is no path.
    """
    from wscc.driver.loaded import load_artifact

    if not isinstance(folder, str | os.PathLike):
        refuse(f"`folder` is a {type(folder).__name__}", "give the path of an artifact")
    return Program(load_artifact(Path(folder)), MappingProxyType({}))


def _program(result: Compiled) -> Program:
    return Program(result.artifact, MappingProxyType(dict(result.modules)), result.graph)


def cores() -> int:
    return os.cpu_count() or 1


def _data(data: StrPath | bytes | NDArray[Any] | Mapping[str, NDArray[Any]] | None) -> Data | None:
    if data is None:
        return None
    if isinstance(data, bytes):
        return DataFile("", data)
    if isinstance(data, str | os.PathLike):
        return read_data(Path(data))
    if isinstance(data, Mapping):
        return {_input_name(name): _array(name, array) for name, array in data.items()}
    tokens = np.asarray(data)
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        refuse(
            f"`data` is {tokens.dtype}{list(tokens.shape)}",
            "give a path, bytes, integers `[n]`, or a dict of arrays",
        )
    if tokens.size and int(tokens.min()) < 0:
        refuse("`data` has a negative token")
    return tokens


def _array(name: str, value: object) -> NDArray[Any]:
    try:
        return np.asarray(value)
    except (
        TypeError,
        ValueError,
        RuntimeError,
    ) as problem:  # rows of different lengths, tensors of other libraries
        refuse(f"`data[{name!r}]` is no array: {problem}", "give a NumPy array")


def _input_name(name: object) -> str:
    if not isinstance(name, str):
        refuse(f"`data` has the name {name!r}", "give arrays by the name of the input")
    return name


def _weights(source: StrPath | Mapping[str, NDArray[Any]] | None) -> Path | Mapping[str, NDArray[Any]] | None:
    if source is None or isinstance(source, Mapping):
        return source
    if not isinstance(source, str | os.PathLike):
        refuse(
            f"`weights` is a {type(source).__name__}",
            "give the path of a .safetensors file, or a dict of arrays",
        )
    return Path(source)
