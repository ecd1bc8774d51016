"""The cut of a pipeline by work: the best partition, stages without layers, and what it does for a step."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.end_to_end.test_equality import judged, reference
from tests.support.compile_once import artifact_of, compile_graph
from tests.support.models import Shape, gpt, llama
from wscc.diagnostics import Code, CompileError
from wscc.driver.simulate import simulate
from wscc.ir.module import Module
from wscc.ir.types import DType
from wscc.machine.wafer import Die, Wafer
from wscc.passes.differentiate import Differentiate
from wscc.passes.partition import Partition
from wscc.passes.stages.balance import Balance
from wscc.passes.stages.cut import LayerCut, cut, layer_cut

WEIGHTS = st.lists(st.integers(1, 5), min_size=1, max_size=7)


@given(
    WEIGHTS, st.integers(1, 4), st.tuples(st.booleans(), st.booleans()), st.integers(0, 9), st.integers(0, 9),
    st.none() | st.lists(st.integers(0, 7), min_size=4, max_size=4),
)  # fmt: skip
def test_no_partition_has_a_lighter_fullest_chunk_or_is_more_even(
    layers: list[int],
    chunks: int,
    has_own: tuple[bool, bool],
    before: int,
    after: int,
    rooms: list[int] | None,
) -> None:
    """Against all partitions; with `rooms`, against those with so many layers at most."""
    least = [1] * chunks
    least[0] -= has_own[0]
    least[-1] = max(0, least[-1] - has_own[1])
    most = rooms[:chunks] if rooms else [len(layers)] * chunks
    if sum(least) > len(layers):
        return

    def rank(counts: tuple[int, ...]) -> tuple[int, int, list[int]]:
        ends = [sum(counts[:c]) for c in range(chunks + 1)]
        weights = [sum(layers[a:b]) for a, b in pairwise(ends)]
        weights[0] += before
        weights[-1] += after
        return max(weights), sum(w * w for w in weights), [-n for n in counts]

    partitions = [
        counts
        for counts in product(range(len(layers) + 1), repeat=chunks)
        if sum(counts) == len(layers)
        and all(m <= n <= k for m, n, k in zip(least, counts, most, strict=True))
    ]
    if partitions:
        balance = Balance(layers, least, before, after, most if rooms else ())
        assert tuple(balance.counts()) == min(partitions, key=rank)


def layers_by_chunk(degree: int, shape: Shape) -> list[int]:
    module = Partition().run(Differentiate().run(gpt({"pp": degree}, shape, wafer=WAFER)))
    return [sum(p.count for p in chunk.forward) for chunk in cut(module, degree, 1)]


WAFER = Wafer("w", 1, 4, Die(peak=10**9, tile=1))


def test_a_head_as_long_as_several_layers_gets_a_stage_with_fewer() -> None:
    """A layer has 12 d d FLOPs a token and more for attention, a head d vocab: of 128 times d words, ten layers."""
    assert layers_by_chunk(4, Shape(layers=8, calls=8, batch=8, vocab=32)) == [2, 2, 2, 2]
    assert layers_by_chunk(4, Shape(layers=8, calls=8, batch=8, vocab=2048)) == [2, 3, 3, 0]


def test_the_cut_by_work_makes_the_step_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    """By most of what the last stage had too much: its head takes as long as five layers."""
    shape = Shape(layers=8, calls=16, batch=16, vocab=1024)

    def seconds() -> float:
        module = gpt({"pp": 4}, shape, wafer=WAFER, dtype=DType.F32)
        return float(simulate(artifact_of(module)).figures().step_seconds)

    by_work = seconds()
    monkeypatch.setattr(Balance, "counts", lambda self: [2, 2, 2, 2])
    assert by_work < 0.85 * seconds()


def test_stages_without_layers_equal_one_device() -> None:
    """Embedding and head alone on their stages."""
    for family in (gpt, llama):
        shape = Shape(layers=2, calls=4, batch=4)
        check = judged(family({"pp": 4}, shape), reference(family, shape, "adamw"))
        assert check.ok, check


def test_a_stage_without_room_gets_fewer_layers() -> None:
    """The first stage keeps three micro-batches in flight, the last one. A cut by time alone would be refused."""
    shape = Shape(layers=9, calls=9, batch=9, seq=32, vocab=16)
    roomy, small = (Wafer("w", 1, 3, Die(sram=n, hbm=0)) for n in (10**6, 700_000))
    by_work = cut_of(llama({"pp": 3}, shape, wafer=roomy))
    assert (by_work.layers, by_work.by) == ((3, 3, 3), "work")
    module = llama({"pp": 3}, shape, wafer=small)
    fitting = cut_of(module)
    assert (fitting.layers, fitting.by) == ((2, 3, 4), "work and memory")
    compile_graph(module)
    with pytest.raises(CompileError) as refused:
        compile_graph(llama({"pp": 3}, shape, wafer=small, stages=by_work.layers))
    assert refused.value.diagnostics[0].code is Code.OUT_OF_MEMORY


def test_where_nothing_fits_the_plan_of_memory_says_so() -> None:
    """By the cut by work, which stands."""
    tiny = Wafer("w", 1, 3, Die(sram=100_000, hbm=0))
    assert cut_of(llama({"pp": 3}, Shape(layers=9), wafer=tiny)).layers == (3, 3, 3)


def cut_of(module: Module) -> LayerCut:
    made = layer_cut(Partition().run(Differentiate().run(module)))
    assert made is not None
    return made
