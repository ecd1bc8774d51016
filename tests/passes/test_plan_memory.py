"""`plan_memory`: live buffers share no byte, everything fits, and refusals name what is true."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles.fabric_engine import assert_same, initial_state, run_in_order, run_planned
from tests.support.fabric_modules import CASES, DTYPE, Case, module_of, some
from wscc.analysis.memory.access_cost import slow_costs
from wscc.analysis.memory.live_ranges import LiveRange, live_peak
from wscc.analysis.memory.pack import pack
from wscc.analysis.memory.pack_two_level import pack_two_level
from wscc.analysis.memory.prices import worth
from wscc.analysis.memory.report import memory_report
from wscc.diagnostics import Code, CompileError
from wscc.ir.array import Array, Kind
from wscc.ir.fabric import Kernel, Post, Send, Wait
from wscc.ir.module import Module, Procedure
from wscc.ir.per_die import NOBODY, at
from wscc.ir.train import Train
from wscc.ir.types import DType, Layout, TensorType
from wscc.ir.views import View
from wscc.machine.wafer import Die, Wafer
from wscc.passes.form_phases import FormPhases
from wscc.passes.plan_memory import PlanMemory
from wscc.passes.route import Route
from wscc.passes.schedule import Schedule


def scheduled(module: Module, *, overlap: bool = True) -> Module:
    return Schedule(overlap=overlap).run(Route().run(FormPhases().run(module)))


def uses(procedure: Procedure, die: int) -> dict[str, list[int]]:
    """Statements of one die that use each local, waits for its messages included."""
    positions: dict[str, list[int]] = {b.name: [] for b in procedure.buffers}
    messages: dict[tuple[int, bool], str] = {}
    for i, s in enumerate(procedure.body):
        names: list[str] = []
        if isinstance(s, Kernel) and at(s.where, die):
            names = [v.buffer for v in (*s.reads, *s.writes)]
        elif isinstance(s, Post) and at(s.sender, die) != NOBODY:
            names = [messages.setdefault((s.channel, False), s.write.buffer)]
        elif isinstance(s, Send) and at(s.to, die) != NOBODY:
            names = [messages.setdefault((s.channel, True), s.read.buffer)]
        elif isinstance(s, Wait) and at(s.where, die):
            names = [messages[s.channel, s.sent]]
        for name in names:
            positions.get(name, []).append(i)
    return positions


@some
@given(CASES, st.booleans(), st.booleans())
def test_live_locals_of_a_die_share_no_byte(case: Case, overlap: bool, reuse: bool) -> None:
    module = case.module
    planned = PlanMemory(reuse=reuse).run(scheduled(module, overlap=overlap))
    assert planned.memory is not None
    for procedure in planned.procedures:
        place = {b.name: range(b.address, b.address + b.bytes) for b in procedure.buffers}
        for b in procedure.buffers:
            assert b.address % 64 == 0
            assert 0 <= b.address <= b.address + b.bytes <= planned.memory.scratch_bytes
        for die in range(planned.dies_used):
            ranges = {n: range(min(at_), max(at_) + 1) for n, at_ in uses(procedure, die).items() if at_}
            for a, b in combinations(ranges, 2):
                together = set(ranges[a]) & set(ranges[b])
                if together or not reuse:
                    assert not set(place[a]) & set(place[b])


@some
@given(CASES, st.booleans(), st.integers(0, 999))
def test_the_outcome_in_one_arena_is_that_of_the_sequential_body(
    case: Case, overlap: bool, seed: int
) -> None:
    module = case.module
    planned = PlanMemory().run(scheduled(module, overlap=overlap))
    state = initial_state(module, seed)
    assert_same(run_in_order(module, state), run_planned(planned, state, Random(seed)))


@some
@given(CASES)
def test_the_map_has_no_overlap_and_its_parts_add_up(case: Case) -> None:
    module = case.module
    planned = PlanMemory().run(scheduled(module))
    memory = planned.memory
    assert memory is not None
    ends = [memory.scratch_bytes]
    taken = [range(memory.scratch_bytes)]
    for array, place in zip(planned.arrays, memory.arrays, strict=True):
        assert (place.array, place.address % 64, place.stride % 64) == (array.name, 0, 0)
        size = place.stride * array.count
        ends.append(place.address + size)
        if array.storage:
            assert place.address == memory.placement(array.storage).address
        else:
            taken.append(range(place.address, place.address + size))
    taken.sort(key=lambda r: (r.start, r.stop))
    assert all(a.stop <= b.start for a, b in pairwise(taken))
    report = memory_report(planned)
    assert report.peak == memory.arena_bytes == max(ends) == sum(report.by_category.values())
    assert report.live_peak <= report.peak


def test_arrays_take_the_bytes_of_their_shards() -> None:
    split = TensorType((8, 10), DType.F32, Layout((("a",), ())))
    arrays = (
        Array("w", split, Kind.PARAM, (3,)),
        Array("g", split, Kind.GRAD, (3,)),
        Array("g.partial", split, Kind.GRAD, (3,), storage="g"),
        Array("t", TensorType((), DType.I32, Layout(())), Kind.SCALAR),
    )
    module = module_of(4, []).with_(arrays=arrays, step=())
    memory = PlanMemory().run(module).memory
    assert memory is not None
    # 2 x 10 floats on each die are 80 bytes, which take two units of 64; t0, t1 and t2 are never used.
    assert [(p.stride, p.address) for p in memory.arrays] == [
        (128, memory.scratch_bytes),
        (128, memory.scratch_bytes + 384),
        (128, memory.scratch_bytes + 384),
        (64, memory.scratch_bytes + 768),
    ]
    assert memory.arena_bytes == memory.scratch_bytes + 768 + 64


# -- packing --------------------------------------------------------------------------------------------

live_ranges = st.lists(
    st.tuples(st.integers(1, 40), st.integers(0, 30), st.integers(-1, 12), st.booleans()), max_size=25
).map(
    lambda rows: tuple(
        LiveRange(f"b{i}", 64 * size, first, first + length, slot)
        for i, (size, first, length, slot) in enumerate(rows)
    )
)


@given(live_ranges)
def test_buffers_that_are_live_together_share_no_byte(ranges: tuple[LiveRange, ...]) -> None:
    offsets, size = pack(ranges)
    for x in ranges:
        assert 0 <= offsets[x.name] <= size - x.size
    for x, y in combinations(ranges, 2):
        if set(range(x.first, x.last + 1)) & set(range(y.first, y.last + 1)):
            a, b = offsets[x.name], offsets[y.name]
            assert a + x.size <= b or b + y.size <= a
    statements = range(max((x.last for x in ranges), default=-1) + 1)
    peak = max((sum(x.size for x in ranges if x.first <= t <= x.last) for t in statements), default=0)
    assert live_peak(ranges) == peak <= size


def test_packing_wastes_little() -> None:
    rng, waste = Random(1), []
    for _ in range(40):
        firsts = [rng.randrange(200) for _ in range(80)]
        ranges = tuple(
            LiveRange(f"b{i}", 64 * rng.choice([1, 4, 16, 17, 64]), t, t + rng.randrange(25), slot=False)
            for i, t in enumerate(firsts)
        )
        waste.append(pack(ranges)[1] / live_peak(ranges))
    assert sum(waste) / len(waste) < 1.06


def test_a_chain_of_temporaries_needs_two_places() -> None:
    ranges = tuple(LiveRange(f"b{i}", 64, i, i + 1, slot=False) for i in range(9))
    assert pack(ranges)[1] == 128
    assert pack(ranges, reuse=False)[1] == 9 * 64


def test_slots_lie_lowest() -> None:
    ranges = (LiveRange("big", 640, 0, 5, slot=False), LiveRange("slot", 64, 3, 4, slot=True))
    assert pack(ranges) == ({"slot": 0, "big": 64}, 704)


# -- capacity -------------------------------------------------------------------------------------------


def planned_on(die: Die, **changes: object) -> Module:
    """A program with 6,400 bytes of weights and state, and 25,600 of residuals."""
    row = TensorType((16,), DType.F32, Layout.whole(1))
    arrays = (
        Array("w", row, Kind.PARAM, (50,)),
        Array("m", row, Kind.STATE, (50,)),
        Array("x.residual", row, Kind.RESIDUAL, (400,)),
    )
    wafer = Wafer("w", 1, 4, die=die)
    module = module_of(4, []).with_(arrays=arrays, machine=wafer, step=(), procedures=(), **changes)
    return PlanMemory().run(module)


def refusal(die: Die, **changes: object) -> tuple[str, dict[str, str]]:
    """The message, and the settings that may help, each with its first value."""
    with pytest.raises(CompileError) as caught:
        planned_on(die, **changes)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code is Code.OUT_OF_MEMORY
    return diagnostic.message, dict(reversed([kv for c in diagnostic.candidates for kv in c.sets]))


def test_what_does_not_fit_is_refused_with_the_largest_parts() -> None:
    message, advice = refusal(Die(sram=2_000, hbm=20_000))
    assert "needs 32 kB but has 22 kB: 10 kB too much" in message
    assert "residual 25.6 kB, param 3.2 kB, state 3.2 kB" in message
    assert "`x.residual` 25.6 kB" in message
    assert advice["train.recompute"] == "full"


def test_the_stated_memory_is_just_enough() -> None:
    die = Die(sram=2_000, hbm=20_000)
    hbm = int(refusal(die)[1]["wafer.die.hbm"].split()[0])
    planned_on(replace(die, hbm=hbm))
    refusal(replace(die, hbm=hbm - 1))


def test_advice_names_only_changes_that_would_suffice() -> None:
    full = Train(batch=16, microbatches=2, recompute="full")
    # 8 sequences at a time: half of them free 12.8 kB of the 10 kB that are missing, and so on.
    assert refusal(Die(sram=2_000, hbm=20_000), train=full)[1]["train.microbatch"] == "4"
    assert refusal(Die(sram=2_000, hbm=12_000), train=full)[1]["train.microbatch"] == "2"
    assert list(refusal(Die(sram=500, hbm=0), train=full)[1]) == ["wafer.die.sram"]


@pytest.mark.parametrize(("axes", "shares"), [("dp", True), ("sp", True), ("tp", False), ("tatp", False)])
def test_replicas_are_advised_to_share_weights_out(axes: str, shares: bool) -> None:
    """4.5 kB are missing, and three quarters of weights and state are 4.8 kB."""
    full = Train(batch=4, microbatches=4, recompute="full")
    advice = refusal(Die(sram=2_000, hbm=25_500), train=full, axes=((axes, 4),))[1]
    assert advice.get("train.zero") == ("3" if shares else None)


# -- two memories ---------------------------------------------------------------------------------------

# Ranges that all compete for a fast memory which is too small.
contended = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 12)), min_size=6, max_size=16
).map(
    lambda rows: tuple(
        LiveRange(f"b{i}", 64 * size, first, first + length, slot=False, cost=1.0)
        for i, (size, first, length) in enumerate(rows)
    )
)
two_level_cases = st.tuples(
    live_ranges | contended, st.randoms(use_true_random=False), st.integers(1, 1920)
).map(
    lambda drawn: (
        tuple(_with_a_copy(replace(x, cost=drawn[1].choice([x.cost, 1.0, 5.0])), drawn[1]) for x in drawn[0]),
        drawn[2],
    )
)


def _with_a_copy(x: LiveRange, rng: Random) -> LiveRange:
    """The range with random slack."""
    start_slack = rng.choice([0, rng.randint(0, max(x.last - x.first, 0))])
    return replace(
        x, start_slack=start_slack, end_slack=rng.choice([0, max(x.last - x.first - start_slack, 0)])
    )


@given(two_level_cases)
def test_no_buffer_lies_across_the_border_of_the_fast_memory(
    drawn: tuple[tuple[LiveRange, ...], int],
) -> None:
    ranges, fast = drawn
    packed = pack_two_level(ranges, fast)
    offsets, size = packed.offsets, packed.size
    assert set(offsets) == {x.name for x in ranges}
    for x, longest in zip(packed.ranges, ranges, strict=True):
        assert longest.first <= x.first <= longest.first + longest.start_slack
        assert longest.last - longest.end_slack <= x.last <= longest.last
        low, high = offsets[x.name], offsets[x.name] + x.size
        assert 0 <= low <= high <= size
        assert low % 64 == 0
        assert high <= fast or low >= fast
    for x, y in combinations(packed.ranges, 2):
        if set(range(x.first, x.last + 1)) & set(range(y.first, y.last + 1)):
            a, b = offsets[x.name], offsets[y.name]
            assert a + x.size <= b or b + y.size <= a
    if pack(ranges)[1] <= fast:
        assert size <= fast


def test_a_live_range_with_slack_is_as_long_as_there_is_room() -> None:
    """64 bytes filled by a copy that may begin 8 statements before it must; others leave room for the last 5."""
    near = LiveRange("near", 640, 0, 9, slot=False, cost=1.0, start_slack=8)
    early = LiveRange("early", 640, 0, 3, slot=False, cost=9.0)
    late = LiveRange("late", 320, 0, 9, slot=False, cost=9.0)
    assert [x.first for x in pack_two_level((near, early, late), 1200).ranges] == [4, 0, 0]
    assert [x.first for x in pack_two_level((near, early, late), 2400).ranges] == [0, 0, 0]


def test_what_did_not_fit_is_tried_first() -> None:
    """`one` costs most, for its size as well, but keeps two others out that cost more together."""
    one = LiveRange("one", 512, 0, 9, slot=False, cost=9.3)
    two = [LiveRange(name, 448, 0, 9, slot=False, cost=8.0) for name in ("a", "b")]
    offsets = pack_two_level((one, *two), 1000).offsets
    assert max(offsets["a"], offsets["b"]) + 448 <= 900
    assert offsets["one"] >= 1000


def test_what_costs_most_for_its_size_and_time_lies_in_the_fast_memory() -> None:
    hot = LiveRange("hot", 640, 0, 9, slot=False, cost=9.0)
    cold = LiveRange("cold", 640, 0, 9, slot=False, cost=1.0)
    never = LiveRange("never", 640, 0, 9, slot=False)
    slot = LiveRange("slot", 64, 0, 9, slot=True)
    offsets = pack_two_level((never, cold, hot, slot), 800).offsets
    assert max(offsets["hot"] + 640, offsets["slot"] + 64) <= 800 <= min(offsets["cold"], offsets["never"])


def test_the_last_tenth_of_the_fast_memory_is_for_slots() -> None:
    ranges = tuple(LiveRange(n, 960, 0, 9, slot=n == "slot", cost=1.0) for n in ("local", "slot"))
    offsets = pack_two_level(ranges, 1024).offsets
    assert offsets["slot"] == 0
    assert offsets["local"] == 1024
    alone = pack_two_level((*ranges[:1], replace(ranges[1], size=128, slot=False)), 1024).offsets
    assert alone["local"] == 1024


def test_work_hides_bytes_of_a_gemm_and_nothing_those_of_an_addition() -> None:
    die = Die(peak=10**12, hbm_bandwidth=10**9)

    def cost(n: int, opcode: str) -> float:
        views = [View(name, 0, (n, n), (n, 1), DTYPE) for name in "cab"]
        attrs = (("scale", 1.0), ("accumulate", False)) if opcode == "gemm" else ()
        kernel = Kernel(opcode, tuple(views[:1]), tuple(views[1:]), attrs)
        return slow_costs(Procedure("p", (), (), (kernel,)), die)["a"]

    assert cost(16, "add") == pytest.approx(8 * 16 * 16 / 1e9)
    # 2 n^3 flops in 2 n^3 / 10^12 s against 24 n^2 bytes in 24 n^2 / 10^9 s: all hidden from n = 12,000 on. What is
    # hidden takes the port of the memory from others all the same.
    assert cost(6000, "gemm") == pytest.approx(cost(6000, "add") / 2)
    assert cost(12000, "gemm") == pytest.approx(cost(12000, "add") / 4)


def test_a_byte_is_worth_what_it_saves_where_many_want_it() -> None:
    """Of two that do not fit together, the cheaper one is worth less than its bytes; alone, one is worth more."""
    ranges = [
        LiveRange("dear", 64, 0, 9, slot=False, cost=3.0),
        LiveRange("cheap", 64, 0, 9, slot=False, cost=1.0),
        LiveRange("alone", 64, 20, 29, slot=False, cost=1.0),
    ]
    values = worth(ranges, 64)
    assert values["cheap"] < 1 <= values["dear"]
    assert values["alone"] > 1
