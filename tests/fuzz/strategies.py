"""Every combination of dp, tp and tatp in {1, 2, 4} that fits 2x4 or 4x4, with and without a dead die, against one
device: what tests/end_to_end/test_equality.py and `make fuzz-all` draw from.

    python -m tests.fuzz.strategies      all of them in f64 and f32, in every recompute mode; exit status 1 if one fails
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

from tests.support.compile_once import artifact_of
from tests.support.models import Shape, gpt
from tests.support.verdict import judged_by_steps
from wscc.backends.artifact.files import Artifact
from wscc.driver.train import RunOptions, Trainer, initial_parameters
from wscc.host.compare import Errors, Run, by_layer, measure
from wscc.host.data import Batches
from wscc.host.inputs import inputs_of
from wscc.host.verdict import Check
from wscc.ir.array import Kind
from wscc.ir.module import Module
from wscc.ir.types import DType
from wscc.machine.wafer import Die, Wafer
from wscc.reference.training import History, train

RECOMPUTE = ("none", "selective", "full")

DEGREES = [dict(zip(("dp", "tp", "tatp"), d, strict=True)) for d in product((1, 2, 4), repeat=3)]
# An SRAM that holds a small part of the arrays, and an HBM so slow that copies between the two pay.
TIGHT = Die(sram=12_000, hbm_bandwidth=10**9, tile=8)
MESHES = {
    "2x4": Wafer("w", 2, 4),
    "2x4 dead": Wafer("w", 2, 4, dead_dies=frozenset({(0, 1)})),
    "4x4": Wafer("w", 4, 4),
    "4x4 dead": Wafer("w", 4, 4, TIGHT, dead_dies=frozenset({(1, 2)})),
}
SMALL = {"2x4": 0, "2x4 dead": 0, "4x4": 8, "4x4 dead": 7}  # strategies of no more dies run on the 2x4 mesh


def cases() -> list[tuple[str, dict[str, int]]]:
    out = []
    for mesh, wafer in MESHES.items():
        alive = wafer.rows * wafer.cols - len(wafer.dead_dies)
        out += [(mesh, d) for d in DEGREES if SMALL[mesh] < prod(d.values()) <= alive]
    return out


def name(case: tuple[str, dict[str, int]]) -> str:
    mesh, degrees = case
    return f"{mesh} " + " ".join(f"{a}{n}" for a, n in degrees.items())


def shape_for(degrees: dict[str, int]) -> Shape:
    """Two calls of `tatp` sequences per replica where the axis splits batches, of one where it splits the
    sequence: dp 1 and 4 take the latter."""
    rows = degrees["tatp"] if degrees["dp"] == 2 else 1
    return Shape(batch=2 * degrees["dp"] * rows, calls=2)


@lru_cache
def reference(family: Callable[..., Module], shape: Shape, optimizer: str) -> History:
    """Two steps of one device in f64."""
    module = family({}, shape, dtype=DType.F64, optimizer=optimizer)
    batches = Batches(inputs_of(module), 0)
    return train(module, initial_parameters(module, 0), batches.batch, 2, DType.F64)


@dataclass(frozen=True, slots=True)
class Equality:
    """How far a whole run in f64 is from the reference, which was computed before: at most 1e-10 if it is equal."""

    errors: Errors

    @property
    def ok(self) -> bool:
        return self.errors.largest <= 1e-10


def judged(module: Module, want: History, *, checked: bool = True) -> Equality:
    """Run the compiled module, two steps, and compare it with a reference in f64."""
    return judged_artifact(artifact_of(module), module, want, checked=checked)


def judged_artifact(artifact: Artifact, module: Module, want: History, *, checked: bool = True) -> Equality:
    trainer = Trainer(artifact, RunOptions(steps=2, checked=checked, threads=1))
    losses, grads = [], {}
    for i, loss in enumerate(trainer.steps()):
        losses.append(loss)
        if i == 0:
            grads = trainer.gradients()
    return compared(module, Run(losses, grads, trainer.arrays(Kind.PARAM)), want)


def compared(module: Module, got: Run, want: History) -> Equality:
    """A whole run compared with the reference, layer by layer."""
    extents = {a.name: a.extents for a in module.arrays if a.kind is Kind.PARAM}
    mine = Run(got.losses, by_layer(got.grads, extents), by_layer(got.weights, extents))
    ref = Run(want.losses, by_layer(want.first_grads, extents), by_layer(want.weights, extents))
    return Equality(measure(mine, ref))


def in_f64(case: tuple[str, dict[str, int]], recompute: str) -> Equality:
    """Two AdamW steps, judged to 1e-10; in checked mode where nothing is recomputed."""
    mesh, degrees = case
    shape = shape_for(degrees)
    module = gpt(degrees, shape, wafer=MESHES[mesh], recompute=recompute)
    return judged(module, reference(gpt, shape, "adamw"), checked=recompute == "none")


def in_f32(case: tuple[str, dict[str, int]], recompute: str) -> Check:
    """Two SGD steps, each judged as `wscc run --check` does."""
    mesh, degrees = case
    shape = shape_for(degrees)
    module = gpt(degrees, shape, wafer=MESHES[mesh], recompute=recompute, dtype=DType.F32, optimizer="sgd")
    return judged_by_steps(artifact_of(module))


def main() -> int:
    wrong = 0
    for case, recompute, judge_in in product(cases(), RECOMPUTE, (in_f64, in_f32)):
        check = judge_in(case, recompute)
        if not check.ok:
            wrong += 1
            print(f"{name(case)}, recompute {recompute}, {judge_in.__name__}: {check}", flush=True)
    print(f"{len(cases()) * len(RECOMPUTE)} strategies in f64 and f32, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
