"""`partition`: every strategy, and every legal choice of factors, computes the results of one device."""

from __future__ import annotations

import random
from itertools import product
from math import prod
from pathlib import Path

import pytest
from hypothesis import event, given, reject, settings
from hypothesis import strategies as st

from tests.fuzz.hunt import any_draw
from tests.oracles.running import distance, lowered, trained
from tests.support.drawing import layouts
from tests.support.models import Shape, gpt, llama, tensors
from tests.support.paths import SAMPLES
from wscc.analysis.reshard_steps import plan
from wscc.diagnostics import Code, CompileError
from wscc.driver.compile import load
from wscc.frontend.overrides import Overrides
from wscc.ir.array import Kind
from wscc.ir.module import Module
from wscc.ir.op import Reshard
from wscc.ir.types import Layout
from wscc.passes.differentiate import Differentiate
from wscc.passes.pad import Pad
from wscc.passes.partition import Partition
from wscc.passes.partition.layouts import PARTIAL
from wscc.passes.partition.search import Assigned, Search

FAMILIES = [gpt, llama]


def one_device(family: object, shape: Shape) -> dict[str, object]:
    module = family({}, shape)  # type: ignore[operator]
    return trained(lowered(module), tensors(module))  # type: ignore[return-value]


def partitioned(module: Module) -> Module:
    return Partition().run(Differentiate().run(module))


@settings(max_examples=2, deadline=None)
@given(
    family=st.sampled_from(FAMILIES),
    degrees=st.fixed_dictionaries({a: st.sampled_from([1, 2, 4]) for a in ("dp", "tp", "tatp")}).filter(
        lambda d: prod(d.values()) <= 8
    ),
    rows=st.sampled_from([1, 2]),
    recompute=st.sampled_from(["none", "selective", "full"]),
)
def test_any_strategy_equals_one_device(
    family: object, degrees: dict[str, int], rows: int, recompute: str
) -> None:
    """Loss, gradients and second-step weights, with one sequence or two per replica and call."""
    shape = Shape(batch=2 * rows * degrees["dp"], calls=2)
    module = family(degrees, shape, recompute=recompute)  # type: ignore[operator]
    error, name = distance(trained(lowered(module), tensors(module)), one_device(family, shape))
    assert error < 1e-10, name


def random_choice(seed: int, density: float):  # type: ignore[no-untyped-def]
    """A chooser of any factor that divides, for any op and axis: the search decides speed, never semantics."""

    def choose(search: Search) -> Assigned:
        rng = random.Random(seed)
        for axis in search.sizes:
            for instance in search.chain.instances:
                legal = search.splittable(axis, instance)
                if instance.op.definition.linear and rng.random() < 0.3:
                    search.assigned[instance.key][axis] = PARTIAL
                elif legal and rng.random() < density:
                    search.assigned[instance.key][axis] = rng.choice(legal)
        return search.assigned

    return choose


@settings(max_examples=3, deadline=None)
@given(
    family=st.sampled_from(FAMILIES),
    degrees=st.sampled_from(
        [{"dp": 2}, {"tp": 2}, {"tatp": 2}, {"tp": 4}, {"tatp": 4}, {"tp": 2, "tatp": 2}, {"dp": 2, "tp": 2}]
    ),
    seed=st.integers(0, 10**6),
    density=st.sampled_from([0.5, 0.9, 1.0]),
    stream=st.booleans(),
)
def test_any_choice_of_factors_equals_one_device(
    family: object, degrees: dict[str, int], seed: int, density: float, stream: bool
) -> None:
    shape = Shape(batch=8, calls=2)
    module = family(degrees, shape)  # type: ignore[operator]
    choose = random_choice(seed, density)
    try:
        fabric = lowered(module, lambda m: Partition(stream=stream).run_with(m, choose))
    except CompileError as refused:
        # Random choices may leave a weight that no longer divides by its storage axis.
        event(str(refused.diagnostics[0].code))
        reject() if refused.diagnostics[0].code is Code.UNEVEN else pytest.fail(str(refused))
    error, name = distance(trained(fabric, tensors(module)), one_device(family, shape))
    assert error < 1e-10, name


# ------------------------------------------------------------------------------------------ closed forms


