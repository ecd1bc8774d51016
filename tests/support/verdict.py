"""What becomes of a `.wsl` text: a program that equals one device, one that does not, or a refusal by name.

Labels may be ignored on the way (-100), in another number for each sequence: which ones depends on the sequence's
place in the whole batch alone, so that every strategy and every cut into micro-batches sees the same labels.

Each step is judged for itself (`wscc.host.verdict`): what a step does to the rounding of those before it is no fault of
the program, and has no bound. A model without norms may move its gradients a thousand times as far as its weights.
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
from wscc.driver.check import StepResult
from wscc.driver.compile import compile_file
from wscc.driver.train import RunOptions, Trainer
from wscc.frontend.overrides import NO_OVERRIDES, Overrides
from wscc.host.data import Batch, Batches
from wscc.host.verdict import Check

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
    steps: Sequence[StepResult] = ()
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


def trained(
    artifact: Artifact, mask: Mask, *, checked: bool, steps: int = 2
) -> tuple[Trainer, list[StepResult]]:
    """What the dies hold after each step, as whole arrays. Reading these compares the replicas of all dies bit for bit
    (a difference is a `CompileError`)."""
    trainer = Trainer(artifact, RunOptions(steps=steps, checked=checked, threads=1))
    b = trainer.batches
    trainer.batches = MaskedBatches(b.inputs, b.seed, b.rows, mask)
    return trainer, [trainer.result(loss) for loss in trainer.steps()]


def faults(trainer: Trainer, steps: Sequence[StepResult]) -> Iterator[str]:
    """What is beyond its limit after each step, as `wscc run --check` judges it."""
    checker = trainer.checker()
    for i, got in enumerate(steps):
        checker.step(trainer.batches.batch(i), got)
        check = checker.check()
        if not check.ok:
            yield f"{check.worst}: {check}"


def judged_by_steps(artifact: Artifact, steps: int = 2) -> Check:
    """The verdict of `wscc run --check`, of a run that is not in checked mode."""
    trainer = Trainer(artifact, RunOptions(steps=steps, threads=1))
    checker = trainer.checker()
    for i, loss in enumerate(trainer.steps()):
        checker.step(trainer.batches.batch(i), trainer.result(loss))
    return checker.check()
