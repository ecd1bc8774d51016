"""What becomes of a `.wsl` text: a program that equals one device, one that does not, or a refusal by name.

Labels may be ignored on the way (-100), in another number for each sequence: which ones depends on the sequence's
place in the whole batch alone, so that every strategy and every cut into micro-batches sees the same labels.

Each step is judged for itself, from the weights that the program had before it: its loss and gradients by those of
one device, the weights after it by an optimizer of one device that is given the program's own gradients. What a step
does to the rounding of those before it is no fault of the program, and has no bound: AdamW divides a gradient that
is rounding noise by itself, and a model without norms may move its gradients a thousand times as far as its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.compile_once import artifact_of_file
from wscc.backends.artifact.files import Artifact
from wscc.diagnostics import CompileError, Proposal
from wscc.driver.compile import compile_file
from wscc.driver.train import RunOptions, Trainer, initial_parameters
from wscc.frontend.overrides import NO_OVERRIDES, Overrides
from wscc.host.compare import Run, by_layer, judge, measure
from wscc.host.data import Batch, Batches
from wscc.ir.array import Kind
from wscc.ir.types import DType
from wscc.reference.optimizer import Optimizer, global_norm
from wscc.reference.semantics import Precision
from wscc.reference.training import evaluate

IGNORED = -100
Mask = Callable[[int, int], bool]  # whether the label of (sequence of the batch, position) is ignored

MASKS: dict[str, Mask] = {
    "none": lambda i, p: False,
    "uneven": lambda i, p: p < i % 4 or (5 * i + 3 * p) % 7 == 0,
    "whole sequences": lambda i, p: i % 3 != 1,
    "first half": lambda i, p: i < 2,
    "all": lambda i, p: True,
}
EQUAL, DIFFERENT = "equal", "different"


@dataclass(frozen=True, slots=True)
class MaskedBatches(Batches):
    """Batches of which `mask` says the labels that are ignored."""

    mask: Mask = MASKS["none"]

    def batch(self, step: int) -> Batch:
        # Not `super()`: a dataclass with slots is another class than the one that `super()` knows.
        out = Batches.batch(self, step)
        labels = out["labels"]
        flat = labels.reshape(labels.shape[0] * labels.shape[1], -1)
        for i, p in np.ndindex(*flat.shape):
            if self.mask(i, p):
                flat[i, p] = IGNORED
        return out


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """`what` is `equal`, `different` or the code of the refusal; `why` the worst tensor, or the message. `proposals`
    are what the refusal says would work."""

    what: str
    why: str = ""
    proposals: Sequence[Proposal] = ()
    steps: Sequence[Run] = ()
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def is_refusal(self) -> bool:
        return self.what not in (EQUAL, DIFFERENT)


def verdict(
    text: str, folder: Path, overrides: Overrides = NO_OVERRIDES, *, mask: str = "none", level: int = 2,
    checked: bool = True, steps: int = 2, reported: bool = True,
) -> Verdict:  # fmt: skip
    """Compile the text, train it and the reference, and compare tensor by tensor. A report takes longer."""
    path = folder / "m.wsl"
    path.write_text(text)
    try:
        artifact = (
            compile_file(str(path), overrides, level).artifact
            if reported
            else artifact_of_file(path, overrides, level)
        )
        trainer, got = trained(artifact, MASKS[mask], checked=checked, steps=steps)
    except CompileError as refused:
        first = refused.diagnostics[0]
        return Verdict(str(first.code), str(refused), first.proposals)
    fault = next(faults(trainer, got), "")  # a later step starts from what an earlier one made wrong
    return Verdict(DIFFERENT if fault else EQUAL, fault, steps=got, report=artifact.report)


def trained(artifact: Artifact, mask: Mask, *, checked: bool, steps: int = 2) -> tuple[Trainer, list[Run]]:
    """Of each step the loss, the gradients and the weights after it, as whole arrays. Reading these compares the
    replicas of all dies bit for bit (a difference is a `CompileError`)."""
    trainer = Trainer(artifact, RunOptions(steps=steps, checked=checked, threads=1))
    b = trainer.batches
    trainer.batches = MaskedBatches(b.inputs, b.seed, b.rows, mask)
    done = []
    for loss in trainer.steps():
        grads = trainer.gradients()
        done.append(Run([loss], grads, trainer.arrays(Kind.PARAM)))
    return trainer, done


# How much further from f64 than one device in the same type: random models have sums that nearly cancel, of
# which each order of adding has its own rounding.
_SLACK = 8


def faults(trainer: Trainer, steps: Sequence[Run]) -> Iterator[str]:
    """Of each step that is not equal, what is beyond its limit."""
    compare = _in_f64 if trainer.graph.train.compute is DType.F64 else _in_fewer_bits
    return compare(trainer, steps)


def _in_f64(trainer: Trainer, steps: Sequence[Run]) -> Iterator[str]:
    """By the limits of `wscc run --check`."""
    for got, want in zip(_apart(trainer, steps), _reference(trainer, steps, DType.F64), strict=True):
        check = judge(got, want, trainer.graph.train, DType.F64)
        if not check.ok:
            yield f"{check.worst}: {check}"


def _in_fewer_bits(trainer: Trainer, steps: Sequence[Run]) -> Iterator[str]:
    """By the single device's own distance from f64."""
    limit = 1e-5 if trainer.graph.train.compute is DType.F32 else 1e-2
    singles = _reference(trainer, steps, None)
    wanted = _reference(trainer, steps, DType.F64)
    for got, single, want in zip(_apart(trainer, steps), singles, wanted, strict=True):
        e, own = measure(got, want), measure(single, want)
        found = {
            "loss": (e.loss, own.loss),
            f"gradient of {e.worst_grad}": (e.grad, own.grad),
            f"weight {e.worst_weight}": (e.weight, own.weight),
        }
        bad = {n: v for n, v in found.items() if not v[0] <= max(limit, _SLACK * v[1])}
        if bad:
            yield str(bad)


def _reference(trainer: Trainer, steps: Sequence[Run], dtype: DType | None) -> Iterator[Run]:
    """What one device makes of each step, in `dtype` or the program's own types: loss and gradients of the weights
    that the program had before it, and the weights that follow from them and the program's gradients."""
    graph, precision = trainer.graph, Precision(dtype)
    optimizer = Optimizer(graph.train, precision)
    types = {a.name: a.type.dtype for a in graph.arrays if a.kind is Kind.PARAM}
    before = initial_parameters(graph, trainer.seed)
    for i, got in enumerate(steps):
        want = evaluate(graph, before, trainer.batches.batch(i), dtype)
        weights = {n: precision.store(w, types[n]) for n, w in before.items()}
        grads = {n: precision.store(g, graph.train.grads) for n, g in got.grads.items()}
        after = optimizer.update(weights, grads, global_norm(grads))
        yield from _apart(trainer, [Run([want.loss], want.grads, after)])
        before = dict(got.weights)


def _apart(trainer: Trainer, runs: Sequence[Run]) -> Iterator[Run]:
    """With each layer of an array as a tensor of its own."""
    extents = {a.name: a.extents for a in trainer.graph.arrays if a.kind is Kind.PARAM}
    for run in runs:
        yield Run(run.losses, by_layer(run.grads, extents), by_layer(run.weights, extents))
