"""`overlap_calls`: merged calls compute what they did apart, and nothing grows with layers or micro-batches."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.fabric_engine import assert_same, initial_state, run_scheduled
from tests.support.fabric_modules import random_module
from tests.support.models import Shape, gpt
from wscc.driver.pipeline import Pipeline, check
from wscc.ir.array import Array, Kind
from wscc.ir.fabric import Kernel, Post, Send, Wait
from wscc.ir.module import Module, Output, Procedure
from wscc.ir.op import Value
from wscc.ir.step import Affine, Call, Loop, Ref, calls, walk
from wscc.ir.types import DType, TensorType
from wscc.ir.views import whole_view
from wscc.passes.form_phases import FormPhases
from wscc.passes.overlap_calls import OverlapCalls
from wscc.passes.overlap_calls.call_dependences import CallDependences
from wscc.passes.overlap_calls.components import components
from wscc.passes.plan_memory import PlanMemory
from wscc.passes.route import Route
from wscc.passes.schedule import Schedule

LAYERS = 3
KIND = TensorType((8,), DType.F64)


def rebound(module: Module, rng: Random) -> Module:
    """The procedures on arrays of an element per layer, in a step as training has them: loops over layers and calls
    in a loop over micro-batches, and behind it."""
    kind = module.arrays[0]
    arrays = [replace(kind, name=f"a{n}", extents=(LAYERS,), storage="") for n in range(7)]
    arrays.append(replace(arrays[0], name="again", storage="a0"))

    def called(layered: bool) -> Call | Loop:
        procedure = rng.choice(module.procedures)
        forwards, alone = rng.random() < 0.5, rng.randrange(LAYERS)
        index = (
            Affine(*((0, (("i", 1),)) if forwards else (LAYERS - 1, (("i", -1),))))
            if layered
            else Affine(alone)
        )
        names = list(dict.fromkeys(v.name for v in procedure.arguments))
        bound = dict(zip(names, rng.sample(arrays, len(names)), strict=True))
        call = Call(procedure.name, tuple(Ref(bound[v.name].name, (index,)) for v in procedure.arguments))
        return Loop("i", LAYERS, (call,)) if layered else call

    def statements() -> tuple[Call | Loop, ...]:
        return tuple(called(rng.random() < 0.7) for _ in range(rng.randint(1, 3)))

    return module.with_(
        arrays=tuple(arrays), step=(Loop("mb", rng.randint(1, 2), statements()), *statements())
    )


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 3), st.integers(2, 3), st.integers(2, 4), st.integers(0, 2**32))
def test_any_step_ends_with_the_same_memory(dies: int, procedures: int, length: int, seed: int) -> None:
    rng = Random(seed)
    module = rebound(random_module(rng, dies, procedures, length), rng)
    scheduled = Schedule().run(Route().run(FormPhases().run(module)))
    state = initial_state(module, seed)
    merged = OverlapCalls(worth=0).run(scheduled)
    assert_same(run_scheduled(scheduled, state, Random(seed)), run_scheduled(merged, state, Random(seed)))
    for p in merged.procedures:
        begun: set[tuple[type, int]] = set()
        for s in p.body:
            if isinstance(s, Post | Send):
                begun.add((type(s), s.channel))
            elif isinstance(s, Wait):
                assert {(Post, s.channel), (Send, s.channel)} <= begun


@lru_cache
def scheduled(layers: int, micro: int) -> Module:
    """Two replicas, whose gradients cross."""
    graph = gpt({"dp": 2}, Shape(batch=2 * micro, calls=micro, layers=layers))
    return Pipeline.default(2).before(OverlapCalls).run(graph)


def test_a_layer_is_completed_behind_the_next_one_in_the_last_micro_batch() -> None:
    module = OverlapCalls(worth=0).run(scheduled(layers=4, micro=3))
    check(module, "overlap_calls")
    seen = [(c.procedure, c.args, v) for c, v in walk(module.step)]
    backward = [p for p, *_ in seen if p.startswith("block.bwd")]
    both = backward[9]
    assert backward[:8] == ["block.bwd"] * 8
    assert backward[9:] == [both] * 3
    assert ".complete." in both
    # What is completed are gradients that the call before left: those of the layer behind.
    for (name, args, at), (_, before, earlier) in zip(seen[1:], seen, strict=False):
        if name == both:
            done = {(r.array, r.index[0].at(at)) for r in args if r.array.endswith(".wo.grad.partial")}
            left = {(r.array, r.index[0].at(earlier)) for r in before if r.array.endswith(".wo.grad.partial")}
            assert len(done & left) == 1


@pytest.mark.parametrize("sizes", [{"layers": 9, "micro": 2}, {"layers": 3, "micro": 7}], ids=str)
def test_nothing_grows_with_layers_or_micro_batches(sizes: dict[str, int]) -> None:
    small, large = (OverlapCalls(worth=0).run(scheduled(**n)) for n in ({"layers": 3, "micro": 2}, sizes))
    assert len([*calls(small.step)]) == len([*calls(large.step)])
    assert [len(p.body) for p in small.procedures] == [len(p.body) for p in large.procedures]


def test_where_memory_does_not_suffice_nothing_is_merged() -> None:
    module = scheduled(layers=3, micro=2)
    memory = PlanMemory().run(module).memory
    assert memory is not None
    die = replace(module.machine.die, sram=64, hbm=memory.arena_bytes)
    tight = module.with_(machine=replace(module.machine, die=die))
    assert OverlapCalls(worth=0).run(tight) == tight
    PlanMemory().run(tight)
    ample = tight.with_(machine=replace(module.machine, die=replace(die, hbm=2 * die.hbm)))
    assert OverlapCalls(worth=0).run(ample) != ample


def test_what_hides_little_is_not_merged() -> None:
    module = scheduled(layers=3, micro=2)
    assert OverlapCalls(worth=1000).run(module).step == module.step


def test_reading_what_is_written_keeps_its_order_and_reading_twice_does_not() -> None:
    module = random_module(Random(0), 2, 1, 1)
    p = replace(
        module.procedures[0], inputs=(Value("a", KIND),), outputs=(Output(Value("b", KIND)),), body=()
    )
    arrays = tuple(Array(n, KIND, Kind.CARRIED) for n in "xyz")
    dependences = CallDependences(module.with_(arrays=arrays, procedures=(p,)))
    xy, yz, zx, xz = (Call(p.name, (Ref(a), Ref(b))) for a, b in ("xy", "yz", "zx", "xz"))
    assert dependences.arrays_conflict(xy, yz)
    assert dependences.arrays_conflict(xy, zx)
    assert dependences.arrays_conflict(xy, Call(p.name, (Ref("z"), Ref("y"))))
    assert not dependences.arrays_conflict(xy, xz)


def test_what_a_procedure_only_reads_ties_none_of_its_statements_together() -> None:
    """The updates of two weights use one rate; only what reads or writes a weight follows its other uses."""
    names = ("rate", "a", "b")
    rate, a, b = (whole_view(n, (8,), DType.F64) for n in names)
    body = tuple(Kernel("mul", (w,), (w, rate)) for w in (a, b, a))
    procedure = Procedure(
        "update", (Value("rate", KIND),), (Output(Value("a", KIND)), Output(Value("b", KIND))), body
    )
    assert components(procedure, {}) == [[0, 2], [1]]
    assert components(procedure, {"rate": "a"}) == [[0, 1, 2]]
