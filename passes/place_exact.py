"""Disjoint rings or paths by CP-SAT, for wafers on which growing them fails.

Two models. Where all candidate regions can be listed, a packing: one Boolean per candidate, each die in at
most one. Else circuits: one Boolean per die, group and link, every group a circuit through its members.
Both stop on deterministic time, run on one worker and use a fixed seed, so that machine load cannot change
the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import networkx as nx
from ortools.sat.python import cp_model
from wscc.passes.place_grow import Ask, Region

from wscc.machine.topology import Topology

# Work limits, in steps of the walk through candidates and in Booleans of the circuit model.
_CANDIDATE_STEPS = 200_000
_MAX_CANDIDATES = 20_000
_MAX_ARCS = 60_000


@dataclass(frozen=True, slots=True)
class Found:
    """`regions` is None if there are none; `proven` says whether that is certain."""

    regions: list[Region] | None
    proven: bool


def exact_regions(topology: Topology, island: Sequence[int], ask: Ask, *, seed: int, limit: float) -> Found:
    """The regions asked for. `limit` is deterministic time (about seconds on a fast core)."""
    if ask.size == 2:
        return _matching(topology, island, ask.count)
    candidates = _candidates(topology, island, ask)
    if candidates is not None:
        return _pack(candidates, ask.count, seed, limit)
    return _circuits(topology, island, ask, seed, limit)


def new_solver(seed: int, limit: float) -> cp_model.CpSolver:
    """A solver whose answer depends on nothing but the model."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = limit
    return solver


def _matching(topology: Topology, island: Sequence[int], count: int) -> Found:
    inside = set(island)
    graph = nx.Graph(sorted((a, b) for a, b in topology.links if a < b and a in inside))
    pairs = sorted(tuple(sorted(p)) for p in nx.max_weight_matching(graph, maxcardinality=True))
    return Found([tuple(p) for p in pairs[:count]] if len(pairs) >= count else None, True)


def _candidates(topology: Topology, island: Sequence[int], ask: Ask) -> list[Region] | None:
    """One order for every set of dies that has one, or None if listing them takes too long."""
    inside = frozenset(island)
    found: dict[frozenset[int], Region] = {}
    steps = 0
    for start in island:
        for walk in _walks(topology, inside, start, ask):
            steps += 1
            if len(walk) == ask.size:
                found.setdefault(frozenset(walk), walk)
            if steps > _CANDIDATE_STEPS or len(found) > _MAX_CANDIDATES:
                return None
    return list(found.values())


def _walks(topology: Topology, inside: frozenset[int], start: int, ask: Ask) -> Iterator[Region]:
    """Every walk from `start` up to the size asked for, whole ones closed if they must be.

    A ring starts at its lowest die. A walk too far from its start to close is given up.
    """
    home = topology.distances(start)
    walk = [start]
    choices = [_onward(topology, inside, walk, ask, home)]
    while choices:
        if choices[-1]:
            walk.append(choices[-1].pop())
            if len(walk) < ask.size:
                yield tuple(walk)
                choices.append(_onward(topology, inside, walk, ask, home))
                continue
            if not ask.closed or home[walk[-1]] == 1:
                yield tuple(walk)
            walk.pop()
        else:
            choices.pop()
            walk.pop()


def _onward(
    topology: Topology, inside: frozenset[int], walk: list[int], ask: Ask, home: list[int]
) -> list[int]:
    room = ask.size - len(walk)
    return [
        n
        for n in reversed(topology.neighbours[walk[-1]])
        if n in inside and n not in walk and not (ask.closed and (n < walk[0] or home[n] > room))
    ]


def _pack(candidates: list[Region], count: int, seed: int, limit: float) -> Found:
    model = cp_model.CpModel()
    taken = [model.new_bool_var("") for _ in candidates]
    by_die: dict[int, list[cp_model.IntVar]] = {}
    for region, var in zip(candidates, taken, strict=True):
        for die in region:
            by_die.setdefault(die, []).append(var)
    for die in sorted(by_die):
        model.add_at_most_one(by_die[die])
    model.add(sum(taken) == count)
    solver = new_solver(seed, limit)
    status = solver.solve(model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Found([r for r, v in zip(candidates, taken, strict=True) if solver.boolean_value(v)], True)
    return Found(None, status == cp_model.INFEASIBLE)


def _circuits(topology: Topology, island: Sequence[int], ask: Ask, seed: int, limit: float) -> Found:
    inside = set(island)
    links = [(a, b) for a, b in topology.links if a in inside]
    if ask.count * (len(links) + len(island)) > _MAX_ARCS:
        return Found(None, False)
    model = cp_model.CpModel()
    # A path is a circuit through one more node, the last, which stands for no die.
    node = {die: i for i, die in enumerate(island)}
    ends = (
        [] if ask.closed else [pair for i in node.values() for pair in ((len(island), i), (i, len(island)))]
    )
    pairs = [*((node[a], node[b]) for a, b in links), *ends]
    member = [[model.new_bool_var("") for _ in island] for _ in range(ask.count)]
    steps = [[(a, b, model.new_bool_var("")) for a, b in pairs] for _ in range(ask.count)]
    for group, arcs in zip(member, steps, strict=True):
        model.add_circuit([*arcs, *((i, i, ~inside) for i, inside in enumerate(group))])
        model.add(sum(group) == ask.size)
    for i in range(len(island)):
        model.add_at_most_one(group[i] for group in member)
    _order_groups(model, member)
    solver = new_solver(seed, limit)
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Found(None, status == cp_model.INFEASIBLE)
    regions = [_follow({a: b for a, b, v in arcs if solver.boolean_value(v)}, island) for arcs in steps]
    return Found(regions, True)


def _order_groups(model: cp_model.CpModel, member: list[list[cp_model.IntVar]]) -> None:
    """Groups are alike: of two, the earlier one has the lower sum of dies, or any if the sums are equal."""
    totals = [sum(i * v for i, v in enumerate(group)) for group in member]
    for a, b in pairwise(totals):
        model.add(a <= b)


def _follow(after: dict[int, int], island: Sequence[int]) -> Region:
    """The dies of a circuit in order: from the node of no die if it has that, else from its lowest die."""
    start = max(after) if max(after) == len(island) else min(after)
    walk = [start]
    while after[walk[-1]] != start:
        walk.append(after[walk[-1]])
    return tuple(island[i] for i in walk if i < len(island))
