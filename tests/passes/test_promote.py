"""`promote`: statements access copies in the fast memory, and memory ends as if they had accessed the arguments."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.oracles.fabric_engine import (
    State,
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
from wscc.ir.array import Array, Kind
from wscc.ir.fabric import Buffer, Kernel, Send, Transfer, Wait
from wscc.ir.module import Level, Module, Output, Procedure
from wscc.ir.op import Value
from wscc.ir.per_die import per_die
from wscc.ir.step import Affine, Call, Loop, Ref, calls
from wscc.ir.train import Train
from wscc.ir.types import Layout, TensorType
from wscc.ir.verify import verify
from wscc.ir.views import View, whole_view
from wscc.machine.wafer import Die, Wafer
from wscc.passes.form_phases import FormPhases
from wscc.passes.plan_memory import PlanMemory
from wscc.passes.promote import Promote, promoted
from wscc.passes.promote.boxes import Argument
from wscc.passes.promote.choose import copies
from wscc.passes.promote.handed_on import handed_on
from wscc.passes.promote.spread import spread_pieces
from wscc.passes.route import Route
from wscc.passes.schedule import Schedule


def argument(name: str) -> Argument:
    return Argument(name, ELEMENTS, DTYPE, live_in=True)


def promoted_at_random(module: Module, rng: Random) -> Module:
    """The module with copies of random boxes of arguments that share bytes with no other, profitable or not."""
    names = aliases(module)
    procedures = []
    for p in module.procedures:
        free = [argument(n) for n in dict.fromkeys(v.name for v in p.arguments) if n not in names[p.name]]
        # So fast that any work between two uses parts them.
        candidates = copies(accesses_by_buffer(p.body), free, cumulative_work(p, module.machine.die), 1e30)
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
    uses = [Kernel("copy", (replace(v, buffer="t2"),), (v,)) for v in (high, low)]
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
    written = Kernel("copy", (low,), (replace(low, buffer="in0"),))
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
    reads = [Kernel("copy", (replace(v, buffer="t2"),), (v,)) for v in (large, large, large, element)]

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


# ------------------------------------------------------------------------------------- from call to call

_TENSOR = whole_view("", (ELEMENTS,), DTYPE)
_ROOMY = Die(peak=25 * 10**7, sram=64 * 8 * ELEMENTS, hbm_bandwidth=10**9)


def _tight(rows: int) -> Die:
    """A die with room for so many whole values in its fast memory."""
    return Die(peak=25 * 10**7, sram=rows * 192, hbm=10**9, hbm_bandwidth=10**9)


def chain(rng: Random) -> Module:
    """Layers that hand `x` forward and `g` back, in two turns of a loop. Bodies are random: what is handed may be read
    late, another call may come between, `x` may be read by others than the next call."""
    dies, layers = rng.randint(1, 3), rng.randint(1, 4)
    kinds = {"x": Kind.CARRIED, "g": Kind.CARRIED, "w": Kind.RESIDUAL, "r": Kind.GRAD, "d": Kind.GRAD}
    extents = {"x": (layers + 1,), "g": (2,), "w": (layers,), "r": (layers,), "d": (1,)}
    value_type = TensorType((ELEMENTS,), DTYPE, Layout.whole(1))
    arrays = tuple(Array(n, value_type, kinds[n], extents[n]) for n in kinds)
    reads_x = rng.random() < 0.7

    def procedure(name: str, ins: list[str], outs: list[str]) -> Procedure:
        values = [Value(n, value_type) for n in (*ins, *outs)]
        body, buffers = _chained(rng, dies, ins, outs)
        outputs = tuple(Output(v) for v in values[len(ins) :])
        return Procedure(name, tuple(values[: len(ins)]), outputs, body, buffers)

    def at_layer(base: int, modulus: int = 0, sign: int = 1) -> tuple[Affine]:
        return (Affine(base, (("l", sign),), modulus),)

    first, layer, back = (
        Ref("x", (Affine(0),)),
        Ref("w", at_layer(0)),
        Ref("w", at_layer(layers - 1, sign=-1)),
    )
    taken = first if rng.random() < 0.15 else Ref("x", at_layer(0))
    forward = [taken, layer, Ref("x", at_layer(1)), Ref("r", at_layer(0))]
    late = Ref("x", at_layer(layers - 1, sign=-1)) if reads_x else back
    backward = [Ref("g", at_layer(layers, 2, -1)), late, Ref("g", at_layer(layers - 1, 2, -1))]
    last, grad = Ref("x", (Affine(layers),)), Ref("g", (Affine(layers, (), 2),))
    between = Call("other", (Ref("w", (Affine(0),)), Ref("d", (Affine(0),))))
    step = [
        Call("head", (Ref("w", (Affine(0),)), first)),
        Loop("l", layers, (Call("layer", tuple(forward)), *([between] if rng.random() < 0.2 else []))),
        *([between] if rng.random() < 0.2 else []),
        Call("tail", (last, grad)),
        Loop("l", layers, (Call("back", tuple(backward)),)),
        Call("end", (Ref("g", (Affine(0, (), 2),)), Ref("d", (Affine(0),)))),
    ]
    procedures = (
        procedure("head", ["a"], ["b"]),
        procedure("layer", ["a", "w"], ["b", "r"]),
        procedure("tail", ["a"], ["b"]),
        procedure("back", ["a", "w"], ["b"]),
        procedure("end", ["a"], ["b"]),
        procedure("other", ["a"], ["b"]),
    )
    train = Train(batch=dies, microbatches=1)
    loop = (Loop("mb", 2, tuple(step)),)
    wafer = Wafer("w", 1, dies, _ROOMY)
    dies_ = tuple(range(dies))
    return Module("m", Level.FABRIC, (("a", dies),), train, wafer, arrays, procedures, loop, dies=dies_)


def _chained(
    rng: Random, dies: int, ins: list[str], outs: list[str]
) -> tuple[tuple[Kernel | Transfer, ...], tuple[Buffer, ...]]:
    """A body that reads all inputs whole and writes all outputs whole, by way of locals and of the next die."""
    buffers = [Buffer(f"t{i}", ELEMENTS, DTYPE, slot=i == 3) for i in range(4)]
    known = [ins[0]]
    body: list[Kernel | Transfer] = [Kernel("copy", (_on("t0"),), (_on(ins[0]),))]
    known = ["t0", *ins[1:], *(ins[:1] if rng.random() < 0.3 else [])]
    for i in (1, 2):
        reads = _on(rng.choice(known)), _on(rng.choice(known))
        body.append(Kernel("add", (_on(f"t{i}"),), reads))
        known.append(f"t{i}")
    to = per_die((d + 1) % dies for d in range(dies))
    body.append(Transfer(0, to, _on("t2"), _on("t3"), group="ring"))
    for name in outs:
        body.append(Kernel("add", (_on(name),), (_on("t3"), _on(rng.choice(known)))))
    if rng.random() < 0.3:
        body.append(Kernel("copy", (_on("t1"),), (_on(rng.choice([*known, outs[0]])),)))
    if rng.random() < 0.5:
        buffers.append(Buffer("t4", ELEMENTS, DTYPE))
        body.append(Kernel("copy", (_on("t4"),), (_on(rng.choice(known)),)))
    return tuple(body), tuple(buffers)


def _on(buffer: str) -> View:
    return replace(_TENSOR, buffer=buffer)


def _kept(state: State) -> State:
    """What is read after the step: gradients, and no longer what layers passed on."""
    return {n: state[n] for n in ("r", "d")}


@settings(deadline=None, max_examples=120)
@given(st.integers(0, 2**32), st.integers(4, 16), st.booleans())
def test_what_calls_hand_on_arrives_though_locals_have_its_bytes_meanwhile(
    seed: int, rows: int, overlap: bool
) -> None:
    module = chain(Random(seed))
    assert not list(verify(module))
    near = handed_on(module)
    assert not list(verify(near))
    state = initial_state(module, seed)
    expected = _kept(run_in_order(module, state))
    empty = np.full((1, module.dies_used, ELEMENTS), np.nan)
    near_state = {a.name: state.get(a.name, empty) for a in near.arrays}
    assert_same(expected, _kept(run_in_order(near, near_state)))
    scheduled = Schedule(overlap=overlap).run(Route().run(FormPhases().run(near)))
    scheduled = _with_calls_between(scheduled, Random(seed))
    expected = _kept(run_scheduled(scheduled, near_state, Random(seed)))
    planned = PlanMemory().run(scheduled.with_(machine=replace(module.machine, die=_tight(rows))))
    assert not list(verify(planned))
    written = {a.name: near_state[a.name] for a in near.arrays if not a.handed}
    assert_same(expected, _kept(run_planned(planned, written, Random(seed))))


def _with_calls_between(module: Module, rng: Random) -> Module:
    """The module with more calls between others, which what is handed on has to live through."""
    other = Call("other", (Ref("w", (Affine(0),)), Ref("d", (Affine(0),))))

    def mixed(body: tuple[Call | Loop, ...]) -> tuple[Call | Loop, ...]:
        mixed_body: list[Call | Loop] = []
        for s in body:
            mixed_body += [other] * (rng.random() < 0.15)
            mixed_body.append(replace(s, body=mixed(s.body)) if isinstance(s, Loop) else s)
        return tuple(mixed_body)

    return module.with_(step=mixed(module.steps()[0]))


def test_arrays_are_handed_on_exactly_where_the_next_call_reads_them() -> None:
    seen = set()
    for seed in range(200):
        module = chain(Random(seed))
        near = handed_on(module)
        handed = sorted(a.name for a in near.arrays if a.handed)
        between = "other" in {c.procedure for c, _ in calls(module.step)}
        copies = sum(o.value.name.endswith(".saved") for p in near.procedures for o in p.outputs)
        seen.add((tuple(handed), between, copies > 0))
        assert not (between and "x.handed" in handed), "what comes between would find nothing"
        if copies:
            assert any(a.name == "x" for a in near.arrays), "it is saved for those that read it later"
    assert (("g.handed", "x.handed"), False, True) in seen
    assert (("g.handed", "x.handed"), False, False) in seen
    assert (("g.handed",), True, False) in seen
    assert ((), False, False) in seen, "some read what they are handed too late"
