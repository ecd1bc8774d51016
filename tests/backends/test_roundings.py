"""Checked mode tells a rounding that is one more than the types of an instruction say, where it happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.small_programs import code, failure, machine
from wscc.backends.interpreter import binding
from wscc.backends.interpreter.kernels.table import kernel
from wscc.backends.interpreter.machine import Machine
from wscc.diagnostics import Code
from wscc.ir.types import DType

Array = np.ndarray[Any, Any]
BF16 = DType.BF16.numpy
X, Y, OUT = 0, 1024, 2048  # addresses
# 64 numbers at X and at Y, that make f32 or bf16 at OUT.
INSTRUCTIONS = {
    "gemm": "gemm {}[8,8]@a2 <- bf16[8,8]@a0, bf16[8,8]@a1 scale=1.0 accumulate=false",
    "accumulating gemm": "gemm {}[8,8]@a2 <- bf16[8,8]@a0, bf16[8,8]@a1 scale=0.3 accumulate=true",
    "sum": 'sum {}[8]@a2 <- bf16[8,8]@a0 axes="0" accumulate=false',
    "add": "add {}[64]@a2 <- bf16[64]@a0, bf16[64]@a1",
    "gelu": "gelu {}[64]@a2 <- bf16[64]@a0",
    "rowdot": "rowdot {}[8]@a2 <- bf16[8,8]@a0, bf16[8,8]@a1",
    "layernorm": "layernorm {}[8,8]@a2 <- bf16[8,8]@a0, bf16[8]@a1, bf16[8]@a1+32 eps=0.00001",
}


def loaded(text: str, x: Array, y: Array) -> Machine:
    m = machine(f"role 0 {{ procedure f(3) {{ {text} }} }} step {{ call f({X}, {Y}, {OUT}) }}", [0])
    m.store(0, X, x)
    m.store(0, Y, y)
    m.store(0, OUT, np.linspace(-1, 1, 64, dtype=np.float32))
    return m


def numbers(seed: int, size: int = 64) -> Array:
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)


def shortened(x: Array) -> Array:
    return x.astype(BF16).astype(x.dtype)


def on_kernels(change: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """`change(run, *operands)` instead of each kernel `run` that a program is prepared with."""

    def changed(*facts: Any) -> Callable[..., None]:
        run = kernel(*facts)
        return lambda *args: change(run, *args)

    monkeypatch.setattr(binding, "kernel", changed)


@pytest.mark.parametrize("name", INSTRUCTIONS)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_what_is_rounded_once_passes(name: str, dtype: str) -> None:
    for seed in range(20):
        text = INSTRUCTIONS[name].format(dtype)
        loaded(text, numbers(seed).astype(BF16), numbers(seed + 20).astype(BF16)).run_step()


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_a_result_in_f32_that_is_rounded_to_bf16_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def round_result(run: Callable[..., None], *args: Any) -> None:
        run(*args)
        args[0][...] = shortened(args[0])

    on_kernels(round_result, monkeypatch)
    error = failure(
        loaded(INSTRUCTIONS[name].format("f32"), numbers(0).astype(BF16), numbers(1).astype(BF16))
    )
    assert code(error) is Code.CHECK
    assert f"die (0, 0), `f` instruction 0: `{name.split()[-1]}` rounds more than once" in str(error)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_partial_sums_in_bf16_are_told(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the result is bf16 itself."""

    def in_two_parts(run: Callable[..., None], c: Array, a: Array, b: Array, *attrs: Any) -> None:
        a, b = a.astype(np.float32), b.astype(np.float32)
        c[...] = shortened(a[..., :4] @ b[..., :4, :]) + shortened(a[..., 4:] @ b[..., 4:, :])

    on_kernels(in_two_parts, monkeypatch)
    text = INSTRUCTIONS["gemm"].format(dtype)
    assert code(failure(loaded(text, numbers(0).astype(BF16), numbers(1).astype(BF16)))) is Code.CHECK


def test_small_differences_of_large_numbers_pass() -> None:
    """A sum that is 2^-20 of its terms, of which f32 gets a tenth wrong."""
    x = np.stack([numbers(0, 32), -numbers(0, 32)]).reshape(64) * 1000
    x[:32] += numbers(1, 32) * 1e-3
    text = 'sum f32[]@a2 <- f32[64]@a0 axes="0" accumulate=false'
    loaded(text, x, x).run_step()


@pytest.mark.parametrize("x", [-80.0, -12.0, 12.0, 80.0])
def test_slopes_of_a_sigmoid_far_out_pass(x: float) -> None:
    """Where 1 minus it would have few digits left."""
    text = "sigmoid_bwd f32[64]@a2 <- f32[64]@a0, f32[64]@a1"
    loaded(text, numbers(0, 64) * np.float32(0.1) + np.float32(x), numbers(1, 64)).run_step()


@pytest.mark.parametrize("scale", [1e-22, 1e19])
def test_numbers_at_the_ends_of_f32_pass(scale: float) -> None:
    x = numbers(0, 64) * np.float32(scale)
    loaded("mul f32[64]@a2 <- f32[64]@a0, f32[64]@a1", x, x).run_step()


def test_products_below_the_least_numbers_of_f32_pass() -> None:
    """Each of eight is less than half of the least one, and lost; their sum is three of these in f64."""
    x = np.full(64, 2.2e-23, np.float32)
    loaded("gemm f32[8,8]@a2 <- f32[8,8]@a0, f32[8,8]@a1 scale=1.0 accumulate=false", x, x).run_step()


@pytest.mark.parametrize("name", [n for n in INSTRUCTIONS if n != "gelu"])  # which is its operand there
@pytest.mark.parametrize("rounds", [False, True])
def test_roundings_of_large_numbers_are_told(
    name: str, rounds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 2^50: squares are in the range of f32."""

    def change(run: Callable[..., None], *args: Any) -> None:
        run(*args)
        if rounds:
            args[0][...] = shortened(args[0])

    on_kernels(change, monkeypatch)
    x, y = ((numbers(seed) * 2.0**50).astype(BF16) for seed in (0, 1))
    m = loaded(INSTRUCTIONS[name].format("f32"), x, y)
    if rounds:
        assert code(failure(m)) is Code.CHECK
    else:
        m.run_step()


def test_what_overflows_inside_is_no_rounding() -> None:
    """The variance is infinite in f32, and the row 0: that the run diverges is said after the step."""
    x = numbers(0) * np.float32(1e25)
    text = "layernorm f32[8,8]@a2 <- f32[8,8]@a0, f32[8]@a1, f32[8]@a1 eps=0.00001"
    loaded(text, x, numbers(1)).run_step()


def test_probabilities_that_sum_to_one_in_f32_do_not_have_to_in_f64() -> None:
    """`rowmean` looks for the rounding of its own type; where the sum is not one, it leaves what was there."""
    p = np.abs(numbers(0)).reshape(8, 8)
    p[:4] /= p[:4].sum(-1, keepdims=True)
    text = "rowmean f32[8]@a2 <- f32[8,8]@a0, f32[8,8]@a1, f32[8]@a2"
    loaded(text, p.reshape(-1), numbers(1)).run_step()
