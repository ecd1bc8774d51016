"""`wscc verify --meaning`: whether a compiled program computes what its graph says (docs/adr/011).

A program that fits this computer is run, in f64 whatever its element types, on random weights and data, and
compared with the reference on one device to 1e-10: nothing is taken from any pass. One that does not fit is
compared, instruction by instruction, with what the passes make of its graph.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import prod, sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from wscc.backends import host_io
from wscc.backends.emit_files import Artifact
from wscc.backends.verify_calls import calls_by_name
from wscc.backends.verify_findings import Finding, Findings
from wscc.backends.verify_widen import UPDATES, WideMachine, factor_of, wide_machine, with_optimizer
from wscc.diagnostics import CompileError, Source
from wscc.host.compare import Run, by_layer, measure
from wscc.host.data import LABELS, Batches, inputs_of, vocabulary
from wscc.host.init import initial
from wscc.ir.artifact import Manifest
from wscc.ir.module import Array, Init, Kind, Module
from wscc.ir.parse import parse
from wscc.ir.program import Streams, stage_of_role
from wscc.ir.train import Optimizer, Schedule, Train
from wscc.ir.types import DType
from wscc.recompiled import differences
from wscc.reference.training import train

Tensors = dict[str, NDArray[Any]]

STEPS: Final = 2
# Of an optimizer whose every part shows within these steps.
TRIAL: Final = Optimizer(lr=0.01, eps=1e-3, weight_decay=0.1)
SCHEDULE: Final = Schedule(warmup=1, decay=4, floor=0.1)
CLIP: Final = 0.01
IGNORED: Final = -100
IGNORED_EVERY: Final = 7
LIMIT: Final = 1e-10
# What is run: multiply-adds of a step, over all dies, and bytes of all arenas.
MOST_WORK: Final = 2 * 10**10
MOST_BYTES: Final = 2 * 10**9


@dataclass(frozen=True, slots=True)
class Meaning:
    """`ran` says which of the two comparisons was made."""

    findings: tuple[Finding, ...]
    ran: bool


def check_meaning(artifact: Artifact) -> Meaning:
    """Of a program without structural findings."""
    graph = parse(Source("graph.wir", artifact.graph))
    findings = Findings()
    for finding in _scalars(artifact.streams, artifact.manifest.train, graph.train):
        findings.add(finding)
    ran = fits(artifact.streams)
    for finding in _run(artifact, graph) if ran else differences(artifact, graph):
        findings.add(finding)
    return Meaning(tuple(findings.found), ran)


def fits(streams: Streams) -> bool:
    """Whether the program can be run here in f64 in about a minute."""
    space = streams.arena_bytes * factor_of(streams) * len(streams.dies)
    has = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else MOST_BYTES
    return space <= min(MOST_BYTES, has // 4) and _work(streams) <= MOST_WORK


def _work(streams: Streams) -> int:
    stages, total = stage_of_role(streams), 0
    for p in streams.programs:
        times = calls_by_name(streams.steps[stages[p.role]])
        for code in p.procedures:
            work = sum(
                prod(x.writes[0].shape) * x.reads[0].shape[-1] for x in code.body if x.opcode == "gemm"
            )
            total += streams.roles.count(p.role) * times.get(code.name, 0) * work
    return total


def _scalars(streams: Streams, *given: Train) -> Iterator[Finding]:
    """The optimizer's numbers are those of the graph: few steps do not reach the whole of its schedule."""
    known = [_numbers(t) for t in given]
    if known[0] != known[1]:
        yield Finding("meaning", "the manifest and the graph have different optimizers")
    for p in streams.programs:
        for code in p.procedures:
            for i, x in enumerate(code.body):
                if x.opcode not in UPDATES:
                    continue
                if x.opcode != given[1].optimizer.kind:
                    yield Finding("meaning", f"`{x.opcode}` is not the optimizer", "", code.name, i)
                for name, value in x.attrs:
                    if value != known[1][name]:
                        words = f"`{x.opcode}` has {name}={value}, and the graph {known[1][name]}"
                        yield Finding("meaning", words, "", code.name, i)


