"""The step of a module: loops of calls, their indices, and walks over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Final

from wscc.diagnostics import NO_SPAN, Span

# Turns of loops over which the remainders of an index are looked at one by one.
_MOST_TURNS: Final = 1024


@dataclass(frozen=True, slots=True)
class Affine:
    """`(base + sum of coefficient x loop variable) mod modulus`; modulus 0 means no wrap."""

    base: int = 0
    terms: tuple[tuple[str, int], ...] = ()
    modulus: int = 0

    def at(self, variables: dict[str, int]) -> int:
        """The index for these values of the loop variables."""
        n = self.base
        for v, c in self.terms:
            n += c * variables[v]
        return n % self.modulus if self.modulus else n

    def span(self, counts: Mapping[str, int]) -> tuple[int, int]:
        """The least and the greatest index in loops of these counts, each at least 1; with a modulus and many turns,
        all remainders count."""
        ends = [(0, c * (counts[v] - 1)) for v, c in self.terms]
        low, high = self.base + sum(map(min, ends)), self.base + sum(map(max, ends))
        if not self.modulus:
            return low, high
        turns = prod(min(counts[v], self.modulus) for v, _ in self.terms)
        if turns > _MOST_TURNS:
            return 0, self.modulus - 1
        ranges = [range(min(counts[v], self.modulus)) for v, _ in self.terms]
        values = [
            (self.base + sum(c * i for (_, c), i in zip(self.terms, turn, strict=True))) % self.modulus
            for turn in product(*ranges)
        ]
        return min(values), max(values)


@dataclass(frozen=True, slots=True)
class Ref:
    """An element of an array."""

    array: str
    index: tuple[Affine, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a procedure; `args` are the array elements bound to its arguments, in order."""

    procedure: str
    args: tuple[Ref, ...]
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Loop:
    """`variable` runs from 0 to `count` - 1."""

    variable: str
    count: int
    body: tuple[Call | Loop, ...]
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Stage:
    """The step of the dies of pipeline stage `index` alone. Stages exchange messages in calls that both make."""

    index: int
    body: tuple[Call | Loop, ...]
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


Step = tuple[Call | Loop | Stage, ...]


def substituted(a: Affine, variables: dict[str, Affine]) -> Affine:
    """The index with each loop variable in `variables` replaced by an affine expression (without a modulus)."""
    base, terms = a.base, []
    for name, c in a.terms:
        expression = variables.get(name)
        if expression is None:
            terms.append((name, c))
            continue
        base += c * expression.base
        terms += [(v, c * k) for v, k in expression.terms]
    return Affine(base, tuple(terms), a.modulus)


def calls(step: Step) -> Iterator[tuple[Call, int]]:
    """Every call of the step with the number of times it runs."""
    for stmt in step:
        if isinstance(stmt, Call):
            yield stmt, 1
        else:
            count = stmt.count if isinstance(stmt, Loop) else 1
            for call, times in calls(stmt.body):
                yield call, times * count


def walk(step: Step, variables: dict[str, int] | None = None) -> Iterator[tuple[Call, dict[str, int]]]:
    """Every dynamic call in order, with the values of the loop variables: the loops unrolled, for engines and tests."""
    variables = variables or {}
    for stmt in step:
        if isinstance(stmt, Call):
            yield stmt, variables
        elif isinstance(stmt, Stage):
            yield from walk(stmt.body, variables)
        else:
            for i in range(stmt.count):
                yield from walk(stmt.body, {**variables, stmt.variable: i})
