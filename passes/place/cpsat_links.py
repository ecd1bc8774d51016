"""The links that circuits set up, by CP-SAT: at most so many at a die, all used dies joined, the most weight kept.

With two links at a die, those of all used dies are one circuit or path, which CP-SAT has a constraint for. With more,
a choice that falls apart is cut off: some link has to lead out of each part of it. An answer is checked by who asks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from ortools.sat.python import cp_model

from wscc.machine.topology import Hop, Topology
from wscc.passes.place.cpsat_rings import new_solver

# Of each solution, in CP-SAT's deterministic time; choices that fall apart and are cut off.
_LIMIT: Final = 0.3
_CUTS: Final = 200


@dataclass(frozen=True, slots=True)
class Choice:
    """The links that are up, (a, b) with a < b; None if none was found. `proven`: no other choice keeps more weight, or
    there is none."""

    links: frozenset[Hop] | None
    proven: bool


def heaviest_links(
    topology: Topology, used: Collection[int], weights: Mapping[Hop, int], up: int, hint: Collection[Hop] = ()
) -> Choice:
    """The links (a, b), a < b, of most weight with at most `up` at each die, which join all dies of `used`, of one
    island; of two equal ones, that with more links. `weights` are not negative, and 0 where none is given; `hint` is a
    choice to begin with."""
    model = _Model(topology, used, weights, up)
    model.begin_with(hint)
    for _ in range(_CUTS):
        solver = new_solver(0, _LIMIT)
        status = solver.solve(model.model)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return Choice(None, status == cp_model.INFEASIBLE)
        links = frozenset(link for link, is_up in model.is_up.items() if solver.boolean_value(is_up))
        if not (parts := _parts(links, used)):
            return Choice(links, status == cp_model.OPTIMAL)
        for part in parts:
            model.leave(part)
    return Choice(None, False)


class _Model:
    """A Boolean for each link."""

    def __init__(
        self, topology: Topology, used: Collection[int], weights: Mapping[Hop, int], up: int
    ) -> None:
        self.model = cp_model.CpModel()
        self.is_up = {(a, b): self.model.new_bool_var("") for a, b in topology.links if a < b}
        at: dict[int, list[cp_model.IntVar]] = {die: [] for die in topology.live}
        for link, var in self.is_up.items():
            for end in link:
                at[end].append(var)
        for near in at.values():
            self.model.add(sum(near) <= up)
        if up == 2:
            self._on_one_walk(topology.live, frozenset(used))
        many = len(self.is_up) + 1
        self.model.maximize(sum((weights.get(k, 0) * many + 1) * var for k, var in self.is_up.items()))

    def _on_one_walk(self, live: Collection[int], used: frozenset[int]) -> None:
        """All links lie on one circuit, or path, through all dies that are used: a path leads through one node more."""
        end = max(live) + 1
        arcs = [(end, end, self.model.new_bool_var(""))]
        for die in live:
            arcs += [(*ends, self.model.new_bool_var("")) for ends in ((die, end), (end, die))]
            if die not in used:
                arcs.append((die, die, self.model.new_bool_var("")))
        for (a, b), is_up in self.is_up.items():
            there, back = self.model.new_bool_var(""), self.model.new_bool_var("")
            self.model.add(there + back == is_up)
            arcs += [(a, b, there), (b, a, back)]
        self.model.add_circuit(arcs)

    def begin_with(self, links: Collection[Hop]) -> None:
        if links:
            for link, var in self.is_up.items():
                self.model.add_hint(var, link in links)

    def leave(self, part: Collection[int]) -> None:
        """Some link leads out of a part of the dies."""
        self.model.add_bool_or([v for (a, b), v in self.is_up.items() if (a in part) != (b in part)])


def _parts(links: Collection[Hop], used: Collection[int]) -> list[set[int]]:
    """The parts that links join dies to, of those with dies in use, where there is more than one of them."""
    near: dict[int, list[int]] = {die: [] for die in used}
    for a, b in links:
        near.setdefault(a, []).append(b)
        near.setdefault(b, []).append(a)
    parts: list[set[int]] = []
    for die in used:
        if not any(die in part for part in parts):
            part, stack = {die}, [die]
            while stack:
                stack += (new := [n for n in near[stack.pop()] if n not in part])
                part.update(new)
            parts.append(part)
    return parts if len(parts) > 1 else []
