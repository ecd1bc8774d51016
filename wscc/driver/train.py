"""Runs of a compiled program on its data, from given weights or fresh ones, and their comparison with one device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wscc.backends.artifact.files import Artifact
from wscc.backends.artifact.graph_checks import graph_module
from wscc.backends.interpreter import host_io
from wscc.backends.interpreter.machine import Machine
from wscc.diagnostics import Code, fail
from wscc.driver.check import Checker, StepResult
from wscc.driver.divergence import LOSS, Diverged, Watch
from wscc.driver.edges import with_edges
from wscc.driver.expert_load import ExpertLoad, loads
from wscc.driver.graph_types import graph_types, require_types
from wscc.driver.run_data import DataUse, LabelCount, require_validation, rows_of_run
from wscc.driver.state import Ready, is_folder, load_state, refuse_unsavable_folder, save_folder, weights_file
from wscc.host.data import Batch, Batches, counted
from wscc.host.init import initial
from wscc.host.inputs import inputs_of
from wscc.host.rows import Data
from wscc.host.verdict import Check
from wscc.host.weights import GivenWeights
from wscc.huggingface.checkpoint import refuse_unwritable
from wscc.huggingface.weights import Weights, refuse_unsavable, save
from wscc.ir.array import Array, Kind, Role
from wscc.ir.module import Module
from wscc.ir.streams.artifact import HostTensor
from wscc.reference.training import History, train

Tensors = dict[str, NDArray[Any]]
OnStep = Callable[[int, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Settings of a run: so many `steps` of training, by `threads` processes that run the dies.

    `data` replaces the program's own; `seed` that of the file. `weights` (a file, or arrays by the name of the
    parameter) is read before the first step and `save` written after the last, optimizer state apart. Rows that are
    held out are looked at after every `validate_every` steps (0: none) and after the last. With `arrays` the outcome
    has weights and gradients.
    """

    steps: int = 1
    threads: int = 2
    checked: bool = False
    data: Data | None = None
    validate_every: int = 0
    seed: int | None = None
    weights: Path | Mapping[str, NDArray[Any]] | None = None
    save: Path | None = None
    arrays: bool = False


