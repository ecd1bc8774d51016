"""Disjoint sets of things that turn out to belong together (union-find)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class DisjointSets(Generic[T]):
    """Each thing is in one set, at first by itself, from the moment it is first named. A set is known by one of its
    members, `sets[thing]`: which one is unspecified, and changes when the set grows.

    The library that has this too takes longer to import than a small program takes to compile.
    """

    def __init__(self, things: Iterable[T] = ()) -> None:
        self._parents: dict[T, T] = {thing: thing for thing in things}
        self._sizes: dict[T, int] = {}  # of the sets of two and more, by the member that they are known by

    def __getitem__(self, thing: T) -> T:
        """The member that the set of `thing` is known by."""
        parents = self._parents
        root = parents.setdefault(thing, thing)
        while (above := parents[root]) != root:
            root = above
        while thing != root:  # the next time, the way is short
            parents[thing], thing = root, parents[thing]
        return root

    def __iter__(self) -> Iterator[T]:
        """All things that were named, in the order in which they first were."""
        return iter(self._parents)

    def union(self, *things: T) -> None:
        """Make one set of those of some things."""
        roots = list(dict.fromkeys(map(self.__getitem__, things)))
        if len(roots) > 1:
            largest = max(roots, key=lambda root: self._sizes.get(root, 1))
            self._sizes[largest] = sum(self._sizes.get(root, 1) for root in roots)
            self._parents.update(dict.fromkeys(roots, largest))

    def to_sets(self) -> Iterator[set[T]]:
        """The sets, in the order of their first things."""
        sets: dict[T, set[T]] = {}
        for thing in self._parents:
            sets.setdefault(self[thing], set()).add(thing)
        yield from sets.values()
