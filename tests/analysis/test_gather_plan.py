"""Gather plans that bring each position what it uses, and no more."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from wscc.analysis.gather_plan import GatherPlan, Part, chain, direct, ring, used
from wscc.ir.per_die import NOBODY

PLANS = st.sampled_from([chain, direct, ring])
HALVES = {Part.WHOLE: {0, 1}, Part.LOW: {0}, Part.HIGH: {1}}


def held(plan: GatherPlan) -> list[set[tuple[int, int]]]:
    """The (shard, half) that each position has after all rounds; nobody may send what he has not before the round."""
    has = [{(p, 0), (p, 1)} for p in range(plan.size)]
    for round_ in plan.rounds:
        arrives = []
        for move in round_:
            for p, q in enumerate(move.to):
                if q != NOBODY:
                    halves = {(move.shard[p], h) for h in HALVES[move.part]}
                    assert halves <= has[p]
                    arrives.append((q, halves))
        for q, halves in arrives:
            has[q] |= halves
    return has


def messages(plan: GatherPlan) -> int:
    return sum(q != NOBODY for round_ in plan.rounds for move in round_ for q in move.to)


@settings(max_examples=60, deadline=None)
@given(PLANS, st.integers(2, 9), st.data())
def test_a_plan_brings_what_is_used_and_nothing_that_nobody_uses(
    make: object, size: int, data: st.DataObject
) -> None:
    uses = [data.draw(st.sets(st.integers(0, size - 1))) for _ in range(size)]
    whole = make(size)  # type: ignore[operator]
    plan = used(whole, uses)
    has = held(plan)
    for p, shards in enumerate(uses):
        assert {(s, h) for s in shards for h in (0, 1)} <= has[p]
    assert len(plan.rounds) == len(whole.rounds)
    assert messages(used(whole, [set(range(size))] * size)) == messages(whole)
    wanted = {s for p, shards in enumerate(uses) for s in shards if s != p}
    assert all(s in wanted for r in plan.rounds for m in r for s in m.sent if s != NOBODY)
