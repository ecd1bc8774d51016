"""A sample of all compositions of the five axes (all of them: `make fuzz-all`), which change from axis to axis."""

from __future__ import annotations

import pytest

from tests.fuzz.compositions import AXES, Composition, compositions, failures

ALL = list(compositions())
# A prime step, so that no axis, family or `zero` is left out for long.
SAMPLE = ALL[::103]


def test_there_are_several_hundred_and_the_sample_has_every_axis() -> None:
    assert len(ALL) > 500
    for axis in AXES:
        assert sum(c.degree(axis) > 1 for c in SAMPLE) >= 3, axis
    assert {c.zero for c in SAMPLE} == {0, 1, 3}
    assert {c.family for c in SAMPLE} == {"gpt", "llama"}
    assert {c.interleave for c in SAMPLE} == {1, 2}


@pytest.mark.parametrize("c", SAMPLE, ids=str)
def test_a_composition_equals_one_device_and_does_and_holds_its_share(c: Composition) -> None:
    """Loss, gradients and second-step weights in f64 and checked mode; FLOPs executed as stated, the highest byte
    written that of the report, bytes on links as stated, matrices with gradients and state by the formula."""
    assert list(failures(c)) == []