def _numbers(t: Train) -> dict[str, float]:
    o, s = t.optimizer, t.schedule
    return {
        "lr": o.lr, "beta1": o.beta1, "beta2": o.beta2, "eps": o.eps, "weight_decay": o.weight_decay, "clip": t.clip,
        "warmup": s.warmup, "decay": s.decay, "floor": s.floor,
    }  # fmt: skip


def _run(artifact: Artifact, graph: Module) -> Iterator[Finding]:
    """Some steps of the program and of the reference."""
    try:
        got, want = _both(artifact, graph)
    except CompileError as error:
        yield Finding("meaning", error.diagnostics[0].message)
        return
    e = measure(got, want)
    where = {"loss": (e.loss, "the loss"), "grad": (e.grad, f"the gradient of `{e.worst_grad}`"),
             "weight": (e.weight, f"`{e.worst_weight}` after {STEPS} steps")}  # fmt: skip
    for error_, what in where.values():
        if not error_ <= LIMIT:
            yield Finding("meaning", f"{what} differs from one device by {error_:.1e}")


def _both(artifact: Artifact, graph: Module) -> tuple[Run, Run]:
    trial = replace(graph.train, optimizer=replace(TRIAL, kind=graph.train.optimizer.kind), schedule=SCHEDULE)
    trial = replace(trial, clip=CLIP if trial.clip else 0.0)
    machine = wide_machine(with_optimizer(artifact.streams, _numbers(trial)), artifact.manifest)
    first = {a.name: _weights(a, graph.train.seed) for a in graph.arrays if a.kind is Kind.PARAM}
    host_io.initialise(machine, graph.train.seed)
    for name, value in first.items():
        for index in np.ndindex(*graph.array(name).extents):
            host_io.write(machine, name, index, value[index])
    ref = train(graph.with_(train=trial), first, partial(_batch, graph, machine.manifest), STEPS, DType.F64)
    losses: list[float] = []
    grads: Tensors = {}
    for step in range(STEPS):
        for name, whole in _batch(graph, machine.manifest, step).items():
            for m, part in enumerate(whole):
                host_io.write(machine, name, (m,), part)
        machine.run_step()
        losses.append(float(host_io.read(machine, "loss")))
        if step == 0:
            grads = {n: _read(machine, f"{n}.grad", graph.array(n)) for n in ref.first_grads}
    weights = {n: _read(machine, n, graph.array(n)) for n in first}
    extents = {name: graph.array(name).extents for name in first}
    want = Run(ref.losses, by_layer(ref.first_grads, extents), by_layer(ref.weights, extents))
    return Run(losses, by_layer(grads, extents), by_layer(weights, extents)), want


def _batch(graph: Module, manifest: Manifest, step: int) -> Tensors:
    """Random tokens; some labels are ignored."""
    made = Batches(inputs_of(manifest.tensors), vocabulary(graph), graph.train.seed).batch(step)
    for name, tokens in made.items():
        if name == LABELS:
            tokens.reshape(-1)[::IGNORED_EVERY] = IGNORED
    return dict(made)


def _weights(a: Array, seed: int) -> NDArray[Any]:
    """Random, gains and biases too, of a size at which no activation saturates."""
    matrix = len(a.type.shape) > 1
    init = Init("normal", 1 / sqrt(a.type.shape[0]) if matrix else 0.1)
    whole = np.empty((*a.extents, *a.type.shape))
    for index in np.ndindex(*a.extents):
        whole[index] = initial(a.name, index, a.type.shape, init, seed, DType.F64)
    return whole + (a.init.kind == "ones")


def _read(machine: WideMachine, name: str, a: Array) -> NDArray[Any]:
    whole = np.empty((*a.extents, *a.type.shape))
    for index in np.ndindex(*a.extents):
        whole[index] = host_io.read(machine, name, index)
    return whole
