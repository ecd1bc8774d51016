"""Disjoint rings or paths by CP-SAT, for wafers on which growing them fails.

Where all candidate regions can be listed, a packing: one Boolean per candidate, each die in at most one.
Else a circuit for one group, and positions for several: one Boolean per die and position, and per step to
the next. All stop on deterministic time, run on one worker and use a fixed seed, so that machine load cannot
change the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ortools.sat.python import cp_model

from wscc.machine.topology import Topology
from wscc.passes.place.grow import Region, RegionSpec

Positions = list[cp_model.IntVar]

# Work limits: steps of the walk through candidates, candidates, clauses of the model of positions, and
# the least deterministic time that a solution counts that has to be cut off.
_CANDIDATE_STEPS = 100_000
_MAX_CANDIDATES = 20_000
_MAX_CLAUSES = 16_000
_LEAST_TIME = 0.05


@dataclass(frozen=True, slots=True)
class ExactRegions:
    """`regions` is None if none were found; `proven` says whether it is certain that there are none."""

    regions: list[Region] | None
    proven: bool


def exact_regions(
    topology: Topology, island: Sequence[int], spec: RegionSpec, *, seed: int, limit: float
) -> ExactRegions:
    """Disjoint regions as `spec` asks. `limit` is deterministic time (about seconds on a fast core)."""
    if spec.size == 2:
        return _matching(topology, island, spec.count)
    candidates = _candidates(topology, island, spec)
    if candidates is not None:
        return _pack(candidates, spec.count, seed, limit)
    if spec.count == 1:
        return _circuit(topology, island, spec, seed, limit)
    return _by_position(topology, island, spec, seed, limit)


def new_solver(seed: int, limit: float) -> cp_model.CpSolver:
    """A solver whose solution depends on nothing but the model, the seed and the limit."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.catch_sigint_signal = False  # it would leave Ctrl-C without Python's handler
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = limit
    return solver


def _matching(topology: Topology, island: Sequence[int], count: int) -> ExactRegions:
    """Regions of two dies: a maximum matching."""
    inside = set(island)
    # Imported here: few wafers need it, and it takes as long as all else of this file.
    import networkx as nx

    graph = nx.Graph(sorted((a, b) for a, b in topology.links if a < b and a in inside))
    pairs = sorted(tuple(sorted(p)) for p in nx.max_weight_matching(graph, maxcardinality=True))
    return ExactRegions([tuple(p) for p in pairs[:count]] if len(pairs) >= count else None, True)


def _candidates(topology: Topology, island: Sequence[int], spec: RegionSpec) -> list[Region] | None:
    """A ring or path for every set of dies that has one; None if listing them takes too long."""
    inside = frozenset(island)
    by_dies: dict[frozenset[int], Region] = {}
    steps = 0
    for start in island:
        for walk in _walks(topology, inside, start, spec):
            steps += 1
            if len(walk) == spec.size:
                by_dies.setdefault(frozenset(walk), walk)
            if steps > _CANDIDATE_STEPS or len(by_dies) > _MAX_CANDIDATES:
                return None
    return list(by_dies.values())


def _walks(topology: Topology, inside: frozenset[int], start: int, spec: RegionSpec) -> Iterator[Region]:
    """Every simple walk from `start` up to the size of the spec; walks of that size are closed if they must be.

    A ring starts at its lowest die. A walk too far from its start to close is given up.
    """
    distance = topology.distances(start)
    walk = [start]
    choices = [_onward(topology, inside, walk, spec, distance)]
    while choices:
        if choices[-1]:
            walk.append(choices[-1].pop())
            if len(walk) < spec.size:
                yield tuple(walk)
                choices.append(_onward(topology, inside, walk, spec, distance))
                continue
            yield tuple(walk)
            walk.pop()
        else:
            choices.pop()
            walk.pop()


def _onward(
    topology: Topology, inside: frozenset[int], walk: list[int], spec: RegionSpec, distance: list[int]
) -> list[int]:
    room = spec.size - len(walk)
    return [
        n
        for n in reversed(topology.neighbours[walk[-1]])
        if n in inside and n not in walk and not (spec.closed and (n < walk[0] or distance[n] > room))
    ]


def _pack(candidates: list[Region], count: int, seed: int, limit: float) -> ExactRegions:
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
        return ExactRegions(
            [r for r, v in zip(candidates, taken, strict=True) if solver.boolean_value(v)], True
        )
    return ExactRegions(None, status == cp_model.INFEASIBLE)


