"""Numbers of a narrower type are told from those of a wide one, and short ones that a right program has are not."""

from __future__ import annotations

import numpy as np
import pytest

from wscc.host.granularity import LongNumbers, bits
from wscc.ir.types import DType

BF16 = DType.BF16.numpy
RNG = np.random.default_rng(0)


def worst(got: np.ndarray, own: np.ndarray, dtype: DType = DType.F32) -> float:
    numbers = LongNumbers(dtype)
    numbers.add("w", got, own)
    return max((ratio for _, _, ratio in numbers.verdicts()), default=0.0)


def test_the_bits_of_a_significand() -> None:
    assert bits(np.array([1.0, -3.0, 2.0**-20 + 2.0**-30, 0.0, np.nan, 1 + 2.0**-52])).tolist() == [
        1,
        2,
        11,
        53,
    ]
    assert bits(np.arange(256, dtype=np.float32).astype(BF16)).max() == 8


def product_of_bf16(terms: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x, y = (rng.normal(size=s).astype(BF16).astype(np.float32) for s in ((16, terms), (terms, 16)))
    return x @ y


@pytest.mark.parametrize("contributions", [1, 2, 4])
def test_contributions_that_were_rounded_are_told(contributions: int) -> None:
    """Sums of products of bf16 numbers: each contribution rounded to bf16, or not, and then added in f32."""

    def total(seed: int, *, rounded: bool) -> np.ndarray:
        parts = [product_of_bf16(32, 10 * seed + i) for i in range(contributions)]
        return np.sum(
            [p.astype(BF16).astype(np.float32) if rounded else p for p in parts], axis=0, dtype=np.float32
        )

    assert worst(total(1, rounded=False), total(2, rounded=False)) <= 1
    assert worst(total(1, rounded=True), total(2, rounded=False)) > 1


def test_what_one_device_has_short_may_be_short() -> None:
    short = RNG.normal(size=(64, 16)).astype(BF16).astype(np.float32)
    assert worst(short, short) <= 1
    assert worst(short.astype(np.float64), short.astype(np.float64), DType.F64) <= 1


def test_few_numbers_say_nothing() -> None:
    few = RNG.normal(size=8).astype(np.float32)
    assert worst(few.astype(BF16).astype(np.float32), few) == 0


def test_f64_that_was_f32() -> None:
    wide = RNG.normal(size=100)
    assert worst(wide, wide, DType.F64) <= 1
    assert worst(wide.astype(np.float32).astype(np.float64), wide, DType.F64) > 1
