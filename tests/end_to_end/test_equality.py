"""The whole compiler against one device: loss, every gradient and second-step weights (design, section 8).

Combinations of dp, tp and tatp in {1, 2, 4}, with and without a dead die, in each recompute mode,
compiled to streams and run by the interpreter; the reference shares no kernel and no derivative with them.
"""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest

from tests.fuzz.strategies import RECOMPUTE, cases, in_f32, in_f64, judged, name, reference, shape_for
from tests.support.compile_once import artifact_of
from tests.support.models import Shape, gpt, llama
from tests.support.verdict import judged_by_steps
from wscc.driver.train import RunOptions, run
from wscc.ir.types import DType


@pytest.mark.parametrize(
    ("case", "recompute"),
    [
        pytest.param(c, mode, id=f"{name(c)} {mode}")
        for i, (c, left_out) in enumerate(zip(cases(), cycle(RECOMPUTE), strict=False))
        for mode in [left_out if "dead" in c[0] else RECOMPUTE[RECOMPUTE.index(left_out) - 1]]
        if i % 4 == 1
    ],
)
def test_strategies_equal_one_device_in_f64(case: tuple[str, dict[str, int]], recompute: str) -> None:
    """Every fourth one, in one recompute mode, in turn; in another mode with a dead die. `make fuzz-all` has all."""
    check = in_f64(case, recompute)
    assert check.ok, check


@pytest.mark.parametrize(
    ("case", "recompute"),
    [
        pytest.param(c, mode, id=f"{name(c)} {mode}")
        for c, mode in zip(cases()[::8], cycle(RECOMPUTE), strict=False)
    ],
)
def test_strategies_keep_within_rounding_in_f32(case: tuple[str, dict[str, int]], recompute: str) -> None:
    """Every eighth one, in one recompute mode, in turn; `make fuzz-all` has all of all."""
    check = in_f32(case, recompute)
    assert check.ok, check


ONE_OF_EACH = [{"dp": 2}, {"tp": 4}, {"tatp": 4}, {"dp": 2, "tp": 2, "tatp": 2}]


@pytest.mark.parametrize("degrees", ONE_OF_EACH, ids=str)
def test_adamw_in_f32_is_as_near_as_its_types_allow(degrees: dict[str, int]) -> None:
    full = {"dp": 1, "tp": 1, "tatp": 1, **degrees}
    shape = shape_for(full)
    module = gpt(full, shape, dtype=DType.F32)
    check = judged_by_steps(artifact_of(module))
    assert check.ok, check


@pytest.mark.parametrize("degrees", [{"dp": 2}, {"tp": 4}, {"dp": 2, "tp": 2, "tatp": 2}], ids=str)
def test_the_llama_family_equals_one_device(degrees: dict[str, int]) -> None:
    full = {"dp": 1, "tp": 1, "tatp": 1, **degrees}
    shape = shape_for(full)
    check = judged(llama(full, shape), reference(llama, shape, "adamw"))
    assert check.ok, check


@pytest.mark.parametrize("degrees", [{}, {"dp": 2, "tp": 2}, {"tatp": 2}], ids=str)
def test_bf16_is_as_near_to_f64_as_one_device_in_bf16(degrees: dict[str, int]) -> None:
    full = {"dp": 1, "tp": 1, "tatp": 1, **degrees}
    artifact = artifact_of(gpt(full, shape_for(full), dtype=DType.BF16))
    outcome = run(artifact, RunOptions(steps=1), check=True)
    assert outcome.check is not None
    assert outcome.check.ok, outcome.check


def test_threads_never_change_a_bit() -> None:
    artifact = artifact_of(gpt({"dp": 2, "tp": 2, "tatp": 2}, Shape(batch=8, layers=1)))
    one, two = (run(artifact, RunOptions(steps=2, threads=n)) for n in (1, 2))
    assert np.array(one.losses).tobytes() == np.array(two.losses).tobytes()
