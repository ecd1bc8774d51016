"""One tiny program compiled once for each strategy; a mistake planted in it; and which check notices.

The checks are the project's own: the reader of textual IR (`parser`), the verifier after each pass (`verifier`), what the interpreter refuses when
a program is loaded (`load`) or executed (`run`), its checked mode (`checked`), its report of dies that wait for
one another (`deadlock`), and the comparison with one device after some steps (`equality`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from tests.models import Shape
from wscc.backends import host_io
from wscc.backends.emit import emit
from wscc.backends.interpreter import Machine
from wscc.diagnostics import Code, CompileError
from wscc.host.compare import Check, Run, by_layer, judge
from wscc.ir.artifact import Manifest
from wscc.ir.module import Init, Kind, Module, Op
from wscc.ir.program import Streams
from wscc.ir.train import Schedule
from wscc.ir.types import DType
from wscc.machine.wafer import Wafer
from wscc.passes import default_passes
from wscc.pipeline import check, run_passes
from wscc.reference.training import History, train
from wscc.trainer import initial_parameters

Tensors = dict[str, np.ndarray]
Family = Callable[..., Module]

BY_CODE = {
    Code.BAD_IR: "parser",
    Code.BROKEN_PASS: "verifier",
    Code.ARTIFACT: "run",
    Code.DEADLOCK: "deadlock",
    Code.CHECK: "checked",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A program to break: the smallest strategy under which a mistake of its kind can show.

    `batch` is in sequences, over two calls; `heat` multiplies the weights of the output layer; the logits from
    column `limit` on (0: none) are pads.
    """

    family: Family
    degrees: tuple[tuple[str, int], ...] = ()
    batch: int = 4
    steps: int = 2
    optimizer: str = "adamw"
    dtype: DType = DType.F64
    heat: float = 1.0
    limit: int = 0
    recompute: str = "none"
    wafer: Wafer = Wafer("w", 2, 2)

    def __str__(self) -> str:
        return " ".join(f"{a}{n}" for a, n in self.degrees) or "one die"


@dataclass(frozen=True, slots=True, eq=False)
class Base:
    """The unbroken program: the module after each pass, its streams, and what one device computes."""

    setting: Setting
    graph: Module
    modules: dict[str, Module]
    streams: Streams
    manifest: Manifest
    batches: tuple[Tensors, ...]
    want: History


@dataclass(frozen=True, slots=True)
class Verdict:
    """`by` is the check that noticed, empty if none did; `bits` are all results of a run that ended."""

    by: str
    words: str = ""
    bits: bytes = b""


@lru_cache(maxsize=None)
def base(setting: Setting) -> Base:
    shape = Shape(batch=setting.batch, calls=2)
    graph = _adjusted(
        setting.family(
            dict(setting.degrees), shape, dtype=setting.dtype, optimizer=setting.optimizer, wafer=setting.wafer,
            recompute=setting.recompute,
        ),
        setting,
    )
    modules: dict[str, Module] = {"elaborate": graph}
    run_passes(graph, default_passes(2), observe=modules.__setitem__)
    streams, manifest = emit(modules["plan_memory"])
    batches = tuple(_batch(graph, setting, seed) for seed in range(setting.steps))
    want = train(graph, initial_parameters(graph, 0), batches.__getitem__, setting.steps, setting.dtype)
    return Base(setting, graph, modules, streams, manifest, batches, want)


def _adjusted(graph: Module, setting: Setting) -> Module:
    """No parameter starts at zero, where a mistake could hide; everything that an optimizer does, it does."""
    arrays = []
    for a in graph.arrays:
        init = a.init
        if a.kind is Kind.PARAM:
            init = Init("normal", 0.2) if init.kind == "zeros" else init
            init = replace(init, std=init.std * setting.heat) if a.name == "head" else init
        arrays.append(replace(a, init=init))
    procedures = tuple(replace(p, body=tuple(_limited(op, setting.limit) for op in p.ops)) for p in graph.procedures)
    optimizer = replace(graph.train.optimizer, weight_decay=0.1, eps=1e-3)
    schedule = Schedule(warmup=2, decay=5, floor=0.1)
    return graph.with_(
        arrays=tuple(arrays), procedures=procedures, train=replace(graph.train, optimizer=optimizer, schedule=schedule)
    )


