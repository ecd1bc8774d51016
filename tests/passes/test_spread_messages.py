"""`spread_messages`: dependent statements keep their order, and gathers of weights begin earlier."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.fabric_engine import assert_same, initial_state, run_scheduled
from tests.support.fabric_modules import Case
from tests.support.models import Shape, gpt
from wscc.driver.pipeline import Pipeline, check
from wscc.ir.fabric import Kernel, Send, Transfer
from wscc.ir.module import Module, Procedure
from wscc.passes.form_phases import FormPhases
from wscc.passes.route import Route
from wscc.passes.schedule import Schedule
from wscc.passes.spread_messages import SpreadMessages


def marked(module: Module) -> Module:
    """The module with each collective marked as an op of its own, as lowering marks them."""

    def body(p: Procedure) -> Procedure:
        named = (replace(s, source=s.group) if isinstance(s, Transfer) else s for s in p.body)
        return replace(p, body=tuple(s for s in named if isinstance(s, Kernel | Transfer)))

    return module.with_(procedures=tuple(map(body, module.procedures)))


@settings(deadline=None, max_examples=25)
@given(
    st.builds(Case, st.integers(2, 5), st.just(2), st.integers(4, 9), st.integers(0, 2**32)),
    st.integers(0, 999),
)
def test_memory_ends_as_before(case: Case, seed: int) -> None:
    module = marked(case.module)
    scheduled = Schedule().run(Route().run(FormPhases().run(module)))
    spread = SpreadMessages().run(scheduled)
    state = initial_state(module, seed)
    assert_same(run_scheduled(scheduled, state, Random(seed)), run_scheduled(spread, state, Random(seed)))
    for before, after in zip(scheduled.procedures, spread.procedures, strict=True):
        assert sorted(map(repr, before.body)) == sorted(map(repr, after.body))


def test_a_weight_is_gathered_while_the_one_before_it_is_used() -> None:
    graph = gpt({"dp": 4}, Shape(batch=8, d=32, ffn=64), zero=3)
    scheduled = Pipeline.default(2).before(SpreadMessages).run(graph)
    spread = SpreadMessages().run(scheduled)
    check(spread, "spread_messages")

    def positions(module: Module, weight: str) -> tuple[list[int], list[int]]:
        """Positions of the sends that gather a weight, and of the products."""
        body = module.procedure("block.fwd").body
        sends = [i for i, s in enumerate(body) if isinstance(s, Send) and s.source == f"{weight}.dp"]
        return sends, [i for i, s in enumerate(body) if isinstance(s, Kernel) and s.opcode == "gemm"]

    late = {id(scheduled): 0, id(spread): 0}
    for weight in ("wo", "w1", "w2"):
        sends, products = positions(scheduled, weight)
        use = sum(i < sends[-1] for i in products)
        for module in (scheduled, spread):
            sends, products = positions(module, weight)
            late[id(module)] += sum(products[use - 1] < i < products[use] for i in sends)
    assert late[id(spread)] < late[id(scheduled)] == 6
