"""Integers that may differ by die: one integer for all dies, or one for each logical die."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import add


@dataclass(frozen=True, slots=True)
class PerDie:
    """An integer for each logical die, not all the same (`per_die` collapses those that are)."""

    values: tuple[int, ...]

    def __getitem__(self, die: int) -> int:
        return self.values[die]

    def __iter__(self) -> Iterator[int]:
        return iter(self.values)


Ints = int | PerDie

# The peer of a die that sends to none, or receives from none.
NOBODY = -1


def per_die(values: Iterable[int]) -> Ints:
    """One value for each die; a plain integer if all are equal."""
    items = tuple(map(int, values))
    return items[0] if len(set(items)) == 1 else PerDie(items)


def at(ints: Ints, die: int) -> int:
    """The integer of one logical die."""
    return ints if isinstance(ints, int) else ints.values[die]


def plus(a: Ints, b: Ints) -> Ints:
    """Sum, die by die."""
    if isinstance(a, int):
        if isinstance(b, int):
            return a + b
        return plus(b, a)
    return per_die(x + b for x in a.values) if isinstance(b, int) else per_die(map(add, a.values, b.values))


def times(ints: Ints, factor: int) -> Ints:
    """Product, die by die."""
    return ints * factor if isinstance(ints, int) else per_die(v * factor for v in ints.values)


def times_each(a: Ints, b: Ints) -> Ints:
    """Product of two, die by die."""
    if isinstance(a, int):
        return times(b, a)
    return per_die(x * at(b, i) for i, x in enumerate(a.values))


def flipped(where: Ints) -> Ints:
    """The complement of a mask of zeros and ones."""
    return 1 - where if isinstance(where, int) else PerDie(tuple(1 - v for v in where.values))
