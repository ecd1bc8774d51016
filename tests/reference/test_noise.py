"""Draws of rounding noise: as far from f64 as the types say, each another one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.fuzz.verdicts import Program
from wscc.driver.compile import load
from wscc.driver.train import initial_parameters
from wscc.host.data import Batches
from wscc.host.inputs import inputs_of
from wscc.ir.types import DType
from wscc.reference.noise import Noise
from wscc.reference.training import evaluate


@pytest.mark.parametrize("dtype", [DType.F64, DType.F32, DType.BF16])
def test_a_value_moves_by_one_unit_roundoff_at_most(dtype: DType) -> None:
    noise = Noise(np.random.default_rng(0))
    x = np.full(10_000, 1.5)
    moved = np.abs(noise.moved(x, dtype) - x)
    own = 2 * DType.F64.roundoff  # what rounding the sum to f64 adds
    assert moved.max() <= 1.5 * dtype.roundoff + own
    assert np.sqrt(np.square(moved).mean()) == pytest.approx(1.5 * dtype.roundoff / 3**0.5, rel=0.05, abs=own)
    assert (noise.moved(np.zeros(3), dtype) == 0).all()


def test_first_order_says_how_far_draws_of_the_loss_are(tmp_path: Path) -> None:
    """In bf16: rounding adds to the noise, and 16 draws are few."""
    path = tmp_path / "m.wsl"
    path.write_text(Program("llama", "dp = 1", "bf16", "f32", "f32").text)
    module = load(str(path))
    weights = initial_parameters(module, 0)
    inputs = Batches(inputs_of(module), 0).batch(0)
    exact = evaluate(module, weights, inputs, DType.F64)
    draws = [evaluate(module, weights, inputs, None, Noise.of(module, i)).loss for i in range(16)]
    assert len(set(draws)) == 16
    found = np.sqrt(np.square(np.array(draws) - exact.loss).mean())
    assert 0.5 < found / exact.loss_deviation < 3


def test_what_is_selected_is_compared_with_itself(tmp_path: Path) -> None:
    """The maximum of a row is one of its elements: moved by itself, exponentials of logits of 1e13 overflow."""
    path = tmp_path / "m.wsl"
    path.write_text(Program("llama", "dp = 1", "bf16", "f32", "f32").text)
    module = load(str(path))
    weights = initial_parameters(module, 0)
    weights["head"] = weights["head"] * np.float32(1e13)
    inputs = Batches(inputs_of(module), 0).batch(0)
    exact = evaluate(module, weights, inputs, DType.F64)
    for i in range(4):
        drawn = evaluate(module, weights, inputs, None, Noise.of(module, i))
        assert drawn.loss == pytest.approx(exact.loss, rel=0.05)
        assert np.isfinite(drawn.norm)