def local_bytes(module: Module, kind: Kind) -> int:
    return sum(
        prod(a.type.local_shape(module.sizes)) * a.type.dtype.size * a.count
        for a in module.arrays
        if a.kind is kind and not a.storage
    )


@pytest.mark.parametrize("degrees", [{"tatp": 2}, {"tatp": 4}, {"tp": 2, "tatp": 2}, {"dp": 2, "tatp": 4}])
def test_tatp_keeps_its_share_of_every_weight(degrees: dict[str, int]) -> None:
    """The storage of matrices, tables, their gradients and moments on a die is 1/(tp tatp) of the whole."""
    module = partitioned(gpt(degrees, Shape(batch=16)))
    share = degrees.get("tp", 1) * degrees["tatp"]
    for name in ("wte", "block.wqkv", "block.wo", "block.w1", "block.w2"):
        for suffix in ("", ".grad", ".m", ".v"):
            a = module.array(name + suffix)
            assert prod(a.type.local_shape(module.sizes)) * share == a.type.elements, a.name


@pytest.mark.parametrize("degrees", [{"dp": 2}, {"dp": 4}])
def test_dp_replicates_parameters(degrees: dict[str, int]) -> None:
    split, whole = partitioned(gpt(degrees)), partitioned(gpt({}))
    for kind in (Kind.PARAM, Kind.GRAD, Kind.STATE):
        assert local_bytes(split, kind) == local_bytes(whole, kind)


def test_tp_finds_megatron() -> None:
    """Column then row: heads of qkv and of the output projection, width of both MLP matrices; norms split the
    sequence; one gather and one scatter around each pair (Megatron-LM sequence parallelism, arXiv 2205.05198)."""
    module = partitioned(gpt({"tp": 2}, Shape(d=32, ffn=128, vocab=64, seq=16)))
    layouts = {n: module.array(f"block.{n}").type.layout for n in ("wqkv", "wo", "w1", "w2")}
    assert layouts == {
        "wqkv": Layout(((), (), ("tp",), ())),
        "wo": Layout((("tp",), (), ())),
        "w1": Layout(((), ("tp",))),
        "w2": Layout((("tp",), ())),
    }
    kinds = [s.kind for s in module.procedure("block.fwd").statements if isinstance(s, Reshard)]
    assert kinds == ["all_gather", "reduce_scatter"] * 2


def test_tp_finds_megatron_where_it_costs_more_at_first() -> None:
    """GPT-3 6.7B: splitting what `wup` sums costs less before `wup` and more behind it, where what is split four times
    as wide is reduced. The search must not have given up the better way by then."""
    sizes = (
        "model.layers=32",
        "model.d=4096",
        "model.heads=32",
        "model.vocab=50304",
        "train.recompute=selective",
    )
    gpt3 = load(str(SAMPLES / "gpt3-175b.wsl"), Overrides(sizes, parallel="tp=4"))
    module = partitioned(gpt3)
    assert module.array("block.wup").type.layout == Layout(((), ("tp",)))
    assert module.array("block.wdown").type.layout == Layout((("tp",), ()))


@pytest.mark.parametrize("degrees", [{"tatp": 2}, {"tatp": 4}, {"dp": 2, "tatp": 2, "tp": 2}])
def test_every_weight_of_a_streaming_axis_is_streamed(degrees: dict[str, int]) -> None:
    """Nothing is gathered whole over tatp for a product."""
    module = partitioned(gpt(degrees, Shape(batch=16)))
    for procedure in module.procedures:
        for s in procedure.statements:
            if isinstance(s, Reshard) and (s.kind, s.axis) == ("all_gather", "tatp"):
                assert not s.result.name.startswith("block.w"), s
    products = [op for op in module.procedure("block.fwd").ops if op.kind == "matmul"]
    assert all(op.stream and op.stream.axis == "tatp" for op in products)


def test_gradients_cross_dp_once_a_step() -> None:
    """However many micro-batches: the reductions stand outside their loop."""
    module = partitioned(gpt({"dp": 2}, Shape(batch=16, calls=8)))
    inside = [p for p in module.procedures if p.name.endswith((".fwd", ".bwd"))]
    assert not [s for p in inside for s in p.statements if isinstance(s, Reshard)]