class Trainer:
    """A program loaded on all dies, initialised, stepping through batches."""

    def __init__(self, artifact: Artifact, options: RunOptions) -> None:
        self.options = options
        self.manifest = artifact.manifest
        self.graph = with_edges(graph_module(artifact.graph), artifact.data)
        self.parameters = _parameters(self.graph)
        if options.save:
            refuse_unsavable(self.parameters, self.graph.name)
            refuse = refuse_unsavable_folder if is_folder(options.save) else refuse_unwritable
            refuse(options.save)
        self.weights = _weights(options.weights, self.parameters, self.graph.name)
        seed = options.seed if options.seed is not None else self.manifest.train.seed
        inputs = inputs_of(self.graph)
        rows = rows_of_run(artifact, tuple(i for i in inputs if not i.is_key), options.data, self.graph)
        self.batches = Batches(inputs, seed, rows)
        self.labels = LabelCount()
        if options.validate_every:
            require_validation(self.batches.rows)
        require_types(artifact)
        types = graph_types(artifact) if options.checked else None
        self.machine = Machine(artifact.streams, artifact.manifest, options.threads, options.checked, types)
        self.watch = Watch(self.machine, self.graph)
        self.seed, self.done = seed, 0
        host_io.initialise(self.machine, seed)
        host_io.write_edges(self.machine, artifact.edges)
        for a in self.parameters if self.weights else ():
            for index in np.ndindex(*a.extents):
                host_io.write(self.machine, a.name, index, self.first_weight(a, index))
        if isinstance(options.weights, Path):
            self.done = load_state(options.weights, self.machine)
        self.start = self.done

    def first_weight(self, a: Array, index: tuple[int, ...]) -> NDArray[Any]:
        """Element `index` of a parameter before the first step, in its own type."""
        if self.weights is None:
            return _seeded(a, index, self.seed)
        return self.weights.read(a.name, index, a.type.dtype.numpy)

    def save(self, path: Path) -> None:
        """Write the weights as they are now, in their own type; into a folder, optimizer state too."""
        if is_folder(path):
            save_folder(path, self.machine, self._save_weights)
        else:
            self._save_weights(path)

    def _save_weights(self, path: Path, ready: Ready = lambda new: None) -> None:
        save(path, self.parameters, partial(host_io.read, self.machine), self.graph.name, ready)

    def steps(self) -> Iterator[float]:
        """The losses, each as its step is done. Raises W507 after a step that leaves a number that is not finite."""
        for i in range(self.start, self.start + self.options.steps):
            batch = self.batches.batch(i)
            self.labels.add(batch)
            loss = self._step(batch, partial(self.watch.check, i + 1))
            self.done = i + 1
            yield loss

    def _step(self, batch: Batch, check: Callable[[], None]) -> float:
        """The loss of a batch, with the weights before the step, which the step then changes; `check` looks at them
        before it is read."""
        host_io.write_inputs(self.machine, batch)
        self.machine.run_step()
        check()
        return float(host_io.read(self.machine, LOSS))

    def validates_after(self, steps: int) -> bool:
        """Whether the rows that are held out are looked at when so many steps are done."""
        every, rows = self.options.validate_every, self.batches.rows
        is_due = steps == self.start + self.options.steps or (every > 0 and steps % every == 0)
        return is_due and rows is not None and rows.held_out.size > 0

    def validation_loss(self) -> float:
        """The mean over all counted labels of the rows that are held out, with the weights as they are now.

        The program's own steps compute it, and what they change is put back: later steps are the same bit for bit.
        Raises W507 if a loss is not finite.
        """
        kept = host_io.Snapshot(self.machine)
        total, labels = 0.0, 0
        for batch in self.batches.validation():
            total += self._step(batch, partial(self.watch.check_validation, self.done)) * counted(batch)
            labels += counted(batch)
            kept.restore()
        return total / labels

    def arrays(self, kind: Kind) -> Tensors:
        """All arrays of a kind as whole tensors; replicas are compared bit for bit on the way."""
        own = (t for t in self.manifest.tensors if t.kind is kind and not t.is_a(Role.PARTIAL))
        return {t.name: self._whole(t) for t in own}

    def gradients(self) -> Tensors:
        """The gradients of the last step as whole tensors, by the name of their parameter."""
        named = {name: parameter for parameter, name in self.manifest.related(Role.GRADIENT).items()}
        return {named[name]: whole for name, whole in self.arrays(Kind.GRAD).items()}

    def moments(self) -> dict[str, tuple[NDArray[Any], ...]]:
        """The moments of each weight, in the order of the optimizer, by the name of the parameter."""
        found: dict[str, tuple[NDArray[Any], ...]] = {}
        for t in self.manifest.tensors:
            if t.relation and t.is_a(Role.MOMENT):
                name = t.relation.array
                found[name] = (*found.get(name, ()), self._whole(t))
        return found

    def result(self, loss: float) -> StepResult:
        """All that the dies hold after a step with this loss."""
        return StepResult(loss, self.gradients(), self.arrays(Kind.PARAM), self.moments())

    def checker(self) -> Checker:
        """What judges the steps from the first on."""
        return Checker(self.graph, _stacked(self.parameters, self.first_weight))

    def _whole(self, t: HostTensor) -> NDArray[Any]:
        whole = np.empty((*t.extents, *t.shape), t.type.dtype.numpy)
        for index in np.ndindex(*t.extents):
            whole[index] = host_io.read(self.machine, t.name, index)
        return whole


