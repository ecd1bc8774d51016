"""A bounded part of `make fuzz`: random models, wafers and strategies are equal to one device, or refused."""

from __future__ import annotations

from tests.fuzz import REFUSALS, hunt


def test_random_programs_are_equal_or_refused() -> None:
    """60 draws, always the same; most refusals are wafers with too few dies for the strategy drawn."""
    counts, failures = hunt(seconds=600, seed=2000, draws=60)
    assert not failures, failures[0]
    assert counts["equal"] >= 15
    assert set(counts) <= {"equal", *REFUSALS}
