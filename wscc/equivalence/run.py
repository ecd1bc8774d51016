"""Comparison of a compiled program with the reference on one device, in f64 on random weights and data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from math import isfinite, sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from wscc.backends.artifact.files import Artifact
from wscc.backends.interpreter import host_io
from wscc.backends.verify.findings import Finding
from wscc.backends.verify.widen import WideMachine, wide_machine, with_optimizer
from wscc.diagnostics import CompileError
from wscc.host.compare import Run, by_layer, measure
from wscc.host.data import Batches
from wscc.host.init import initial
from wscc.host.inputs import LABELS, inputs_of
from wscc.ir.array import Array, Init, Kind, Role
from wscc.ir.module import Module
from wscc.ir.ops import IGNORED, OPS
from wscc.ir.streams.program import Instruction
from wscc.ir.train import LrSchedule, Optimizer, Rates, Train
from wscc.ir.types import DType
from wscc.reference.training import train

Tensors = dict[str, NDArray[Any]]

STEPS: Final = 2
LIMIT: Final = 1e-10
# An optimizer and an `lr_schedule` whose every part has an effect within these steps.
TRIAL: Final = Optimizer(lr=0.01, eps=1e-3, weight_decay=0.1)
LR_SCHEDULE: Final = LrSchedule(warmup=1, decay=4, floor=0.1)
CLIP: Final = 0.01
IGNORED_EVERY: Final = 7
# Weights so large that exponentials overflow unless their maximum is subtracted; they amplify rounding too.
LOUD: Final = 64.0
LOUD_LIMIT: Final = 1e-6


def numbers_of(t: Train, rates: Rates) -> dict[str, float]:
    """The scalars of instructions that update the weights with these rates, by name."""
    o, s = t.optimizer, t.lr_schedule
    return {
        "lr": rates.lr, "beta1": o.beta1, "beta2": o.beta2, "eps": o.eps, "weight_decay": rates.weight_decay,
        "clip": t.clip, "warmup": s.warmup, "decay": s.decay, "floor": s.floor,
    }  # fmt: skip


def trial_rates(graph: Module) -> dict[tuple[float, ...], Rates]:
    """For each two rates of the program that an instruction can tell apart, others for the trial: no two are equal, so
    that parameters with the rates of one another are seen, and none is 0."""
    kind = graph.train.optimizer.kind
    used = sorted({as_attrs(kind, graph.rates_of(a)) for a in graph.arrays if a.kind is Kind.PARAM})
    larger = (1 + i / len(used) for i in range(len(used)))
    return {key: Rates(TRIAL.lr * n, TRIAL.weight_decay * n) for key, n in zip(used, larger, strict=True)}


def as_attrs(kind: str, rates: Rates) -> tuple[float, ...]:
    """The rates that an optimizer has as attributes."""
    return tuple(getattr(rates, f.name) for f in fields(Rates) if f.name in OPS[kind].attrs)


def compare(artifact: Artifact, graph: Module) -> Iterator[Finding]:
    """Findings where losses, first gradients or last weights of `STEPS` steps, or a loss of large weights, differ."""
    pair = _Pair.of(artifact, graph)
    try:
        got, want = pair.train()
        loud, loud_ref = pair.loud_loss()
    except CompileError as error:
        yield Finding("meaning", error.diagnostics[0].message)
        return
    e = measure(got, want)
    comparisons = (
        (e.loss, LIMIT, "the loss"),
        (e.grad, LIMIT, f"the gradient of `{e.worst_grad}`"),
        (e.weight, LIMIT, f"`{e.worst_weight}` after {STEPS} steps"),
        (
            abs(loud - loud_ref) / abs(loud_ref) if isfinite(loud) else np.inf,
            LOUD_LIMIT,
            "the loss of large weights",
        ),
    )
    for error_, limit, what in comparisons:
        if not error_ <= limit:
            yield Finding("meaning", f"{what} differs from one device by {error_:.1e}")


@dataclass(slots=True)
class _Pair:
    """The program on a machine, and the graph with the trial's optimizer for the reference."""

    machine: WideMachine
    graph: Module
    first: Tensors

    @staticmethod
    def of(artifact: Artifact, graph: Module) -> _Pair:
        optimizer = replace(TRIAL, kind=graph.train.optimizer.kind)
        clip = CLIP if graph.train.clip else 0.0
        trial = replace(graph.train, optimizer=optimizer, lr_schedule=LR_SCHEDULE, clip=clip)
        rates = trial_rates(graph)

        def numbers(x: Instruction) -> dict[str, float]:
            key = tuple(dict(x.attrs)[f.name] for f in fields(Rates) if f.name in dict(x.attrs))
            return numbers_of(trial, rates.get(key, trial.rates))  # type: ignore[arg-type]  # scalars are numbers

        machine = wide_machine(with_optimizer(artifact.streams, numbers), artifact.manifest)
        host_io.initialise(machine, graph.train.seed)
        host_io.write_edges(machine, artifact.edges)
        first = {a.name: _weights(a, graph.train.seed) for a in graph.arrays if a.kind is Kind.PARAM}
        arrays = tuple(
            replace(a, rates=rates[as_attrs(optimizer.kind, graph.rates_of(a))])
            if a.kind is Kind.PARAM
            else a
            for a in graph.arrays
        )
        return _Pair(machine, graph.with_(train=trial, arrays=arrays), first)

    def train(self) -> tuple[Run, Run]:
        """The runs of the program and of the reference."""
        ref = train(self.graph, self.first, self._batch, STEPS, DType.F64)
        self._write(self.first)
        losses: list[float] = []
        grads: Tensors = {}
        for step in range(STEPS):
            losses.append(self._step(step))
            if step == 0:
                named = self.machine.manifest.related(Role.GRADIENT)
                grads = {n: self._read(named[n], self.graph.array(n)) for n in ref.first_grads}
        weights = {n: self._read(n, self.graph.array(n)) for n in self.first}
        layers = partial(by_layer, extents={name: self.graph.array(name).extents for name in self.first})
        want = Run(ref.losses, layers(ref.first_grads), layers(ref.weights))
        return Run(losses, layers(grads), layers(weights)), want

    def loud_loss(self) -> tuple[float, float]:
        """The loss of large weights, of the program and of the reference."""
        loud = {name: value * LOUD for name, value in self.first.items()}
        ref = train(self.graph, loud, self._batch, 1, DType.F64)
        self._write(loud)
        return self._step(0), ref.losses[0]

    def _write(self, weights: Mapping[str, NDArray[Any]]) -> None:
        for name, value in weights.items():
            for index in np.ndindex(*self.graph.array(name).extents):
                host_io.write(self.machine, name, index, value[index])

    def _step(self, step: int) -> float:
        host_io.write_inputs(self.machine, self._batch(step))
        self.machine.run_step()
        return float(host_io.read(self.machine, "loss"))

    def _read(self, name: str, a: Array) -> NDArray[Any]:
        whole = np.empty((*a.extents, *a.type.shape))
        for index in np.ndindex(*a.extents):
            whole[index] = host_io.read(self.machine, name, index)
        return whole

    def _batch(self, step: int) -> Tensors:
        """Random tokens; some labels are ignored."""
        batch = Batches(inputs_of(self.graph), self.graph.train.seed).batch(step)
        for name, tokens in batch.items():
            if name == LABELS:
                tokens.reshape(-1)[::IGNORED_EVERY] = IGNORED
        return batch


def _weights(a: Array, seed: int) -> NDArray[Any]:
    """Random weights of an array, gains and biases too, of a size at which no activation saturates."""
    matrix = len(a.type.shape) > 1
    init = Init("normal", 1 / sqrt(a.type.shape[0]) if matrix else 0.1)
    whole = np.empty((*a.extents, *a.type.shape))
    for index in np.ndindex(*a.extents):
        whole[index] = initial(a.name, index, a.type.shape, init, seed, DType.F64)
    return whole + (a.init.kind == "ones")
