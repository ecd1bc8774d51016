"""`stages`: a legal order without deadlock, loops that equal it, and results equal to those of one device."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.end_to_end.test_equality import judged, reference
from tests.support.models import Shape, gpt, llama
from wscc.diagnostics import Code, CompileError
from wscc.driver.compile import compile_graph
from wscc.ir.array import Kind
from wscc.ir.module import Module
from wscc.ir.step import Loop, Stage, calls, walk
from wscc.machine.wafer import Wafer
from wscc.passes.differentiate import Differentiate
from wscc.passes.partition import Partition
from wscc.passes.stages import Stages
from wscc.passes.stages.order_1f1b import Task, one_f_one_b, timed
from wscc.passes.stages.roll_loops import Item, Repeated, compressed, compressed_throughout, short_count

SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 3)).flatmap(
    lambda s: st.tuples(
        st.just(s[0]), st.just(s[1]), st.integers(1, 30).map(lambda m: m * s[0] if s[1] > 1 else m)
    )
)


def chain(chunks: int) -> dict[int, frozenset[int]]:
    return {c: frozenset({c - 1} if c else ()) for c in range(chunks)}


@settings(max_examples=30, deadline=None)
@given(SHAPES)
def test_the_order_does_everything_once_in_the_least_time(case: tuple[int, int, int]) -> None:
    """With equal tasks 1F1B takes 2 m v + 2 (p - 1) slots, and a stage of plain 1F1B holds at most p - s
    micro-batches (Narayanan et al., sections 2.2.1 and 2.2.2)."""
    stages, interleave, microbatches = case
    orders = one_f_one_b(stages, interleave, microbatches)
    events = timed(orders, chain(stages * interleave))
    tasks = set(product((False, True), range(stages * interleave), range(microbatches)))
    assert {(e.task.backward, e.task.chunk, e.task.microbatch) for e in events} == tasks
    assert len(events) == len(tasks)
    assert events[-1].slot + 1 == 2 * microbatches * interleave + 2 * (stages - 1)
    if interleave == 1:
        for stage, order in enumerate(orders):
            in_flight = peak = 0
            for task in order:
                in_flight += -1 if task.backward else 1
                peak = max(peak, in_flight)
            assert peak == min(stages - stage, microbatches)


def unrolled(entries: list[Item | Repeated]) -> list[Item]:
    items: list[Item] = []
    for entry in entries:
        if isinstance(entry, Item):
            items.append(entry)
        else:
            items += [i.moved(k * entry.step) for k in range(entry.count) for i in entry.items]
    return items


def as_items(order: list[Task]) -> list[Item]:
    return [Item((t.backward, t.chunk), (t.microbatch,)) for t in order]


@settings(max_examples=30, deadline=None)
@given(SHAPES)
def test_a_short_order_lengthened_is_the_long_one(case: tuple[int, int, int]) -> None:
    stages, interleave, microbatches = case
    period = stages if interleave > 1 else 1
    short = short_count(microbatches, stages, period)
    for shortened, full in zip(
        one_f_one_b(stages, interleave, short), one_f_one_b(stages, interleave, microbatches), strict=True
    ):
        assert unrolled(compressed(as_items(shortened), period, microbatches - short)) == as_items(full)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=30), st.integers(1, 2))
def test_compressing_loses_nothing(words: list[tuple[Hashable, int]], period: int) -> None:
    items = [Item(k, (m,)) for k, m in words]
    assert unrolled(compressed(items, period, 0)) == items
    assert unrolled(compressed_throughout(items)) == items


# -- the pass: it keeps the semantics -----------------------------------------------------------------------


def staged(module: Module) -> Module:
    return Stages().run(Partition().run(Differentiate().run(module)))


def communications(module: Module, stage: Stage) -> list[tuple[str, tuple[object, ...]]]:
    """The calls of a stage that others make too, with the elements of their arguments, in order."""
    communicating = {
        p.name for p in module.procedures if any(s.kind in ("permute", "stage_sum") for s in p.statements)
    }  # fmt: skip
    sequence = []
    for call, variables in walk(stage.body):
        if call.procedure in communicating:
            elements = tuple((r.array, *(a.at(variables) for a in r.index)) for r in call.args)
            sequence.append((call.procedure, elements))
    return sequence


CASES = st.fixed_dictionaries(
    {
        "family": st.sampled_from([gpt, llama]),
        "degrees": st.sampled_from([{"pp": 2}, {"pp": 3}, {"pp": 4}, {"pp": 2, "dp": 2}, {"pp": 3, "tp": 2}]),
        "layers": st.integers(4, 7),
        "calls": st.integers(1, 7),
        "interleave": st.sampled_from([1, 1, 2]),
        "recompute": st.sampled_from(["none", "full"]),
    }
)


@settings(max_examples=6, deadline=None)
@given(CASES)
def test_stages_communicate_in_one_order_and_compute_what_one_device_would(case: dict[str, object]) -> None:
    """Two stages make the calls in which they communicate in the same order, on the same elements; every layer is on
    one stage; and the compiled program equals one device in f64, in checked mode."""
    degrees, family = dict(case["degrees"]), case["family"]  # type: ignore[call-overload]
    pp, interleave, layers, microbatches = (
        degrees["pp"],
        int(str(case["interleave"])),
        int(str(case["layers"])),
        int(str(case["calls"])),
    )
    shape = Shape(
        batch=microbatches * degrees.get("dp", 1),
        calls=microbatches,
        layers=layers,
        seq=4,
        d=8,
        ffn=16,
        vocab=16,
    )
    module = family(  # type: ignore[operator]
        degrees,
        shape,
        wafer=Wafer("w", 2, 4),
        recompute=case["recompute"],
        interleave=interleave,
        optimizer="sgd",
    )
    if interleave > 1 and (microbatches % pp or layers < pp * interleave):
        with pytest.raises(CompileError) as refused:
            staged(module)
        assert refused.value.diagnostics[0].code is Code.DEGREE
        return
    cut = staged(module)
    sequences = [communications(cut, s) for s in cut.step if isinstance(s, Stage)]
    for a in sequences:
        for b in sequences:
            names = {n for n, _ in a} & {n for n, _ in b}
            assert [m for m in a if m[0] in names] == [m for m in b if m[0] in names]
    parts = [a for a in cut.arrays if (a.of or a.name) == "block.w2"]
    assert sorted(i for a in parts for i in range(a.first, a.first + a.extents[0])) == list(range(layers))
    assert max(a.extents[0] for a in parts) - min(a.extents[0] for a in parts) <= 1
    check = judged(module, reference(family, shape, "sgd"))
    assert check.ok, check


def test_layers_that_are_left_over_go_where_no_embedding_or_head_is() -> None:
    for layers, pp, expected in ((30, 4, [7, 8, 8, 7]), (10, 3, [3, 4, 3]), (7, 2, [4, 3])):
        cut = staged(gpt({"pp": pp}, Shape(layers=layers)))
        assert [a.extents[0] for a in cut.arrays if (a.of or a.name) == "block.w1"] == expected


def test_neither_program_nor_time_grows_with_microbatches() -> None:
    small, large = (staged(gpt({"pp": 3}, Shape(batch=n, calls=n, layers=3))) for n in (60, 6000))
    assert len(list(calls(small.step))) == len(list(calls(large.step)))
    assert any(isinstance(s, Loop) and s.count > 5900 for stage in large.steps() for s in stage)


def test_a_stage_holds_only_the_microbatches_in_flight() -> None:
    """Plain 1F1B: stage s of p holds p - s of each residual, whatever the number of micro-batches."""
    cut = staged(gpt({"pp": 4}, Shape(batch=32, calls=32, layers=4)))
    slots = {a.stage: a.extents for a in cut.arrays if a.of == "block.gelu"}
    assert slots == {0: (4, 1), 1: (3, 1), 2: (2, 1), 3: (1,)}


def test_a_tied_table_is_updated_once_and_its_copies_stay_equal() -> None:
    """One optimizer state on the first stage; the copy on the last has none, and equal bits (read compares)."""
    cut = staged(gpt({"pp": 2}, Shape(layers=2)))
    assert {a.stage for a in cut.arrays if (a.of or a.name) == "wte"} == {0, 1}
    assert [a.stage for a in cut.arrays if (a.of or a.name) == "wte.m"] == [0]
    assert all(a.stage == 0 for a in cut.arrays if a.kind is Kind.GRAD and (a.of or a.name) == "wte.grad")


@pytest.mark.parametrize("layers", [1, 3])
def test_fewer_layers_than_stages_are_refused_with_what_would_work(layers: int) -> None:
    """The embedding and the head may have stages of their own."""
    with pytest.raises(CompileError) as refused:
        compile_graph(gpt({"pp": layers + 3}, Shape(layers=layers), wafer=Wafer("w", 1, 6)))
    diagnostic = refused.value.diagnostics[0]
    assert (diagnostic.code, f"has {layers}" in diagnostic.message) == (Code.DEGREE, True)
    assert diagnostic.candidates[0].parallel == (("pp", layers + 2),)
    compile_graph(gpt({"pp": layers + 2}, Shape(layers=layers), wafer=Wafer("w", 1, 6)))
