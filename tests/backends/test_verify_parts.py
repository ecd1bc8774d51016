"""The parts of `wscc verify`, each against what it does byte by byte or call by call."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from wscc.backends.verify.calls import distinct_calls, sharing
from wscc.backends.verify.ledger import UNWRITTEN, Ledger, Object
from wscc.backends.verify.views import Runs, common, joined, meets, minus, union, view_runs, within
from wscc.ir.step import Affine
from wscc.ir.streams.program import (
    Address,
    ProgramCall,
    ProgramLoop,
    ProgramStep,
    calls_by_name,
    dynamic_calls,
)

some = settings(max_examples=30, deadline=None)

# ---- views

dims = st.lists(st.tuples(st.integers(1, 4), st.integers(-9, 9)), max_size=3)


def bytes_of(sizes: list[int], strides: list[int], item: int) -> set[int]:
    """Every byte of a view, element by element."""
    return {
        sum(i * s for i, s in zip(index, strides, strict=True)) * item + b
        for index in np.ndindex(*sizes)
        for b in range(item)
    }


@some
@given(dims, st.sampled_from([2, 4, 8]))
def test_the_runs_of_a_view_are_its_bytes(shape: list[tuple[int, int]], item: int) -> None:
    sizes, strides = [n for n, _ in shape], [s for _, s in shape]
    starts, ends = view_runs(tuple(sizes), tuple(strides), item)
    runs = list(zip(starts.tolist(), ends.tolist(), strict=True))
    assert {b for low, high in runs for b in range(low, high)} == bytes_of(sizes, strides, item)
    assert all(a[1] < b[0] for a, b in pairwise(runs))


def bytes_in(runs: Runs) -> set[int]:
    return {b for low, high in zip(*(r.tolist() for r in runs), strict=True) for b in range(low, high)}


ranges = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), min_size=1, max_size=4)


@some
@given(ranges, ranges)
def test_runs_are_sets_of_bytes(drawn: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    a, b = (
        joined(np.array([low for low, _ in r]), np.array([low + n for low, n in r])) for r in (drawn, other)
    )
    held, theirs = ({x for low, n in r for x in range(low, low + n)} for r in (drawn, other))
    assert bytes_in(union([a, b])) == held | theirs
    assert bytes_in(minus(a, b)) == held - theirs
    assert bytes_in(common(a, b)) == held & theirs
    assert meets(a, b) == bool(held & theirs)
    assert within(a, b) == (held <= theirs)


# ---- calls

indices = st.builds(
    lambda base, terms, modulus: Affine(base, tuple(terms.items()), modulus),
    st.integers(0, 3), st.dictionaries(st.sampled_from("lm"), st.integers(-2, 2), max_size=2), st.sampled_from([0, 3]),
)  # fmt: skip
addresses = st.builds(
    lambda base, terms: Address(base, tuple(terms)),
    st.integers(0, 99), st.lists(st.tuples(indices, st.integers(1, 7)), max_size=2),
)  # fmt: skip
calls = st.builds(
    lambda name, args: ProgramCall(name, tuple(args)), st.sampled_from("fg"), st.lists(addresses, max_size=2)
)


def loop(
    variable: str, body: st.SearchStrategy[list[ProgramCall | ProgramLoop]]
) -> st.SearchStrategy[ProgramLoop]:
    return st.builds(lambda n, b: ProgramLoop(variable, n, tuple(b)), st.integers(1, 5), body)


def without(a: Address, variables: str) -> Address:
    """Only indices of loops around it."""
    kept = tuple(
        (Affine(i.base, tuple(t for t in i.terms if t[0] in variables), i.modulus), stride)
        for i, stride in a.terms
    )
    return Address(a.base, kept)


def closed(step: list[ProgramCall | ProgramLoop], variables: str = "") -> ProgramStep:
    return tuple(
        ProgramLoop(s.variable, s.count, closed(list(s.body), variables + s.variable))
        if isinstance(s, ProgramLoop)
        else ProgramCall(s.procedure, tuple(without(a, variables) for a in s.args))
        for s in step
    )


inner = loop("m", st.lists(calls, max_size=3))
steps = st.lists(st.one_of(calls, loop("l", st.lists(st.one_of(calls, inner), max_size=3))), max_size=3).map(
    closed
)


@some
@given(steps)
def test_distinct_calls_are_all_calls_in_the_order_in_which_they_first_come(step: ProgramStep) -> None:
    assert list(dict.fromkeys(distinct_calls(step))) == list(dict.fromkeys(dynamic_calls(step)))
    names = [name for name, _ in dynamic_calls(step)]
    assert calls_by_name(step) == {name: names.count(name) for name in names}


def test_a_loop_that_does_the_same_each_time_is_not_unrolled() -> None:
    step = (ProgramLoop("m", 10**12, (ProgramCall("f", (Address(0),)),)),)
    assert list(distinct_calls(step)) == [("f", (0,))] * 2
    assert calls_by_name(step) == {"f": 10**12}


def test_arguments_that_share_memory_share_a_space() -> None:
    shared, spaces = sharing((100, 0, 104, 50), ((0, 8), (0, 8), (0, 8), (0, 8)))
    assert shared == ((0, 0), (1, 0), (0, 4), (2, 0))
    assert spaces == (100, 0, 50)


# ---- the ledger


@some
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12), st.booleans()), max_size=12))
def test_the_ledger_holds_what_every_byte_would(acts: list[tuple[int, int, bool]]) -> None:
    """Byte by byte: a write ends what it covers in part unless it lies inside it, `destroy` always does."""
    ledger, held = Ledger(), [UNWRITTEN] * 64
    for low, n, is_write in acts:
        high = low + n
        for old in set(held[low:high]) - {UNWRITTEN}:
            o = ledger.objects[old]
            if not is_write or not (o.low <= low and high <= o.high):
                held = [UNWRITTEN if h == old else h for h in held]
        if is_write:
            number = ledger.add(Object(low, high, 0))
            ledger.write(low, high, number)
            held[low:high] = [number] * n
        else:
            ledger.destroy(low, high)
        got = [UNWRITTEN] * 64
        for a, b, number in ledger.pieces(0, 64):
            got[a:b] = [number] * (b - a)
        assert got == held
