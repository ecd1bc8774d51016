"""Integers that may differ by die: one integer for all dies, or one for each logical die."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from operator import add


@dataclass(frozen=True, slots=True)
class PerDie:
    """An integer for each logical die, not all the same (`per_die` collapses those that are)."""

    values: tuple[int, ...]
    # Views, and masks of statements, are keys of many tables; a hash anew takes time in dies.
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(self.values))

    def __hash__(self) -> int:
        return self._hash

    def __getitem__(self, die: int) -> int:
        return self.values[die]

    def __iter__(self) -> Iterator[int]:
        return iter(self.values)


Ints = int | PerDie

# The peer of a die that sends to none, or receives from none.
NOBODY = -1


def per_die(values: Iterable[int]) -> Ints:
    """One value for each die; a plain integer if all are equal."""
    return _collapsed(tuple(map(int, values)))


def _collapsed(items: tuple[int, ...]) -> Ints:
    return items[0] if items.count(items[0]) == len(items) else PerDie(items)


def at(ints: Ints, die: int) -> int:
    """The integer of one logical die."""
    return ints if isinstance(ints, int) else ints.values[die]


# Slices of views add and multiply the same few again and again.
@lru_cache(maxsize=1024)
def plus(a: Ints, b: Ints) -> Ints:
    """Sum, die by die."""
    if isinstance(a, int):
        if isinstance(b, int):
            return a + b
        return plus(b, a)
    if isinstance(b, int):
        return PerDie(tuple([x + b for x in a.values])) if b else a
    return _collapsed(tuple(map(add, a.values, b.values)))


@lru_cache(maxsize=1024)
def times(ints: Ints, factor: int) -> Ints:
    """Product, die by die."""
    if isinstance(ints, int):
        return ints * factor
    if factor == 0:
        return 0
    return ints if factor == 1 else PerDie(tuple([v * factor for v in ints.values]))


def over(ints: Ints, divisor: int) -> Ints:
    """Quotient, rounded down, die by die."""
    return ints // divisor if isinstance(ints, int) else per_die(v // divisor for v in ints.values)


def times_each(a: Ints, b: Ints) -> Ints:
    """Product of two, die by die."""
    if isinstance(a, int):
        return times(b, a)
    return per_die(x * at(b, i) for i, x in enumerate(a.values))


def flipped(where: Ints) -> Ints:
    """The complement of a mask of zeros and ones."""
    return 1 - where if isinstance(where, int) else PerDie(tuple(1 - v for v in where.values))
