"""Hamiltonian cycles and paths through a set of dies: an order of the dies, or an obstacle that forbids one.

Exact, by depth-first search with a memo of failed states; meant for sets of up to some thirty dies.
"""

from __future__ import annotations

from collections.abc import Collection

from wscc.machine.topology import Topology

Order = tuple[int, ...]


def ring_order(topology: Topology, dies: Collection[int]) -> Order | None:
    """The dies in the order of a ring (each next to the one before, the last to the first), from the lowest die.

    None if there is no ring through all of them. Two neighbours are a ring, and so is one die."""
    if len(dies) <= 2:
        return path_order(topology, dies)
    if ring_obstacle(topology, dies):
        return None
    start = min(dies)
    return _Search(topology, dies, start).from_die(start)


def path_order(topology: Topology, dies: Collection[int]) -> Order | None:
    """The dies in the order of a path (each next to the one before), from the lowest possible end, or None."""
    if path_obstacle(topology, dies):
        return None
    search = _Search(topology, dies, None)
    return next((order for d in sorted(dies) if (order := search.from_die(d)) is not None), None)


def ring_obstacle(topology: Topology, dies: Collection[int]) -> str:
    """The reason, in words, why no ring leads through these dies: their number, colours or a dead end.

    Empty if none of these forbids it (there may still be no ring)."""
    if len(dies) <= 2:
        return path_obstacle(topology, dies)
    if topology.colours is not None:
        if len(dies) % 2:
            return f"a ring has an even number of dies, not {len(dies)}"
        if excess := _excess(topology, dies):
            return f"a ring has as many dies of one colour as of the other, {_counts(len(dies), excess)}"
    if unreached := sorted(set(dies) - _reach(topology, dies)):
        return (
            f"no live link leads from die {topology.name_of(min(dies))} to {topology.name_of(unreached[0])}"
        )
    ends = [d for d in sorted(dies) if len(_inside(topology, d, dies)) < 2]
    return f"die {topology.name_of(ends[0])} has fewer than 2 neighbours" if ends else ""


def path_obstacle(topology: Topology, dies: Collection[int]) -> str:
    """The reason, in words, why no path leads through these dies; empty as in `ring_obstacle`."""
    if len(dies) > 1 and (unreached := sorted(set(dies) - _reach(topology, dies))):
        return (
            f"no live link leads from die {topology.name_of(min(dies))} to {topology.name_of(unreached[0])}"
        )
    if topology.colours is not None and (excess := _excess(topology, dies)) > 1:
        return f"a path alternates between two colours, {_counts(len(dies), excess)}"
    ends = [d for d in sorted(dies) if len(_inside(topology, d, dies)) < 2]
    if len(ends) > 2:
        names = ", ".join(topology.name_of(d) for d in ends)
        return f"a path has two ends, and dies {names} have fewer than 2 neighbours"
    return ""


def _excess(topology: Topology, dies: Collection[int]) -> int:
    assert topology.colours is not None
    ones = sum(topology.colours[d] for d in dies)
    return abs(len(dies) - 2 * ones)


def _counts(total: int, excess: int) -> str:
    return f"not {(total + excess) // 2} and {(total - excess) // 2}"


def _inside(topology: Topology, die: int, dies: Collection[int]) -> list[int]:
    return [n for n in topology.neighbours[die] if n in dies]


def _reach(topology: Topology, dies: Collection[int]) -> set[int]:
    """The dies that can be reached from the lowest without leaving them."""
    stack = [min(dies)]
    reached = set(stack)
    while stack:
        neighbours = [n for n in _inside(topology, stack.pop(), dies) if n not in reached]
        reached.update(neighbours)
        stack += neighbours
    return reached


class _Search:
    """Depth-first search over (last die, dies left); states that failed once are not entered again."""

    def __init__(self, topology: Topology, dies: Collection[int], home: int | None) -> None:
        self.dies = frozenset(dies)
        self.neighbours = {d: _inside(topology, d, self.dies) for d in self.dies}
        self.home = home
        self.failed: set[tuple[int, frozenset[int]]] = set()

    def from_die(self, start: int) -> Order | None:
        """An order that starts at `start` and, if `home` is set, ends next to it; None if there is none."""
        walk = [start]
        left = set(self.dies) - {start}
        choices = [self._choices(start, left)]
        while choices:
            if not left and (self.home is None or self.home in self.neighbours[walk[-1]]):
                return tuple(walk)
            if choices[-1]:
                walk.append(choices[-1].pop())
                left.discard(walk[-1])
                choices.append(self._choices(walk[-1], left))
            else:
                choices.pop()
                last = walk.pop()
                self.failed.add((last, frozenset(left)))
                left.add(last)
        return None

    def _choices(self, die: int, left: set[int]) -> list[int]:
        """The next dies to try, best last: the one with the fewest free neighbours."""
        if (die, frozenset(left)) in self.failed or self._is_hopeless(die, left):
            return []
        degree = {n: sum(m in left for m in self.neighbours[n]) for n in self.neighbours[die] if n in left}
        return sorted(degree, key=lambda n: (-degree[n], -n))

    def _is_hopeless(self, die: int, left: set[int]) -> bool:
        """Whether a die is out of reach, or too many can only be the last."""
        dead_ends = 0
        for d in left:
            degree = sum(m in left or m in (die, self.home) for m in self.neighbours[d])
            if degree == 0 or (degree == 1 and self.home is not None):
                return True
            dead_ends += degree == 1
        return dead_ends > 1
