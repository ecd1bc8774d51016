"""Rings and paths through exactly the given dies: whether they exist, in which order, or what forbids them.

Exact, by search with a memory of dead ends; meant for sets of up to some thirty dies.
"""

from __future__ import annotations

from collections.abc import Collection

from wscc.machine.topology import Topology

Order = tuple[int, ...]


def ring_order(topology: Topology, dies: Collection[int]) -> Order | None:
    """The dies such that each is next to the one before and the last to the first, from the lowest die; None
    if there is no such order. Two neighbours are a ring, and so is one die."""
    if len(dies) <= 2:
        return path_order(topology, dies)
    if ring_obstacle(topology, dies):
        return None
    start = min(dies)
    return _Search(topology, dies, start).from_die(start)


def path_order(topology: Topology, dies: Collection[int]) -> Order | None:
    """The dies such that each is next to the one before, from the lowest possible end, or None."""
    if path_obstacle(topology, dies):
        return None
    search = _Search(topology, dies, None)
    return next((order for d in sorted(dies) if (order := search.from_die(d)) is not None), None)


def ring_obstacle(topology: Topology, dies: Collection[int]) -> str:
    """What forbids a closed ring through these dies: their number, colours or a dead end; empty if nothing
    simple does (there may still be none)."""
    if len(dies) <= 2:
        return path_obstacle(topology, dies)
    if topology.colours is not None:
        if len(dies) % 2:
            return f"a ring has an even number of dies, not {len(dies)}"
        if excess := _excess(topology, dies):
            return f"a ring has as many dies of one colour as of the other, {_counts(len(dies), excess)}"
    if alone := sorted(set(dies) - _reach(topology, dies)):
        return f"no live link leads from die {topology.name_of(min(dies))} to {topology.name_of(alone[0])}"
    ends = [d for d in sorted(dies) if len(_inside(topology, d, dies)) < 2]
    return f"die {topology.name_of(ends[0])} has fewer than 2 neighbours" if ends else ""


def path_obstacle(topology: Topology, dies: Collection[int]) -> str:
    """The same for an open path."""
    if len(dies) > 1 and (alone := sorted(set(dies) - _reach(topology, dies))):
        return f"no live link leads from die {topology.name_of(min(dies))} to {topology.name_of(alone[0])}"
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
    found = set(stack)
    while stack:
        fresh = [n for n in _inside(topology, stack.pop(), dies) if n not in found]
        found.update(fresh)
        stack += fresh
    return found


class _Search:
    """Depth first over (last die, dies left); states that failed once are not entered again."""

    def __init__(self, topology: Topology, dies: Collection[int], home: int | None) -> None:
        self.dies = frozenset(dies)
        self.beside = {d: _inside(topology, d, self.dies) for d in self.dies}
        self.home = home
        self.failed: set[tuple[int, frozenset[int]]] = set()

    def from_die(self, start: int) -> Order | None:
        """An order that starts there and, if `home` is set, ends next to it."""
        walk = [start]
        left = set(self.dies) - {start}
        choices = [self._choices(start, left)]
        while choices:
            if not left and (self.home is None or self.home in self.beside[walk[-1]]):
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

    def _choices(self, here: int, left: set[int]) -> list[int]:
        """Where to go next, best last: the die with the fewest ways out."""
        if (here, frozenset(left)) in self.failed or self._is_hopeless(here, left):
            return []
        ways = {n: sum(m in left for m in self.beside[n]) for n in self.beside[here] if n in left}
        return sorted(ways, key=lambda n: (-ways[n], -n))

    def _is_hopeless(self, here: int, left: set[int]) -> bool:
        """A die that cannot be reached at all, or too many that can only be the last."""
        dead_ends = 0
        for d in left:
            ways = sum(m in left or m in (here, self.home) for m in self.beside[d])
            if ways == 0 or (ways == 1 and self.home is not None):
                return True
            dead_ends += ways == 1
        return dead_ends > 1
