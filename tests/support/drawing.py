"""Hypothesis strategies that several tests draw from."""

from __future__ import annotations

from hypothesis import strategies as st

from wscc.ir.types import Layout, Reduction


def layouts(rank: int, axes: tuple[str, ...]) -> st.SearchStrategy[Layout]:
    places = st.tuples(*(st.sampled_from([*range(rank), "sum", None]) for _ in axes))
    order = st.permutations(range(len(axes)))

    def build(drawn: tuple[tuple[object, ...], list[int]]) -> Layout:
        at, turn = drawn
        dims: list[list[str]] = [[] for _ in range(rank)]
        partial = {}
        for i in turn:
            where = at[i]
            if isinstance(where, int):
                dims[where].append(axes[i])
            elif where == "sum":
                partial[axes[i]] = Reduction.SUM
        return Layout(tuple(map(tuple, dims))).with_partial(partial)

    return st.tuples(places, order).map(build)
