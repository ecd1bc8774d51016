"""Disjoint sets: the same as those that a search through the pairs finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wscc.disjoint_sets import DisjointSets

THINGS = st.integers(0, 9)


@given(st.lists(THINGS), st.lists(st.lists(THINGS, max_size=4)))
def test_two_things_are_together_where_a_chain_of_unions_joins_them(
    first: list[int], unions: list[list[int]]
) -> None:
    sets = DisjointSets(first)
    for together in unions:
        sets.union(*together)
    named = list(dict.fromkeys([*first, *(x for together in unions for x in together)]))
    assert list(sets) == named

    reached = {x: {x} for x in named}
    for _ in named:  # as often as a chain is long
        for together in unions:
            for x in named:
                if reached[x] & set(together):
                    reached[x] |= set(together)
    assert all((sets[a] == sets[b]) == (b in reached[a]) for a in named for b in named)
    assert list(sets.to_sets()) == [s for x, s in reached.items() if x == next(n for n in named if n in s)]
    assert all(sets[x] in reached[x] for x in named)
