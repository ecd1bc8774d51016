"""Instructions of two procedures beside each other, against a comparison of every instruction on every die."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from wscc.equivalence.same_code import SameCode
from wscc.ir.streams.program import Code, Column, Field, Instruction, Operand, Scalar
from wscc.ir.types import DType

COLUMNS, DIES = 3, 4
FIELDS: st.SearchStrategy[Field] = st.integers(0, 2) | st.integers(0, COLUMNS - 1).map(Column)
SCALARS: st.SearchStrategy[Scalar] = FIELDS | st.sampled_from([False, True, 0.5, "sent", 1 << 70])
OPERANDS = st.builds(
    Operand, st.integers(-1, 0), FIELDS, st.just((2,)), st.sampled_from([(1,), (2,)]), st.just(DType.F32)
)
ATTRS = st.lists(st.tuples(st.sampled_from(["a", "b", "route"]), SCALARS), max_size=2)
# Of these few, two that are drawn are often alike.
SIDES = st.lists(OPERANDS, max_size=1).map(tuple)
BODIES = st.lists(st.builds(Instruction, st.just("op"), SIDES, SIDES, ATTRS.map(tuple)), max_size=3)
TABLES = st.lists(st.integers(0, 2), min_size=COLUMNS * DIES, max_size=COLUMNS * DIES)


def on_die(x: Instruction | None, row: list[int]) -> list[object] | None:
    """All of an instruction but its route, as a die runs it."""
    if x is None:
        return None

    def value(v: Scalar) -> object:
        return row[v.index] if isinstance(v, Column) else ("bool", v) if isinstance(v, bool) else v

    def operand(o: Operand) -> tuple[object, ...]:
        return o.arg, value(o.offset), o.shape, o.strides, o.dtype

    attrs = [(name, value(v)) for name, v in x.attrs if name != "route"]
    return [x.opcode, list(map(operand, x.writes)), list(map(operand, x.reads)), attrs]


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Code, Code]:
    """Two bodies: unlike ones, or one whose last instructions are others."""
    one, two = draw(BODIES), draw(BODIES)
    kept = draw(st.integers(0, len(one)))
    return Code("p", 1, tuple(one)), Code("p", 1, (*one[:kept], *two[kept:]))


@settings(max_examples=300, deadline=None)
@given(pairs(), TABLES, TABLES)
def test_the_first_difference_is_that_of_the_instructions_of_each_die(
    codes: tuple[Code, Code], one: list[int], two: list[int]
) -> None:
    same, tables = SameCode(), [np.array(t, np.int64).reshape(DIES, COLUMNS) for t in (one, two)]
    a, b = codes

    def differing(die: int) -> Iterator[int]:
        rows = [t[die].tolist() for t in tables]
        for i, (x, y) in enumerate(zip_longest(a.body, b.body)):
            if on_die(x, rows[0]) != on_die(y, rows[1]):
                yield i

    for die in range(DIES):
        first = next(differing(die), None)
        assert same.first_difference(a, tables[0][die], b, tables[1][die]) == first


def one_attr(value: Scalar) -> Code:
    return Code("p", 0, (Instruction("op", attrs=(("a", value),)),))


def test_values_are_compared_with_and_without_a_table() -> None:
    none, same = np.zeros(0, np.int64), SameCode()
    a, b, column, flag, huge = map(one_attr, (1, 2, Column(0), True, 1 << 70))
    assert same.first_difference(a, none, a, none) is None
    assert same.first_difference(a, none, b, none) == 0
    assert same.first_difference(a, none, flag, none) == 0
    assert same.first_difference(huge, none, huge, none) is None
    for code, number in ((a, 1), (b, 2)):
        assert same.first_difference(code, none, column, np.array([number])) is None
        assert same.first_difference(code, none, column, np.array([3])) == 0
    for code in (flag, huge):
        assert same.first_difference(code, none, column, np.array([1])) == 0
