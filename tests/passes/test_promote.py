"""`promote`: statements access copies in the fast memory, and memory ends as if they had accessed the arguments."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.oracles.fabric_engine import (
    assert_same,
    initial_state,
    run_in_order,
    run_planned,
    run_scheduled,
)
from tests.support.fabric_modules import CASES, DTYPE, ELEMENTS, Case, module_of, some
from tests.support.models import Shape, gpt
from wscc.analysis.aliases import aliases
from wscc.analysis.memory.access_cost import CumulativeWork, cumulative_work
from wscc.analysis.statement_accesses import accesses_by_buffer
from wscc.driver.compile import compile_graph
from wscc.driver.simulate import simulate
from wscc.ir.fabric import Kernel, Send, Transfer, Wait
from wscc.ir.module import Module, Procedure
from wscc.ir.verify import verify
from wscc.ir.views import View, sliced
from wscc.machine.wafer import Die, Wafer
from wscc.passes.form_phases import FormPhases
from wscc.passes.plan_memory import PlanMemory
from wscc.passes.promote import Promote, promoted
from wscc.passes.promote.boxes import Argument, boxes
from wscc.passes.promote.choose import Measured, copies
from wscc.passes.promote.phases import copies_of_local
from wscc.passes.promote.spread import spread_pieces
from wscc.passes.route import Route
from wscc.passes.schedule import Schedule


def argument(name: str) -> Argument:
    return Argument(name, ELEMENTS, DTYPE, live_in=True)


def promoted_at_random(module: Module, rng: Random) -> Module:
    """The module with copies of random boxes of arguments that share bytes with no other, and of locals in phases
    between some of their uses, profitable or not."""
    names = aliases(module)
    procedures = []
    for p in module.procedures:
        free = [argument(n) for n in dict.fromkeys(v.name for v in p.arguments) if n not in names[p.name]]
        m = Measured.of(p, module.machine.die, module.dies_used)
        # So fast that any work between two uses parts them.
        candidates = [*copies(m.by_buffer, free, m.work, 1e30)]
        for b in p.buffers:
            if b.name in m.by_buffer:
                local = Argument(b.name, b.elements, b.dtype, live_in=False, live_out=False)
                # A time for each statement, and phases wherever a random one has passed.
                steps = CumulativeWork(np.arange(len(p.body) + 1.0))
                candidates += copies_of_local(local, m.by_buffer[b.name], steps, rng.randrange(4), m.where)
        procedures.append(promoted(p, [c for c in candidates if rng.random() < 0.7], module.dies_used))
    return module.with_(procedures=tuple(procedures))


@some
@given(CASES, st.integers(0, 999), st.booleans(), st.integers(2, 5))
def test_memory_ends_as_without_copies(case: Case, seed: int, overlap: bool, sram: int) -> None:
    module = case.module
    assume(not list(verify(module)))
    near = promoted_at_random(module, Random(seed))
    assert not list(verify(near))
    state = initial_state(module, seed)
    expected = run_in_order(module, state)
    assert_same(expected, run_in_order(near, state))
    scheduled = Schedule(overlap=overlap).run(Route().run(FormPhases().run(near)))
    assert not list(verify(scheduled))
    assert_same(expected, run_scheduled(scheduled, state, Random(seed)))
    # Copies begin and end as the room allows.
    small = replace(
        module.machine, die=replace(module.machine.die, sram=192 * sram, hbm=10**9, hbm_bandwidth=10**9)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wscc.passes.schedule.slack.cumulative_work", _busy)
        early = Schedule(overlap=overlap).run(Route().run(FormPhases().run(near.with_(machine=small))))
    planned = PlanMemory().run(early)
    assert not list(verify(planned))
    assert_same(expected, run_planned(planned, state, Random(seed)))


def _busy(procedure: Procedure, die: Die) -> CumulativeWork:
    """Cumulative work as if each statement took 50 ns, a quarter of a copy of a whole argument."""
    return CumulativeWork(np.arange(len(procedure.body) + 1) * 50e-9)


def view(name: str) -> View:
    return View(name, 0, (ELEMENTS,), (1,), DTYPE)


def reads_often(times: int, gemms: list[Kernel], *, arrays: int, sram: int) -> Module:
    """A module that reads `in0` so many times and writes `out0` once, by a gemm if there are any."""
    body = [Kernel("copy", (view(f"t{i % 3}"),), (view("in0"),)) for i in range(times)]
    last = _gemm("out0") if gemms else Kernel("copy", (view("out0"),), (view("t0"),))
    module = module_of(2, [*body, *gemms, last])
    unused = tuple(replace(module.arrays[0], name=f"a{i}") for i in range(arrays))
    wafer = Wafer("w", 1, 2, Die(peak=25 * 10**7, sram=sram, hbm_bandwidth=10**9))
    return module.with_(machine=wafer, arrays=(*module.arrays, *unused))


def copied(module: Module) -> list[tuple[str, str]]:
    """The buffers that the local transfers of the procedure read and write."""
    (p,) = Promote().run(module).procedures
    return [(s.read.buffer, s.write.buffer) for s in p.body if isinstance(s, Transfer)]


def test_what_is_read_often_is_copied_in_and_what_is_written_once_is_not() -> None:
    gemms = [_gemm()] * 16  # behind which a copy hides, and leaves the HBM idle most of the time
    whole = 8 * ELEMENTS
    assert copied(reads_often(3, gemms, arrays=100, sram=6 * whole)) == [("in0", "in0.near")]
    assert copied(reads_often(3, gemms, arrays=1, sram=6 * whole)) == [], "all arrays lie in SRAM"
    assert copied(reads_often(3, gemms, arrays=100, sram=whole // 2)) == [], "nothing fits SRAM"
    assert copied(reads_often(1, [], arrays=100, sram=6 * whole)) == [], "one read is as long as a copy"


# A gemm takes 2 x 4 x 4 x 1 FLOPs, 128 ns; one and a half times a copy 288 ns, 2.25 gemms.
DIE = Die(peak=25 * 10**7, hbm_bandwidth=10**9)


def order(*body: Kernel, out: bool = False, die: Die = DIE) -> list[str]:
    """The gemms of a procedure, and the copies that begin, in order: of what is used of `in0`, and of `out0` if asked
    to."""
    words = [
        s.opcode if isinstance(s, Kernel) else s.source if isinstance(s, Send) else ""
        for s in scheduled(*body, out=out, die=die).body
    ]
    return [w for w in words if w == "gemm" or ".near" in w]


def scheduled(*body: Kernel, out: bool, die: Die) -> Procedure:
    (p,) = module_of(1, list(body)).procedures
    arguments = [argument("in0"), *([replace(argument("out0"), live_in=False)] if out else [])]
    near = promoted(
        p, list(copies(accesses_by_buffer(p.body), arguments, cumulative_work(p, die), die.hbm_bandwidth)), 1
    )
    module = module_of(1, []).with_(procedures=(near,), machine=Wafer("w", 1, 1, die))
    (p,) = Schedule().run(Route().run(FormPhases().run(module))).procedures
    return p


def use(name: str) -> Kernel:
    return Kernel("copy", (view("t2"),), (view(name),))


def test_a_copy_is_under_way_while_the_die_works() -> None:
    """It starts as early as work hides it, and no earlier."""
    assert order(*[_gemm()] * 9, use("in0")) == [*["gemm"] * 6, "in0.near", *["gemm"] * 3]


def test_what_is_needed_first_is_copied_first_and_copies_have_time_one_after_the_other() -> None:
    """Twice 1.125 gemms, for two halves that are needed at once, the second one first."""
    low, high = (View("in0", start, (ELEMENTS // 2,), (1,), DTYPE) for start in (0, ELEMENTS // 2))
    uses = [Kernel("copy", (v.on("t2"),), (v,)) for v in (high, low)]
    assert order(*[_gemm()] * 9, *uses) == [*["gemm"] * 6, "in0.near", "gemm", "in0.near.1", *["gemm"] * 2]


@pytest.mark.parametrize(("between", "first"), [(3, "in0.near"), (5, "out0.near")])
def test_a_copy_in_begins_before_a_copy_out_that_it_would_wait_for_too_long(between: int, first: str) -> None:
    written = Kernel("copy", (view("out0"),), (view("t0"),))
    words = order(*[_gemm()] * 5, written, *[_gemm()] * between, use("in0"), out=True)
    assert next(w for w in words if w != "gemm") == first


# Of three locals of 192 bytes, SRAM holds two at once, or all.
@pytest.mark.parametrize(("sram", "gemms"), [(80_000_000, 6), (450, 9)])
def test_a_copy_begins_where_it_is_needed_if_there_is_no_room_before(sram: int, gemms: int) -> None:
    planned = in_memory(scheduled(*[_gemm()] * 9, use("in0"), out=False, die=DIE), sram)
    began = next(i for i, s in enumerate(planned.body) if isinstance(s, Send))
    assert sum(isinstance(s, Kernel) for s in planned.body[:began]) == gemms
    assert all(b.address < sram for b in planned.buffers)


@pytest.mark.parametrize(("sram", "gemms"), [(80_000_000, 8), (450, 0)])
def test_a_copy_out_keeps_its_memory_until_it_is_over_if_there_is_room(sram: int, gemms: int) -> None:
    """It takes 192 ns, one and a half gemms; where others wait for the room, the die waits for it instead."""
    written = Kernel("copy", (view("out0"),), (view("t0"),))
    planned = in_memory(scheduled(written, *[_gemm()] * 12, out=True, die=DIE), sram)
    began = next(i for i, s in enumerate(planned.body) if isinstance(s, Send))
    ended = next(i for i, s in enumerate(planned.body) if isinstance(s, Wait) and s.sent)
    assert sum(isinstance(s, Kernel) for s in planned.body[began:ended]) == gemms


@pytest.mark.parametrize("sram", [450, 80_000_000])
def test_what_is_read_after_its_copy_out_began_keeps_its_memory(sram: int) -> None:
    """A result that was given its memory while it was still read made models silently wrong."""
    low, high = (View("out0", start, (ELEMENTS // 2,), (1,), DTYPE) for start in (0, ELEMENTS // 2))
    written = Kernel("copy", (low,), (low.on("in0"),))
    filled = [Kernel("copy", (view(t),), (view("in0"),)) for t in ("t0", "t1")]
    module = module_of(1, [written, *filled, *[_gemm()] * 3, Kernel("copy", (high,), (low,))])
    (p,) = module.procedures
    near = promoted(
        p, list(copies(accesses_by_buffer(p.body), [argument("out0")], cumulative_work(p, DIE), 1.0)), 1
    )
    machine = Wafer("w", 1, 1, replace(DIE, sram=sram, hbm=10**6))
    lowered = module.with_(procedures=(near,), machine=machine)
    planned = PlanMemory().run(Schedule().run(Route().run(FormPhases().run(lowered))))
    state = initial_state(module, 1)
    assert_same(run_in_order(module, state), run_planned(planned, state, Random(1)))


def in_memory(procedure: Procedure, sram: int) -> Procedure:
    wafer = Wafer("w", 1, 1, replace(DIE, sram=sram, hbm=10**6))
    (p,) = PlanMemory().run(module_of(1, []).with_(procedures=(procedure,), machine=wafer)).procedures
    return p


def test_pieces_of_a_kernel_stand_among_the_products_before_them() -> None:
    """Each of four reads a quarter, whose copy takes 48 ns; one and a half times all is 288 ns, of which each has a
    quarter, over half a gemm, and stands behind the gemm that is under way then."""
    quarter = ELEMENTS // 4
    pieces = [
        Kernel(
            "copy",
            (View("t2", start, (quarter,), (1,), DTYPE),),
            (View("in0", start, (quarter,), (1,), DTYPE),),
        )
        for start in range(0, ELEMENTS, quarter)
    ]

    def spread(*body: Kernel) -> str:
        (p,) = module_of(1, list(body)).procedures
        return "".join(s.opcode[0] for s in spread_pieces(p, DIE, {}).body if isinstance(s, Kernel))

    assert spread(*[_gemm()] * 5, *pieces) == "ggggccgcc"
    assert spread(*[_gemm()] * 5, _gemm("t2"), *pieces) == "ggggggcccc", "what writes t2 stays before"
    assert spread(*[_gemm()] * 5, _gemm("in0"), *pieces) == "ggggggcccc", "as does what writes in0"
    assert spread(*[_gemm()] * 3, _gemm("t2"), *[_gemm()] * 2, *pieces) == "gggggccgcc"


def test_an_element_is_copied_where_reading_it_would_wait_for_a_large_copy() -> None:
    """A read of 8 bytes is not worth a copy, but for the 184 bytes of another that the memory is busy with."""
    large, element = (
        View("in0", start, (n,), (1,), DTYPE) for start, n in ((0, ELEMENTS - 1), (ELEMENTS - 1, 1))
    )
    reads = [Kernel("copy", (v.on("t2"),), (v,)) for v in (large, large, large, element)]

    def copies_of_in0(*reads: Kernel) -> list[tuple[str, str]]:
        module = reads_often(0, [*reads, *[_gemm()] * 8], arrays=100, sram=48 * ELEMENTS)
        return [c for c in copied(module) if c[0] == "in0"]

    assert len(copies_of_in0(*reads[:3])) == 1
    assert len(copies_of_in0(reads[3])) == 0
    assert len(copies_of_in0(*reads)) == 2


def _gemm(result: str = "t0") -> Kernel:
    out = View(result, 0, (4, 4), (4, 1), DTYPE)
    a, b = View("t1", 0, (4, 1), (1, 1), DTYPE), View("t1", 0, (1, 4), (4, 1), DTYPE)
    return Kernel("gemm", (out,), (a, b), (("scale", 1.0), ("accumulate", False)))


@pytest.mark.parametrize("degrees", [{"tatp": 4}, {"tp": 2, "tatp": 2}], ids=str)
def test_a_step_takes_less_time_with_copies(degrees: dict[str, int]) -> None:
    die = Die(sram=20_000, hbm_bandwidth=10**9)
    module = gpt(degrees, Shape(), wafer=Wafer("w", 2, 4, die))
    fast, slow = (compile_graph(module, level).artifact for level in (2, 1))
    assert simulate(fast).figures().step_seconds < simulate(slow).figures().step_seconds


def _elements(v: View) -> list[int]:
    assert isinstance(v.offset, int)
    grid = (
        sum(i * s for i, s in zip(np.indices(v.shape), v.strides, strict=True)) if v.shape else np.zeros((1,))
    )
    return [v.offset + int(e) for e in np.ravel(grid)]


DIMS = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from([0, 1, 2, 3, 4, 6, 8, 12])), min_size=1, max_size=3
)


@settings(deadline=None, max_examples=75)
@given(st.integers(0, 8), DIMS, st.sampled_from([0, 0, 1, 2, 4]), DIMS)
@example(0, [(4, 2)], 0, [(2, 3)])
def test_a_view_in_a_box_has_in_its_copy_the_elements_that_it_had(
    low: int, outer: list[tuple[int, int]], start: int, inner: list[tuple[int, int]]
) -> None:
    far = View("a", low, tuple(n for n, _ in outer), tuple(s for _, s in outer), DTYPE)
    view = View("a", low + start, tuple(n for n, _ in inner), tuple(s for _, s in inner), DTYPE)
    found = boxes(Argument("a", 200, DTYPE, live_in=True), [far, view])
    for v in (far, view):
        box = found.boxes[found.number_of[v]]
        near = box.inside(v)
        assert near is not None
        # Element k of the copy is element k of the box.
        held = list(range(200)) if box.whole else _elements(box.view)
        assert len(set(held)) == len(held)
        assert [held[e] for e in _elements(near)] == _elements(v)
    kept = [e for b in found.boxes for e in (range(200) if b.whole else _elements(b.view))]
    assert len(set(kept)) == len(kept), "boxes are disjoint"


def test_heads_of_a_matrix_lie_in_the_box_of_its_columns() -> None:
    columns = View("w", 4, (6, 8), (32, 1), DTYPE)
    heads = View("w", 4, (6, 2, 4), (32, 4, 1), DTYPE)
    turned = View("w", 4, (2, 6, 4), (4, 32, 1), DTYPE)
    found = boxes(
        Argument("w", 192, DTYPE, live_in=True),
        [heads, columns, turned, View("w", 12, (6, 8), (32, 1), DTYPE)],
    )
    assert [(b.view.offset, b.whole) for b in found.boxes] == [(4, False), (12, False)]


@pytest.mark.parametrize(("written", "between", "phases"), [(ELEMENTS, 4, 2), (ELEMENTS, 0, 0), (12, 4, 0)])
def test_a_local_that_is_written_is_split_where_its_uses_are_far_apart(
    written: int, between: int, phases: int
) -> None:
    first = Kernel("copy", (sliced(view("t0"), 0, 0, written),), (sliced(view("in0"), 0, 0, written),))
    again = Kernel("copy", (view("t1"),), (view("t0"),))
    (p,) = module_of(2, [first, *[_gemm("t1")] * between, again]).procedures
    m = Measured.of(p, DIE, 2)
    local = Argument("t0", ELEMENTS, DTYPE, live_in=False, live_out=False)
    found = list(copies_of_local(local, m.by_buffer["t0"], m.work, float(m.work.seconds[-1]) / 2, m.where))
    assert [(c.loads, c.stores) for c in found] == [(False, True), (True, False)][
        : phases if phases > 1 else 0
    ]
