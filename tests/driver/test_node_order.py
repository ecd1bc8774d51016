"""The order of the nodes of a graph."""

from __future__ import annotations

import numpy as np
import pytest

from wscc.driver import node_order as orders


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("most_swapped", [2048, 0])
def test_an_order_of_nodes_has_each_once_and_cuts_few_edges(
    installed: bool, most_swapped: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With METIS where it is installed, and with both ways of networkx: a path whose nodes are numbered at random falls
    into 5 runs, of which each cut takes an edge both ways; small-bandwidth orders find the path itself."""
    monkeypatch.setattr(orders, "_MOST_SWAPPED", most_swapped)
    if not installed:
        monkeypatch.setattr(orders, "find_spec", lambda name: None)
    names = np.random.default_rng(1).permutation(60)
    edges = np.array([(names[i], names[j]) for i in range(60) for j in (i - 1, i + 1) if 0 <= j < 60])
    order = orders.node_order(edges, 60, 5)
    assert sorted(order) == list(range(60))
    part = np.argsort(order) // 12
    assert (part[edges[:, 0]] != part[edges[:, 1]]).sum() <= 3 * 2 * 4
