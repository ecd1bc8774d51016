"""Cuts: what they prove is what a count over every set of dies proves."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.support.traffic import MB, damaged
from wscc.machine.topology import Topology
from wscc.routing.cuts import best_block, best_simple_cut
from wscc.routing.flows import Demand

SEEDS = (14, 15, 21, 34, 36, 53, 61, 70, 74)


def demands_of(topology: Topology, seed: int) -> list[Demand]:
    draw = random.Random(seed)
    demands = []
    for _ in range(9):
        source, *ends = draw.sample(topology.islands[0], draw.randint(2, 5))
        demands.append(Demand(source, MB * draw.randint(1, 3), tuple(ends), tuple((0,) for _ in ends)))
    return demands


def proven(topology: Topology, demands: list[Demand], fixed: list[float], inside: set[int]) -> float:
    """The mean bytes of the links into a set, at least."""
    into = [i for i, (a, b) in enumerate(topology.links) if a not in inside and b in inside]
    need = sum(d.bytes for d in demands if d.source not in inside and inside & set(d.destinations))
    return (need + sum(fixed[i] for i in into)) / len(into) if into else 0.0


def best_of_all(topology: Topology, demands: list[Demand], fixed: list[float]) -> float:
    """The same for the best of all 65,534 sets of a 4 x 4 mesh."""
    inside = np.arange(1 << 16)[:, None] >> np.arange(16) & 1 > 0
    need, links = np.zeros(1 << 16), np.zeros(1 << 16)
    for d in demands:
        need += d.bytes * (~inside[:, d.source] & inside[:, list(d.destinations)].any(axis=1))
    for (a, b), amount in zip(topology.links, fixed, strict=True):
        need += amount * (~inside[:, a] & inside[:, b])
        links += ~inside[:, a] & inside[:, b]
    return float((need[links > 0] / links[links > 0]).max())


@pytest.mark.parametrize("seed", SEEDS)
def test_the_best_block_is_the_best_of_all_sets(seed: int) -> None:
    """Seeds for which no rectangle is: a climb from one finds it."""
    topology = damaged(4, 4, seed % 2, seed % 3, seed)
    demands = demands_of(topology, seed)
    fixed = [float(MB * (i % 3)) for i in range(len(topology.links))]
    cut = best_block(topology, demands, np.array(fixed))
    assert cut.bound == pytest.approx(best_of_all(topology, demands, fixed))
    assert cut.prices.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(6))
def test_a_simple_cut_is_a_die_or_one_side_of_a_line(seed: int) -> None:
    topology = damaged(3, 4, 1, 1, seed)
    demands = demands_of(topology, seed)
    fixed = [0.0] * len(topology.links)
    lines = [{d for d in range(12) if d // 4 >= r} for r in (1, 2)] + [
        {d for d in range(12) if d % 4 >= c} for c in (1, 2, 3)
    ]
    sets = [*lines, *({d} for d in range(12))]
    sets += [set(range(12)) - inside for inside in sets]
    best = max(proven(topology, demands, fixed, inside) for inside in sets)
    assert best_simple_cut(topology, demands, np.array(fixed)).bound == pytest.approx(best)