# ------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("degrees", "shape", "words"),
    [
        ({"tp": 3}, Shape(), "`tp = 3` divides no dimension of `wte` [32, 16]"),
        ({"dp": 4}, Shape(batch=4, calls=2), "`dp = 4` does not divide the batch of 2"),
        ({"tatp": 3}, Shape(batch=4, calls=2), "`tatp = 3` does not divide the batch of 2 per die or"),
    ],
)
def test_degrees_that_do_not_divide_are_refused_with_the_numbers(
    degrees: dict[str, int], shape: Shape, words: str
) -> None:
    with pytest.raises(CompileError) as error:
        partitioned(gpt(degrees, shape))
    message = error.value.diagnostics[0].message.replace(" per die or", " per die or")
    assert words.split(" per die")[0] in message
    assert error.value.diagnostics[0].candidates


# ------------------------------------------------------------------------------------------------ reshards


@given(a=layouts(3, ("dp", "tatp", "tp")), b=layouts(3, ("dp", "tatp", "tp")))
def test_a_reshard_plan_ends_where_it_should(a: Layout, b: Layout) -> None:
    """From any layout to any other in few steps, each axis opened and closed at a minor end."""
    steps = plan(a, b)
    current = a
    for step in steps:
        before, after = current.dim_of(step.axis), step.after.dim_of(step.axis)
        for d, layout in ((before, current), (after, step.after)):
            if d is not None and before != after:
                assert layout.dims[d][-1] == step.axis
        current = step.after
    assert current == b
    assert len(steps) <= 9


def regathered(module: Module) -> list[str]:
    """Values that a reshard plan slices along an axis along which it has gathered them, for no op in between."""
    names = []
    for p in module.procedures:
        used = {v.name for op in p.ops for v in op.operands} | {o.value.name for o in p.outputs}
        gathered: dict[str, set[str]] = {}
        for s in p.statements:
            if isinstance(s, Reshard):
                axes = set() if s.operand.name in used else gathered.get(s.operand.name, set())
                if s.kind == "slice" and s.axis in axes:
                    names.append(f"{p.name} {s.result.name}")
                gathered[s.result.name] = axes | ({s.axis} if s.kind == "all_gather" else set())
    return names


STRATEGIES = [
    (("dp", dp), ("sp", sp), ("tp", tp), ("tatp", tatp))
    for dp, sp, tp, tatp in product((1, 2, 4), repeat=4)
    if dp * sp * tp * tatp <= 16
]


@settings(max_examples=12)
@given(st.sampled_from(FAMILIES), st.sampled_from(STRATEGIES), st.sampled_from([0, 1, 3]))
def test_no_plan_gathers_an_axis_and_slices_it_again(
    family: object, strategy: tuple[tuple[str, int], ...], zero: int
) -> None:
    """Axes that split tokens lie outside those that split weights: where both split one dimension, an op that needs
    one of them whole leaves the others in place."""
    module = family(dict(strategy), Shape(batch=16, calls=2, seq=16), zero=zero)  # type: ignore[operator]
    assert not regathered(partitioned(module))


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.wsl")), ids=lambda p: p.name)
def test_no_plan_of_a_sample_gathers_an_axis_and_slices_it_again(path: Path) -> None:
    """As compiled: padded, where axes do not divide its sizes."""
    graph = load(str(path))
    assert not regathered(Partition().run(Pad().run(Differentiate().run(graph))))


# Both axes leave positions, which `concat` needs whole, for one other dimension. The one that leaves first would lie
# outside there, and dimensions have one order of axes: it is gathered, and sliced when the other one has left.
REVERSED = pytest.mark.xfail(strict=True, reason="dimensions do not choose the order of their axes")


@pytest.mark.parametrize("seed", [*range(16), pytest.param(74, marks=REVERSED)])
def test_no_plan_of_a_drawn_program_gathers_an_axis_and_slices_it_again(tmp_path: Path, seed: int) -> None:
    source = tmp_path / "drawn.wsl"
    source.write_text(any_draw(random.Random(seed)).text, encoding="utf-8")
    try:
        module = partitioned(load(str(source)))
    except CompileError:
        return
    assert not regathered(module)
