"""The search for regions that share a byte on some class of dies, against a look at every byte."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from wscc.analysis.intervals.overlaps import overlapping

CLASSES = 2
dims = st.sampled_from(
    [(), ((1, 1),), ((3, 1),), ((2, 8), (3, 1)), ((3, 8), (2, 1)), ((2, 16), (2, 8), (1, 1))]
)
regions = st.tuples(
    dims, st.lists(st.tuples(st.integers(0, 30), st.booleans()), min_size=CLASSES, max_size=CLASSES)
)


def bytes_of(low: int, shape: tuple[tuple[int, int], ...]) -> set[int]:
    if not shape:
        return set()
    found = {low}
    for count, stride in shape:
        found = {b + i * stride for b in found for i in range(count)}
    return found


@settings(max_examples=75, deadline=None, derandomize=True)
@given(st.lists(regions, min_size=1, max_size=8))
def test_regions_overlap_that_share_a_byte_on_a_class_that_accesses_both(
    items: list[tuple[tuple[tuple[int, int], ...], list[tuple[int, bool]]]],
) -> None:
    low = np.array([[at for at, _ in places] for _, places in items], np.int64)
    active = np.array([[on for _, on in places] for _, places in items], np.bool_)
    taken = [
        {(c, b) for c, (at, on) in enumerate(places) if on for b in bytes_of(at, shape)}
        for shape, places in items
    ]
    expected = [[j for j in range(len(items)) if i == j or taken[i] & taken[j]] for i in range(len(items))]
    assert [row.tolist() for row in overlapping(low, active, [shape for shape, _ in items])] == expected