def _circuit(
    topology: Topology, island: Sequence[int], spec: RegionSpec, seed: int, limit: float
) -> ExactRegions:
    """One region by a circuit constraint. A path is a circuit through one more node, the last, which is no die."""
    model = cp_model.CpModel()
    node = {die: i for i, die in enumerate(island)}
    end = len(island)
    links = [(node[a], node[b]) for a, b in topology.links if a in node]
    if not spec.closed:
        links += [pair for i in node.values() for pair in ((end, i), (i, end))]
    arcs = [(a, b, model.new_bool_var("")) for a, b in links]
    used = [model.new_bool_var("") for _ in island]
    model.add_circuit([*arcs, *((i, i, ~var) for i, var in enumerate(used))])
    model.add(sum(used) == spec.size)
    solver = new_solver(seed, limit)
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return ExactRegions(None, status == cp_model.INFEASIBLE)
    successor = {a: b for a, b, var in arcs if solver.boolean_value(var)}
    walk = [successor.get(end, min(successor))]
    while len(walk) < spec.size:
        walk.append(successor[walk[-1]])
    return ExactRegions([tuple(island[i] for i in walk)], True)


def _by_position(
    topology: Topology, island: Sequence[int], spec: RegionSpec, seed: int, limit: float
) -> ExactRegions:
    """Regions by a model of positions: steps from die to die count 0, 1, ... up to the size, so groups need no names.

    In this model two rings may come as one of twice the size; such solutions are cut off one by one.
    """
    inside = set(island)
    links = [(a, b) for a, b in topology.links if a in inside]
    if len(links) * spec.size > _MAX_CLAUSES:
        return ExactRegions(None, False)
    model = _PositionModel(topology, island, links, spec)
    while limit > 0:
        solver = new_solver(seed, limit)
        status = solver.solve(model.model)
        limit -= max(solver.response_proto.deterministic_time, _LEAST_TIME)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return ExactRegions(None, status == cp_model.INFEASIBLE)
        walks = model.walks(solver)
        if all(len(w) == spec.size for w in walks):
            return ExactRegions(walks, True)
        model.forbid(w for w in walks if len(w) > spec.size)
    return ExactRegions(None, False)


class _PositionModel:
    """A Boolean per (die, position) and per step along a link."""

    def __init__(
        self, topology: Topology, island: Sequence[int], links: Sequence[tuple[int, int]], spec: RegionSpec
    ) -> None:
        self.model, self.island, self.spec = cp_model.CpModel(), island, spec
        new = self.model.new_bool_var
        self.at = {d: [new("") for _ in range(spec.size)] for d in island}
        self.step = {link: new("") for link in links}
        for position in range(spec.size):
            self.model.add(sum(self.at[d][position] for d in island) == spec.count)
        for die in island:
            unused = new("")
            first, last = ([], []) if spec.closed else ([self.at[die][0]], [self.at[die][-1]])
            neighbours = topology.neighbours[die]
            self.model.add_exactly_one([*self.at[die], unused])
            self.model.add_exactly_one([*(self.step[die, n] for n in neighbours), *last, unused])
            self.model.add_exactly_one([*(self.step[n, die] for n in neighbours), *first, unused])
        for (a, b), step in self.step.items():
            self._count(step, self.at[a], self.at[b])
            if a < b:
                self.model.add_at_most_one(step, self.step[b, a])

    def _count(
        self, step: cp_model.IntVar, here: list[cp_model.IntVar], there: list[cp_model.IntVar]
    ) -> None:
        """A step leads from a position at one die (`here`) to the next position at the other (`there`)."""
        if not self.spec.closed:
            self.model.add_implication(step, ~here[-1])
            self.model.add_implication(step, ~there[0])
        for position in range(self.spec.size if self.spec.closed else self.spec.size - 1):
            following = there[(position + 1) % self.spec.size]
            self.model.add_bool_or(~step, ~here[position], following)
            self.model.add_bool_or(~step, ~following, here[position])

    def walks(self, solver: cp_model.CpSolver) -> list[Region]:
        """The regions of a solution: dies in order of position, from each at position 0 that no other walk passes."""
        successor = {a: b for (a, b), step in self.step.items() if solver.boolean_value(step)}
        walks: list[Region] = []
        seen: set[int] = set()
        for start in self.island:
            if start not in seen and solver.boolean_value(self.at[start][0]):
                walk = [start]
                while (following := successor.get(walk[-1], start)) != start:
                    walk.append(following)
                seen.update(walk)
                walks.append(tuple(walk))
        return walks

    def forbid(self, rings: Iterable[Region]) -> None:
        """Cut off solutions with any of these rings."""
        for ring in rings:
            self.model.add_bool_or(~self.step[a, b] for a, b in pairwise((*ring, ring[0])))