def _weights(
    source: Path | Mapping[str, NDArray[Any]] | None, parameters: tuple[Array, ...], model: str
) -> Weights | GivenWeights | None:
    if source is None:
        return None
    return (
        Weights(weights_file(source), parameters, model)
        if isinstance(source, Path)
        else GivenWeights(source, parameters)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a run: losses by step, those of validation by the number of steps before them and, with
    `RunOptions.arrays`, the weights after the last step and the gradients of the first, before clipping, by the name
    of the parameter, `[*extents, *shape]`.
    `experts`: the load of each router of each step. `notes` say what of a file of weights was left out."""

    losses: tuple[float, ...]
    data: DataUse
    validation: dict[int, float]
    seconds_per_step: float
    peak_bytes_per_die_max: int
    check: Check | None = None
    weights: Tensors = field(default_factory=dict)
    gradients: Tensors = field(default_factory=dict)
    experts: tuple[ExpertLoad, ...] = ()
    notes: tuple[str, ...] = ()


@np.errstate(all="ignore")  # numbers that are not finite are named by `Watch`, not by warnings of NumPy
def run(
    artifact: Artifact, options: RunOptions, *, check: bool = False,
    on_step: OnStep = lambda step, loss: None, on_validation: OnStep = lambda step, loss: None,
) -> Outcome:  # fmt: skip
    """The outcome of training; with `check`, in checked mode and compared with the reference.

    `on_step` sees each step, counted from 1, with its loss, `on_validation` the loss of the rows held out. Raises
    `CompileError` W503 for data and W505 for weights that do not fit, W002 for files that cannot be read or written,
    W507 where training diverges.
    """
    trainer = Trainer(artifact, replace(options, checked=options.checked or check))
    with closing(trainer.machine):
        return _run(trainer, check, on_step, on_validation)


def _run(trainer: Trainer, check: bool, on_step: OnStep, on_validation: OnStep) -> Outcome:
    losses: list[float] = []
    validation: dict[int, float] = {}
    grads: Tensors = {}
    experts: list[ExpertLoad] = []
    with_arrays = trainer.options.arrays
    if check and trainer.start:
        raise fail(
            Code.WEIGHTS, f"the reference of `--check` begins at step 1, and the folder at step {trainer.start + 1}",
            help="give the file of weights in it: then both begin with these and without optimizer state",
        )  # fmt: skip
    checker = trainer.checker() if check else None
    seconds, started = 0.0, time.perf_counter()
    try:
        for i, loss in enumerate(trainer.steps(), trainer.start):
            seconds += time.perf_counter() - started
            losses.append(loss)
            experts += loads(i + 1, trainer.arrays(Kind.STATISTIC))
            on_step(i + 1, loss)
            if with_arrays and i == trainer.start:
                grads = trainer.gradients()
            if checker:
                checker.step(trainer.batches.batch(i), trainer.result(loss))
            if trainer.validates_after(i + 1):
                validation[i + 1] = trainer.validation_loss()
                on_validation(i + 1, validation[i + 1])
            started = time.perf_counter()
    except Diverged as error:
        if not check:
            raise
        raise error.beside(partial(_reference, trainer, len(losses) + 1)) from None
    if trainer.options.save:
        trainer.save(trainer.options.save)
    peak = max(trainer.machine.peak_bytes(), default=0)
    return Outcome(
        losses=tuple(losses), data=DataUse.of(trainer.batches.rows, trainer.labels), validation=validation,
        seconds_per_step=seconds / max(len(losses), 1), peak_bytes_per_die_max=peak, 
        check=checker.check() if checker else None,
        weights=trainer.arrays(Kind.PARAM) if with_arrays else {}, gradients=grads,
        experts=tuple(experts),
        notes=trainer.weights.notes if isinstance(trainer.weights, Weights) else (),
    )  # fmt: skip


def _reference(trainer: Trainer, steps: int) -> History:
    """A whole run of one device, in the types of the file."""
    first = _stacked(trainer.parameters, trainer.first_weight)
    return train(trainer.graph, first, trainer.batches.batch, steps)


def initial_parameters(graph: Module, seed: int) -> Tensors:
    """Every parameter as the host initialises it: by name, `[*extents, *shape]`."""
    return _stacked(_parameters(graph), lambda a, index: _seeded(a, index, seed))


def _parameters(graph: Module) -> tuple[Array, ...]:
    return tuple(a for a in graph.arrays if a.kind is Kind.PARAM)


def _seeded(a: Array, index: tuple[int, ...], seed: int) -> NDArray[Any]:
    return initial(a.name, index, a.type.shape, a.init, seed, a.type.dtype)


def _stacked(arrays: Iterable[Array], element: Callable[[Array, tuple[int, ...]], NDArray[Any]]) -> Tensors:
    """Whole tensors by name, put together from their elements."""
    out: Tensors = {}
    for a in arrays:
        whole = np.empty((*a.extents, *a.type.shape), a.type.dtype.numpy)
        for index in np.ndindex(a.extents):
            whole[index] = element(a, index)
        out[a.name] = whole
    return out
