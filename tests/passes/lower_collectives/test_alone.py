"""Reshards that stand alone in their procedure: none is slower than its ring."""

from __future__ import annotations

import pytest

from tests.passes.lower_collectives.drawn_reshards import Drawn, Links, Memory
from wscc.driver.pipeline import Rehearsal
from wscc.passes.lower_collectives import algorithms

NO_LATENCY = Links(4_000_000_000_000, 0.0)
# Some of those that estimates alone would make slower than their rings, by up to a quarter.
WORST = {
    "in one or in two": Drawn((1, 4), Links(1_250_000_000, 5e-6), "all_reduce", (("dp", 4),), 18_000),
    "groups that cross": Drawn(
        (2, 3), Links(103_720_793_466, 1.6786247e-6, 256), "all_reduce", (("dp", 3), ("tp", 2)), 8_370_631
    ),
    "rows with dead links": Drawn(
        (5, 8),
        Links(238_333_790_300, 4.768786987e-7, 16),
        "all_reduce",
        (("dp", 8), ("tp", 5)),
        406_129,
        cut=(((1, 6), (2, 6)), ((0, 5), (0, 6)), ((1, 7), (2, 7))),
    ),
    "a dead die": Drawn(
        (3, 2),
        Links(89_427_240_756, 7.9448579e-7, 16),
        "all_reduce",
        (("dp", 5),),
        15_278_033,
        dead=((2, 1),),
    ),
    "a scatter on an odd mesh": Drawn(
        (3, 7), Links(22_965_212_776, 2.14798842e-7), "reduce_scatter", (("dp", 21),), 229_348
    ),
    "trees in another order than timed": Drawn((3, 4), NO_LATENCY, "all_reduce", (("dp", 12),), 15 << 21),
    "trees on two rows": Drawn((2, 5), NO_LATENCY, "all_reduce", (("dp", 10),), 15 << 21),
    "all at once on full links": Drawn((2, 5), NO_LATENCY, "all_reduce", (("dp", 5), ("tp", 2)), 23_843_919),
    "parts that spill to HBM": Drawn(
        (6, 2),
        Links(5_227_489_864, 4.48091e-6, 16),
        "all_reduce",
        (("dp", 12),),
        320_559,
        memory=Memory(1 << 20, 14_170_110_147),
    ),
    "a scatter in HBM": Drawn(
        (2, 6),
        Links(1_017_573_983_801, 3.274985e-6, 16),
        "reduce_scatter",
        (("dp", 12),),
        5_847_000,
        cut=(((0, 1), (0, 2)), ((0, 3), (1, 3))),
        memory=Memory(1 << 16, 12_089_051_012),
    ),
    "a gather in HBM, far apart by its links": Drawn(
        (7, 5),
        Links(7_168_551_541_588, 2.012856e-7),
        "all_gather",
        (("dp", 35),),
        4_761_044,
        memory=Memory(1 << 20, 122_119_101_083),
    ),
    "a tree on a large odd mesh": Drawn(
        (7, 11), Links(259_000_000_000, 1.37e-8), "all_reduce", (("dp", 77),), 24_000
    ),
}


@pytest.mark.parametrize("name", WORST)
def test_no_reshard_that_is_alone_is_slower_than_its_ring(name: str) -> None:
    assert WORST[name].ratio() <= 1


def test_the_ring_is_kept_where_a_rehearsal_would_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless estimates are so far apart that no rehearsal is needed."""

    def never(*_: object) -> float:
        raise AssertionError("rehearsed")

    monkeypatch.setattr(algorithms, "_MOST_REHEARSED", 0)
    monkeypatch.setattr(Rehearsal, "__call__", never)
    assert WORST["a dead die"].ratio() == WORST["a tree on a large odd mesh"].ratio() == 1
    assert WORST["a tree on a large odd mesh"]._replace(size=512).ratio() <= 0.5
    # Of a ring between neighbours the estimate is right: less than half of it is surely less.
    assert Drawn((9, 8), Links(4 * 10**12, 2e-7), "all_reduce", (("dp", 72),), 1 << 22).ratio() <= 0.5
