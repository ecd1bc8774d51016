"""What becomes of a `.wsl` text: a program that equals one device, one that does not, or a refusal by name.

Labels may be ignored on the way (-100), in another number for each sequence: which ones depends on the sequence's
place in the whole batch alone, so that every strategy and every cut into micro-batches sees the same labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wscc.backends.emit_files import Artifact
from wscc.compiler import compile_file
from wscc.diagnostics import CompileError
from wscc.frontend.overrides import NO_OVERRIDES, Overrides
from wscc.host.compare import Errors, Run, by_layer, judge, measure
from wscc.host.data import Batches, Tokens
from wscc.ir.module import Kind
from wscc.ir.types import DType
from wscc.reference.training import History, train
from wscc.trainer import RunOptions, Trainer, initial_parameters

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

    def batch(self, step: int) -> dict[str, Tokens]:
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
    """`what` is `equal`, `different` or the code of the refusal; `why` the worst tensor, or the message."""

    what: str
    why: str = ""
    run: Run | None = None
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def is_refusal(self) -> bool:
        return self.what not in (EQUAL, DIFFERENT)


def verdict(
    text: str, folder: Path, overrides: Overrides = NO_OVERRIDES, *, mask: str = "none", level: int = 2,
    checked: bool = True, steps: int = 2,
) -> Verdict:  # fmt: skip
    """Compile the text, train it and the reference, and compare tensor by tensor."""
    path = folder / "m.wsl"
    path.write_text(text)
    try:
        compiled = compile_file(str(path), overrides, level)
        trainer, got = trained(compiled.artifact, MASKS[mask], checked=checked, steps=steps)
    except CompileError as refused:
        return Verdict(str(refused.diagnostics[0].code), str(refused))
    ok, why = _judged(trainer, got)
    return Verdict(EQUAL if ok else DIFFERENT, why, got, compiled.report)


def trained(artifact: Artifact, mask: Mask, *, checked: bool, steps: int = 2) -> tuple[Trainer, Run]:
    """Losses, gradients of the first step and last weights of the compiled program. Reading the arrays compares
    the replicas of all dies bit for bit (a difference is a `CompileError`)."""
    trainer = Trainer(artifact, RunOptions(steps=steps, checked=checked, threads=1))
    b = trainer.batches
    trainer.batches = MaskedBatches(b.inputs, b.vocabulary, b.seed, b.text, mask)
    extents = _extents(trainer)
    losses: list[float] = []
    grads: dict[str, NDArray[Any]] = {}
    for i, loss in enumerate(trainer.steps()):
        losses.append(loss)
        weights = trainer.arrays(Kind.PARAM)
        if i == 0:
            grads = {n.removesuffix(".grad"): g for n, g in trainer.arrays(Kind.GRAD).items()}
    return trainer, Run(losses, by_layer(grads, extents), by_layer(weights, extents))


def _extents(trainer: Trainer) -> dict[str, tuple[int, ...]]:
    return {a.name: a.extents for a in trainer.graph.arrays if a.kind is Kind.PARAM}


# How much further from f64 than one device in the same type: random models have sums that nearly cancel, of
# which each order of adding has its own rounding.
_SLACK = 8


def _judged(trainer: Trainer, got: Run) -> tuple[bool, str]:
    """As `wscc run --check` does in f64; in other types against the single device's own distance from f64."""
    train_, dtype = trainer.graph.train, trainer.graph.train.compute
    want = _reference(trainer, DType.F64)
    if dtype is DType.F64:
        check = judge(got, want, train_, dtype)
        return check.ok, f"{check.worst}: {check}"
    e, own = measure(got, want), measure(_reference(trainer, None), want)
    limit = 1e-5 if dtype is DType.F32 else 1e-2
    found = {
        "loss": (e.first_loss, own.first_loss),
        f"gradient of {e.worst_grad}": (e.grad, own.grad),
        f"weight {e.worst_weight}": _weight(trainer, got, want, e, own),
    }
    bad = {n: v for n, v in found.items() if not v[0] <= max(limit, _SLACK * v[1])}
    return not bad, str(bad or "")


def _weight(trainer: Trainer, got: Run, want: Run, e: Errors, own: Errors) -> tuple[float, float]:
    """AdamW divides a gradient that is rounding noise by itself: such a weight may move by its rate each step, and
    be rounded each time."""
    config = trainer.graph.train
    if config.optimizer.kind != "adamw":
        return e.weight, own.weight
    moved = 2 * config.optimizer.lr * trainer.options.steps
    rounding = 2 * trainer.options.steps * (2**-8 if config.params is DType.BF16 else 2**-23)
    excess = [
        float(np.abs(got.weights[n] - w).max(initial=0))
        / (moved + rounding * float(np.abs(w).max(initial=0)))
        for n, w in want.weights.items()
    ]
    return max(excess) - 1, 0.0


def _reference(trainer: Trainer, dtype: DType | None) -> Run:
    graph = trainer.graph
    history: History = train(
        graph, initial_parameters(graph, trainer.seed), trainer.batches.batch, trainer.options.steps, dtype
    )
    extents = _extents(trainer)
    return Run(history.losses, by_layer(history.first_grads, extents), by_layer(history.weights, extents))
