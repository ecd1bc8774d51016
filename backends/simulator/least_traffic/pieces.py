"""Bytes at addresses that move with the variables of loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd

from wscc.ir.step import Affine
from wscc.ir.streams.program import Address

# The number of turns of each loop around a statement, by variable.
Counts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Piece:
    """At least `amount` distinct bytes, all from `low` up to `high`, which the variables move: by so many bytes a turn
    (`linear`), or by an index that wraps around times a stride (`wrapped`)."""

    low: int
    high: int
    amount: int = 0
    linear: tuple[tuple[str, int], ...] = ()
    wrapped: tuple[tuple[Affine, int], ...] = ()

    @staticmethod
    def of(address: Address, low: int, high: int) -> Piece:
        """Bytes from `low` up to `high` of an argument at an address, of which none is sure."""
        base, linear, wrapped = address.base, dict[str, int](), list[tuple[Affine, int]]()
        for index, stride in address.terms:
            if index.modulus:
                wrapped.append((index, stride))
                continue
            base += index.base * stride
            for variable, c in index.terms:
                linear[variable] = linear.get(variable, 0) + c * stride
        terms = tuple(sorted((v, c) for v, c in linear.items() if c))
        return Piece(base + low, base + high, 0, terms, tuple(wrapped))

    def apart(self, other: Piece, counts: Counts) -> bool:
        """Whether they share no byte, whatever the variables are."""
        if self.moves_as(other):
            return self.high <= other.low or other.high <= self.low
        (a, b), (c, d) = self._span(counts), other._span(counts)
        return b <= c or d <= a

    def moves_as(self, other: Piece) -> bool:
        """Whether the variables move both alike."""
        return (self.linear, self.wrapped) == (other.linear, other.wrapped)

    def at_same(self, other: Piece) -> bool:
        """Whether they lie between the same bytes, whatever the variables are."""
        return (self.low, self.high) == (other.low, other.high) and self.moves_as(other)

    def at(self, variable: str, turn: int) -> Piece:
        """In one turn of a loop."""
        moved = sum(c * turn for v, c in self.linear if v == variable)
        wrapped = tuple((_fixed(index, variable, turn), stride) for index, stride in self.wrapped)
        linear = tuple((v, c) for v, c in self.linear if v != variable)
        return replace(self, low=self.low + moved, high=self.high + moved, linear=linear, wrapped=wrapped)

    def swept(self, variable: str, turns: int) -> Piece:
        """In all turns from 0 on."""
        step = sum(c for v, c in self.linear if v == variable)
        found = [(i, s) for i, s in self.wrapped if any(v == variable for v, _ in i.terms)]
        times, low, high = 1, self.low, self.high
        if step:
            low, high = low + min(0, step * (turns - 1)), high + max(0, step * (turns - 1))
            if not found and abs(step) >= self.high - self.low:
                times = turns
        for index, stride in found:
            span = stride * (index.modulus - 1)
            # Where the other variables are is not known: the index is any.
            low, high = low + min(0, span), high + max(0, span)
            if not step and len(found) == 1 and abs(stride) >= self.high - self.low:
                times = min(turns, _cycle(index, variable))
        linear = tuple((v, c) for v, c in self.linear if v != variable)
        wrapped = tuple(w for w in self.wrapped if w not in found)
        return Piece(low, high, self.amount * times, linear, wrapped)

    def by_groups(self, variable: str, turns: int, inner: str) -> Piece:
        """With `variable` counting groups of so many turns, of which `inner` is the turn inside."""
        linear: list[tuple[str, int]] = []
        for v, c in self.linear:
            linear += [(v, c * turns), (inner, c)] if v == variable else [(v, c)]
        wrapped = tuple((_grouped(i, variable, turns, inner), s) for i, s in self.wrapped)
        return replace(self, linear=tuple(sorted(linear)), wrapped=wrapped)

    def _span(self, counts: Counts) -> tuple[int, int]:
        low, high = self.low, self.high
        for v, c in self.linear:
            far = c * (counts[v] - 1)
            low, high = low + min(0, far), high + max(0, far)
        for index, stride in self.wrapped:
            ends = [n * stride for n in index.span(counts)]
            low, high = low + min(ends), high + max(ends)
        return low, high


def _fixed(index: Affine, variable: str, turn: int) -> Affine:
    moved = sum(c * turn for v, c in index.terms if v == variable)
    return Affine(index.base + moved, tuple((v, c) for v, c in index.terms if v != variable), index.modulus)


def _cycle(index: Affine, variable: str) -> int:
    """After how many turns an index is back."""
    step = sum(c for v, c in index.terms if v == variable)
    return index.modulus // gcd(step, index.modulus)


def _grouped(index: Affine, variable: str, turns: int, inner: str) -> Affine:
    terms: list[tuple[str, int]] = []
    for v, c in index.terms:
        terms += [(v, c * turns), (inner, c)] if v == variable else [(v, c)]
    return Affine(index.base, tuple(terms), index.modulus)
