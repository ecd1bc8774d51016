"""Streaming groups where damage leaves neither rings nor paths lie along a walk, and the placement says so."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.support.models import Shape, gpt
from wscc.faults.patterns import damaged
from wscc.ir.module import Module
from wscc.machine.topology import mesh_topology
from wscc.machine.wafer import Wafer, dead_link
from wscc.passes.differentiate import Differentiate
from wscc.passes.partition import Partition
from wscc.passes.place import placement

WHOLE = Wafer("w", 4, 8)
# Four teeth on a row: no walk of neighbours visits all of them.
COMB = Wafer("comb", 2, 4, dead_links=frozenset(dead_link((1, c), (1, c + 1)) for c in range(3)))


def sharded(degrees: dict[str, int], wafer: Wafer) -> Module:
    shape = Shape(batch=2 * degrees.get("dp", 1) * degrees["tatp"], calls=2)
    return Partition().run(Differentiate().run(gpt(degrees, shape, wafer=wafer)))


@pytest.mark.parametrize("seed", [0, 2, 3, 9])
def test_a_quarter_of_dead_links_leaves_every_strategy_a_place(seed: int) -> None:
    """Consecutive dies of a group are three links apart at most, as those around a spanning tree."""
    wafer = damaged(WHOLE, "random links", 0.25, seed)
    topology = mesh_topology(wafer)
    assert len(topology.islands) == 1
    found = placement(sharded({"dp": 4, "tatp": 8}, wafer))
    assert sorted(found.dies) == list(range(32))
    for first in range(0, 32, 8):
        group = found.dies[first : first + 8]
        assert max(topology.distance(a, b) for a, b in pairwise(group)) <= 3


def test_the_placement_says_why_groups_are_no_neighbours() -> None:
    note = placement(sharded({"tatp": 8}, COMB)).axis("tatp").note
    assert "no neighbours" in note
    assert "needs a path of 8 neighbouring dies" in note
    assert not placement(sharded({"tatp": 8}, Wafer("w", 2, 4))).axis("tatp").note
