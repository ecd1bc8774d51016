"""The whole compiler against one device: loss, every gradient and second-step weights (design, section 8).

Every combination of dp, tp and tatp in {1, 2, 4} that fits, with and without a dead die, in each recompute mode,
compiled to streams and run by the interpreter; the reference shares no kernel and no derivative with them.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import prod

import numpy as np
import pytest

from tests.models import Shape, gpt, llama
from wscc.compiler import compile_graph
from wscc.host.compare import Check, Run, by_layer, judge
from wscc.host.data import Batches, inputs_of, vocabulary
from wscc.ir.module import Kind, Module
from wscc.ir.types import DType
from wscc.machine.wafer import Wafer
from wscc.reference.training import History, train
from wscc.trainer import RunOptions, Trainer, initial_parameters, run

DEGREES = [dict(zip(("dp", "tp", "tatp"), d, strict=True)) for d in product((1, 2, 4), repeat=3)]
MESHES = {
    "2x4": Wafer("w", 2, 4),
    "2x4 dead": Wafer("w", 2, 4, dead_dies=frozenset({(0, 1)})),
    "4x4": Wafer("w", 4, 4),
    "4x4 dead": Wafer("w", 4, 4, dead_dies=frozenset({(1, 2)})),
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
def reference(family: object, shape: Shape, dtype: DType, optimizer: str) -> History:
    module = family({}, shape, dtype=dtype, optimizer=optimizer)  # type: ignore[operator]
    batches = Batches(inputs_of(module.arrays), vocabulary(module), 0)
    return train(module, initial_parameters(module, 0), batches.batch, 2, dtype)


def judged(module: Module, want: History, dtype: DType, *, checked: bool = True) -> Check:
    """Run the compiled module and judge it by a reference that was computed before."""
    artifact = compile_graph(module).artifact
    trainer = Trainer(artifact, RunOptions(steps=2, checked=checked, threads=1))
    losses, grads = [], {}
    for i, loss in enumerate(trainer.steps()):
        losses.append(loss)
        if i == 0:
            grads = {n.removesuffix(".grad"): g for n, g in trainer.arrays(Kind.GRAD).items()}
    extents = {a.name: a.extents for a in module.arrays if a.kind is Kind.PARAM}
    got = Run(losses, by_layer(grads, extents), by_layer(trainer.arrays(Kind.PARAM), extents))
    ref = Run(want.losses, by_layer(want.first_grads, extents), by_layer(want.weights, extents))
    return judge(got, ref, module.train, dtype)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("case", cases(), ids=name)
def test_every_strategy_equals_one_device_in_f64(case: tuple[str, dict[str, int]], recompute: str) -> None:
    """After two AdamW steps to 1e-10; in checked mode where nothing is recomputed."""
    mesh, degrees = case
    shape = shape_for(degrees)
    module = gpt(degrees, shape, wafer=MESHES[mesh], recompute=recompute)
    want = reference(gpt, shape, DType.F64, "adamw")
    check = judged(module, want, DType.F64, checked=recompute == "none")
    assert check.ok, check


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("case", cases(), ids=name)
def test_every_strategy_keeps_within_rounding_in_f32(
    case: tuple[str, dict[str, int]], recompute: str
) -> None:
    """Loss to 1e-6, gradients to 1e-5 and weights to 1e-5 after two SGD steps."""
    mesh, degrees = case
    shape = shape_for(degrees)
    module = gpt(degrees, shape, wafer=MESHES[mesh], recompute=recompute, dtype=DType.F32, optimizer="sgd")
    check = judged(module, reference(gpt, shape, DType.F32, "sgd"), DType.F32, checked=False)
    assert check.ok, check


ONE_OF_EACH = [{"dp": 2}, {"tp": 4}, {"tatp": 4}, {"dp": 2, "tp": 2, "tatp": 2}]


@pytest.mark.parametrize("degrees", ONE_OF_EACH, ids=str)
def test_adamw_in_f32_moves_no_weight_further_than_it_may(degrees: dict[str, int]) -> None:
    full = {"dp": 1, "tp": 1, "tatp": 1, **degrees}
    shape = shape_for(full)
    module = gpt(full, shape, dtype=DType.F32)
    check = judged(module, reference(gpt, shape, DType.F32, "adamw"), DType.F32)
    assert check.ok, check


@pytest.mark.parametrize(
    "degrees", [{"dp": 2}, {"tp": 2}, {"tp": 4}, {"tatp": 4}, {"dp": 2, "tp": 2, "tatp": 2}], ids=str
)
def test_the_llama_family_equals_one_device(degrees: dict[str, int]) -> None:
    full = {"dp": 1, "tp": 1, "tatp": 1, **degrees}
    shape = shape_for(full)
    check = judged(llama(full, shape), reference(llama, shape, DType.F64, "adamw"), DType.F64)
    assert check.ok, check


@pytest.mark.parametrize("degrees", [{}, {"dp": 2, "tp": 2}, {"tatp": 2}], ids=str)
def test_bf16_is_as_near_to_f64_as_one_device_in_bf16(degrees: dict[str, int]) -> None:
    full = {"dp": 1, "tp": 1, "tatp": 1, **degrees}
    artifact = compile_graph(gpt(full, shape_for(full), dtype=DType.BF16)).artifact
    outcome = run(artifact, RunOptions(steps=1), check=True)
    assert outcome.check is not None
    assert outcome.check.ok, outcome.check


def test_threads_never_change_a_bit() -> None:
    artifact = compile_graph(gpt({"dp": 2, "tp": 2, "tatp": 2}, Shape(batch=8))).artifact
    one, two = (run(artifact, RunOptions(steps=3, threads=n)) for n in (1, 2))
    assert np.array(one.losses).tobytes() == np.array(two.losses).tobytes()