def _limited(op: Op, limit: int) -> Op:
    return replace(op, attrs=tuple((k, limit if k == "limit" else v) for k, v in op.attrs))


def _batch(graph: Module, setting: Setting, seed: int) -> Tensors:
    """Random tokens; a third of the labels is ignored, of the first sequences of a call two thirds."""
    rng = np.random.default_rng(seed)
    a = graph.array("tokens")
    size = (*a.extents, *a.type.shape)
    known = setting.limit or graph.array("wte").type.shape[0]
    tokens, labels = (rng.integers(0, known, size).astype(np.int32) for _ in range(2))
    labels[rng.random(size) < 1 / 3] = -100
    first = (slice(None), slice(0, (size[1] + 1) // 2))
    labels[first][rng.random(labels[first].shape) < 1 / 2] = -100
    return {"tokens": tokens, "labels": labels}


# ------------------------------------------------------------------------------------------------- verdicts


def recompiled(b: Base, after: str, module: Module) -> Verdict:
    """What is noticed when `module` takes the place of what the pass `after` gave."""
    names = [p.name for p in default_passes(2)]
    rest = default_passes(2)[names.index(after) + 1 if after in names else 0 :]
    facts = frozenset(f for p in default_passes(2)[: len(names) - len(rest)] for f in p.provides)
    try:
        check(module, after)
        streams, manifest = emit(run_passes(module, rest, facts=facts))
    except CompileError as error:
        return noticed(error)
    return executed(b, streams, manifest)


def executed(b: Base, streams: Streams, manifest: Manifest | None = None) -> Verdict:
    """What is noticed when the streams are loaded, run in checked mode and compared with one device."""
    try:
        machine = Machine(streams, manifest or b.manifest, checked=True)
    except CompileError as error:
        return replace(noticed(error), by="load")
    try:
        got = _trained(b, machine)
    except CompileError as error:
        return noticed(error)
    verdict = compared(b, got)
    return Verdict("" if verdict.ok else "equality", verdict.worst, _bits(got))


def noticed(error: CompileError) -> Verdict:
    first = error.diagnostics[0]
    return Verdict(BY_CODE[first.code], first.message)


def _trained(b: Base, machine: Machine) -> Run:
    host_io.initialise(machine, 0)
    losses: list[float] = []
    grads: Tensors = {}
    for batch in b.batches:
        for name, whole in batch.items():
            for m, part in enumerate(whole):
                host_io.write(machine, name, (m,), part)
        machine.run_step()
        losses.append(float(host_io.read(machine, "loss")))
        grads = grads or {n: _whole(machine, f"{n}.grad") for n in b.want.first_grads}
    return Run(losses, grads, {n: _whole(machine, n) for n in b.want.weights})


def _whole(machine: Machine, name: str) -> np.ndarray:
    t = host_io.tensor(machine.manifest, name)
    whole = np.empty((*t.extents, *t.type.shape), t.type.dtype.numpy)
    for index in np.ndindex(*t.extents):
        whole[index] = host_io.read(machine, name, index)
    return whole


def compared(b: Base, got: Run) -> Check:
    extents = {a.name: a.extents for a in b.graph.arrays if a.kind is Kind.PARAM}
    mine = Run(got.losses, by_layer(got.grads, extents), by_layer(got.weights, extents))
    want = Run(b.want.losses, by_layer(b.want.first_grads, extents), by_layer(b.want.weights, extents))
    return judge(mine, want, b.graph.train, b.setting.dtype)


def _bits(run: Run) -> bytes:
    arrays: Iterable[Any] = (np.array(run.losses), *run.grads.values(), *run.weights.values())
    return b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)
