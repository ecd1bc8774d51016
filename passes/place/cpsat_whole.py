"""A CP-SAT model of the whole placement, for small wafers: it improves a placement or proves it optimal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, isclose

import numpy as np
from ortools.sat.python import cp_model

from wscc.machine.topology import Topology
from wscc.passes.place.cpsat_rings import new_solver
from wscc.passes.place.types import IntArray, Shape, axis_groups, axis_pairs, closing_pairs, dies_of

# Weights become integers of up to this size.
_PRECISION = 1000


@dataclass(frozen=True, slots=True)
class Joint:
    """`dies` by logical index, or None if none were found; `proven`: they are optimal, or none exist."""

    dies: IntArray | None
    proven: bool


def joint(
    topology: Topology, shape: Shape, closed: bool, hint: IntArray | None, *, seed: int, limit: float
) -> Joint:
    """The cheapest placement on the live dies whose ring axes are of rings (`closed`) or paths."""
    model = _Model(topology, shape, closed)
    if hint is not None:
        model.start_from(hint)
    solver = new_solver(seed, limit)
    status = solver.solve(model.model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Joint(None, status == cp_model.INFEASIBLE)
    return Joint(model.dies(solver), status == cp_model.OPTIMAL and model.is_exact)


class _Model:
    """A Boolean per (logical die, physical die); hops of a pair are the sum of its row and column distances,
    or more where damage is in the way."""

    def __init__(self, topology: Topology, shape: Shape, closed: bool) -> None:
        self.model, self.topology = cp_model.CpModel(), topology
        self.detours = _detours(topology)
        self.on = [{d: self.model.new_bool_var("") for d in topology.live} for _ in range(dies_of(shape))]
        for logical in self.on:
            self.model.add_exactly_one(logical.values())
        for die in topology.live:
            self.model.add_at_most_one(logical[die] for logical in self.on)
        for i, axis in enumerate(shape):
            if axis.ring:
                self._keep_together(axis_groups(shape, i), closed)
        weights, self.is_exact = _integers([w for a in shape for w in (a.weight, a.weight * a.closing)])
        self._minimise(shape, weights, closed)

    def _keep_together(self, groups: IntArray, closed: bool) -> None:
        """Constrain each die of a group to be next to the one after it."""
        next_dies = np.roll(groups, -1, axis=1)
        last = None if closed and groups.shape[1] > 2 else -1
        for a, b in zip(groups[:, :last].flat, next_dies[:, :last].flat, strict=True):
            for here, there in ((self.on[a], self.on[b]), (self.on[b], self.on[a])):
                for die in self.topology.live:
                    options = [there[n] for n in self.topology.neighbours[die]]
                    self.model.add_bool_or(~here[die], *options)

    def _minimise(self, shape: Shape, weights: Sequence[int], closed: bool) -> None:
        """Minimise traffic x hops; pairs of closed rings are one hop apart already."""
        sides = [self._coordinates(axis) for axis in (0, 1)]
        terms = []
        for i, axis in enumerate(shape):
            last = {(a, b) for a, b in closing_pairs(shape, i).tolist()}
            for a, b in axis_pairs(shape, i).tolist():
                weight = weights[2 * i + ((a, b) in last)]
                if (axis.ring and closed) or not weight:
                    continue
                across, down = (self._gap(side[a], side[b]) for side in sides)
                hops = self.model.new_int_var(1, self.topology.dies, "")
                self.model.add(hops >= across + down)
                self._detour(a, b, hops)
                terms.append(weight * hops)
        self.model.minimize(sum(terms))

    def _detour(self, a: int, b: int, hops: cp_model.LinearExpr) -> None:
        """Constrain the hops of a pair around damage, which makes some dies farther apart than rows and columns."""
        for here, there, distance in self.detours:
            both = [self.on[a][here], self.on[b][there]]
            self.model.add(hops >= distance).only_enforce_if(both)

    def _coordinates(self, axis: int) -> list[cp_model.LinearExpr]:
        """The row (0) or column (1) of each logical die."""
        coordinate = {d: self.topology.coordinate(d)[axis] for d in self.topology.live}
        return [
            cp_model.LinearExpr.weighted_sum(list(x.values()), [coordinate[d] for d in x]) for x in self.on
        ]

    def _gap(self, a: cp_model.LinearExpr, b: cp_model.LinearExpr) -> cp_model.IntVar:
        gap = self.model.new_int_var(0, self.topology.dies, "")
        self.model.add(gap >= a - b)
        self.model.add(gap >= b - a)
        return gap

    def start_from(self, dies: IntArray) -> None:
        """Give the solver a placement as a hint."""
        for logical, die in zip(self.on, dies, strict=True):
            for d, on in logical.items():
                self.model.add_hint(on, d == die)

    def dies(self, solver: cp_model.CpSolver) -> IntArray:
        return np.array([next(d for d, on in x.items() if solver.boolean_value(on)) for x in self.on])


def _detours(topology: Topology) -> list[tuple[int, int, int]]:
    """(die, die, hops) of all pairs that are farther apart than on a whole mesh."""
    detours = []
    for a in topology.live:
        for b in topology.live:
            (ra, ca), (rb, cb) = topology.coordinate(a), topology.coordinate(b)
            hops = topology.distance(a, b)
            if hops > abs(ra - rb) + abs(ca - cb):
                detours.append((a, b, hops))
    return detours


def _integers(weights: Sequence[float]) -> tuple[list[int], bool]:
    """The weights in proportion, as small integers, and whether those are exact."""
    largest = max(weights, default=0.0)
    scaled = [round(_PRECISION * w / largest) if largest else 0 for w in weights]
    is_exact = all(
        isclose(s * largest, w * _PRECISION, rel_tol=1e-9) for s, w in zip(scaled, weights, strict=True)
    )
    common = gcd(*scaled) or 1
    return [s // common for s in scaled], is_exact
