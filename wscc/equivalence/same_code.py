"""Instructions of two procedures beside each other: a pair of codes is gone through once for all dies, of which only
the integers of the binding tables are then compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from wscc.backends.verify.views import Ints
from wscc.ir.streams.program import Code, Column, Instruction, Scalar

# All of an instruction but some of its values, and these: offsets of operands, and attributes.
_Parts: TypeAlias = tuple[tuple[object, ...], Sequence[Scalar]]
# A value as the column of a binding table that it stands in, or as itself behind -1.
_Place: TypeAlias = tuple[int, int]
# Of the integers of a table.
_MOST: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class _Compared:
    """Two codes. `differs`: the first instruction that differs on every die. `numbers`: those of instructions before
    it that have an integer in a table, one entry for each, ascending; `places` [2, 2, entries]: of both codes, its
    column (-1: none) and its value."""

    differs: int | None
    numbers: Ints
    places: Ints

    def first(self, rows: tuple[Ints, Ints]) -> int | None:
        """The first instruction that differs on the die with these rows of the two binding tables."""
        one, two = (
            np.where(column < 0, value, np.append(row, 0)[column])
            for (column, value), row in zip(self.places, rows, strict=True)
        )
        wrong: list[int] = self.numbers[one != two][:1].tolist()
        return next(iter(wrong), self.differs)


@dataclass(slots=True)
class SameCode:
    """Comparison of codes, routes apart. What was compared must be kept: it is known by its identity."""

    _compared: dict[tuple[int, int], _Compared] = field(default_factory=dict)
    _places: dict[tuple[int, int], list[tuple[_Place, _Place]] | None] = field(default_factory=dict)

    def first_difference(self, a: Code, row: Ints, b: Code, other: Ints) -> int | None:
        """The number of the first instruction that differs, with the rows of the binding tables; None if none does."""
        key = id(a), id(b)
        if key not in self._compared:
            self._compared[key] = self._compare(a, b)
        return self._compared[key].first((row, other))

    def _compare(self, a: Code, b: Code) -> _Compared:
        differs = None if len(a.body) == len(b.body) else min(len(a.body), len(b.body))
        numbers: list[int] = []
        places: list[tuple[_Place, _Place]] = []
        for i, (x, y) in enumerate(zip(a.body, b.body, strict=False)):
            key = id(x), id(y)
            if key not in self._places:
                self._places[key] = _in_tables(_parts_of(x), _parts_of(y))
            found = self._places[key]
            if found is None:
                differs = i
                break
            numbers += [i] * len(found)
            places += found
        columns = np.array(places, np.int64).reshape(-1, 2, 2).transpose(1, 2, 0)
        return _Compared(differs, np.array(numbers, np.int64), columns)


def _parts_of(x: Instruction) -> _Parts:
    operands = (*x.writes, *x.reads)
    attrs = [(name, value) for name, value in x.attrs if name != "route"]
    forms = tuple((o.arg, o.shape, o.strides, o.dtype) for o in operands)
    form = x.opcode, len(x.writes), forms, tuple(name for name, _ in attrs)
    return form, [*(o.offset for o in operands), *(value for _, value in attrs)]


def _in_tables(one: _Parts, two: _Parts) -> list[tuple[_Place, _Place]] | None:
    """The pairs of values of which one stands in a table, as places; None where the instructions differ on all dies."""
    (form, mine), (other, theirs) = one, two
    if form != other:
        return None
    found: list[tuple[_Place, _Place]] = []
    for a, b in zip(mine, theirs, strict=True):
        if isinstance(a, Column) or isinstance(b, Column):
            x, y = _place(a), _place(b)
            if x is None or y is None:
                return None
            found.append((x, y))
        elif a != b or isinstance(a, bool) != isinstance(b, bool):
            return None
    return found


def _place(value: Scalar) -> _Place | None:
    """Where a value stands; None where it cannot stand in a table."""
    if isinstance(value, Column):
        return value.index, 0
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _MOST:
        return None
    return -1, value
