"""Attention in tiles: every score in one tile, and results that do not depend on the size of the fast memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.models import Shape, gpt, llama
from wscc.driver.compile import compile_graph
from wscc.driver.train import RunOptions, run
from wscc.ir.fabric import Kernel
from wscc.ir.module import Module
from wscc.machine.wafer import Die, Wafer
from wscc.passes.lower_collectives.tiles import tiles

SIZES = st.fixed_dictionaries(
    {
        "b": st.integers(1, 3),
        "q": st.sampled_from([1, 6, 128, 384]),
        "h": st.integers(1, 6),
        "g": st.integers(1, 4),
    }
)


@given(SIZES, st.integers(1, 2000), st.integers(1, 1 << 22))
def test_every_row_of_scores_is_in_one_tile_and_tiles_fit(sizes: dict[str, int], row: int, most: int) -> None:
    sizes = {**sizes, "e": 8}
    order = ("b", "q", "h", "g", "e")
    seen: Counter[tuple[int, ...]] = Counter()
    for tile in tiles(sizes, order, row, most):
        spans = [tile.spans.get(f, (0, sizes[f])) for f in order[:-1]]
        seen.update(product(*(range(first, first + n) for first, n in spans)))
        rows = prod(n for _, n in spans)
        least = min(sizes["q"], 128)
        assert row * rows <= most or (rows < 2 * least and spans[0][1] == spans[2][1] == spans[3][1] == 1)
    assert set(seen.values()) == {1}
    assert len(seen) == prod(sizes[f] for f in order[:-1])


@pytest.mark.parametrize(
    ("family", "degrees"),
    [(gpt, {"tp": 2}), (llama, {"sp": 2}), (llama, {"dp": 2})],
    ids=["heads split", "ring attention", "grouped heads"],
)
def test_a_small_fast_memory_changes_no_result(
    family: Callable[..., Module], degrees: dict[str, int]
) -> None:
    """Two tiles of queries of a head, one head after the other."""
    keys = 256
    shape = Shape(batch=4, seq=keys * degrees.get("sp", 1), layers=1)
    half = 8 * 128 * keys
    wafer = Wafer("w", 1, 2, Die(sram=8 * half))
    compiled = compile_graph(family(degrees, shape, wafer=wafer))
    forward = compiled.modules["lower_collectives"].procedure("block.fwd")
    scores = [s.writes[0] for s in forward.body if isinstance(s, Kernel) and s.opcode == "softmax"]
    assert len(scores) > 2
    assert {view.bytes for view in scores} == {half}
    check = run(compiled.artifact, RunOptions(steps=2), check=True).check
    assert check is not None
    assert check.ok, check
