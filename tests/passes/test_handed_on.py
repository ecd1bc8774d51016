"""`promote`: what a call hands to the next lies among the locals, and arrives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.fabric_engine import (
    State,
    assert_same,
    initial_state,
    run_in_order,
    run_planned,
    run_scheduled,
)
from tests.support.fabric_modules import DTYPE, ELEMENTS
from wscc.diagnostics import Source
from wscc.driver.compile import load, program_of
from wscc.ir.array import Array, Kind
from wscc.ir.fabric import Buffer, Kernel, Transfer
from wscc.ir.module import Level, Module, Output, Procedure
from wscc.ir.op import Value
from wscc.ir.per_die import per_die
from wscc.ir.step import Affine, Call, Loop, Ref, calls
from wscc.ir.text.parse import parse
from wscc.ir.text.print import to_text
from wscc.ir.train import Train
from wscc.ir.types import Layout, TensorType
from wscc.ir.verify import verify
from wscc.ir.views import View, whole_view
from wscc.machine.wafer import Die, Wafer
from wscc.passes.form_phases import FormPhases
from wscc.passes.plan_memory import PlanMemory
from wscc.passes.promote import Promote
from wscc.passes.promote.handed_on import handed_on
from wscc.passes.route import Route
from wscc.passes.schedule import Schedule

_TENSOR = whole_view("", (ELEMENTS,), DTYPE)
_ROOMY = Die(peak=25 * 10**7, sram=64 * 8 * ELEMENTS, hbm_bandwidth=10**9)


def _tight(rows: int) -> Die:
    """A die with room for so many whole values in its fast memory."""
    return Die(peak=25 * 10**7, sram=rows * 192, hbm=10**9, hbm_bandwidth=10**9)


def chain(rng: Random) -> Module:
    """Layers that hand `x` forward and `g` back, in two turns of a loop. Bodies are random: what is handed may be read
    late, another call may come between, `x` may be read by others than the next call, and
    twice by this one."""
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
    again = taken if rng.random() < 0.15 else layer
    forward = [taken, again, Ref("x", at_layer(1)), Ref("r", at_layer(0))]
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
    return _TENSOR.on(buffer)


def _not_handed(module: Module) -> float:
    """As if a second were saved by each array that is handed on."""
    return -sum(a.handed for a in module.arrays)


def _kept(state: State) -> State:
    """What is read after the step: gradients, and no longer what layers passed on."""
    return {n: state[n] for n in ("r", "d")}


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32), st.integers(4, 16), st.booleans())
def test_what_calls_hand_on_arrives_though_locals_have_its_bytes_meanwhile(
    seed: int, rows: int, overlap: bool
) -> None:
    module = chain(Random(seed))
    assert not list(verify(module))
    near = handed_on(module, _not_handed)
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
    for seed in range(100):
        module = chain(Random(seed))
        near = handed_on(module, _not_handed)
        assert parse(Source("m.wir", to_text(near))) == near
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


@pytest.mark.parametrize(("room", "is_handed"), [(7, True), (10, False)])
def test_what_takes_the_room_of_what_is_used_more_is_not_handed_on(room: int, *, is_handed: bool) -> None:
    """Layers hand on 3 values, where 12 have room, and use a local of several more often."""
    wide = room * ELEMENTS
    value_type = TensorType((3 * ELEMENTS,), DTYPE, Layout.whole(1))
    arrays = [Array("x", value_type, Kind.CARRIED, (5,)), Array("w", value_type, Kind.RESIDUAL, (40,))]
    local = whole_view("t", (wide,), DTYPE)
    x, y = (whole_view(n, (3 * ELEMENTS,), DTYPE) for n in "ab")
    part = x.on("t")
    adds = (Kernel("add", (local,), (local, local)) for _ in range(30))
    body = (Kernel("copy", (part,), (x,)), *adds, Kernel("copy", (y,), (part,)))
    a, b = (Value(n, value_type) for n in "ab")
    layer = Procedure("layer", (a,), (Output(b),), body, (Buffer("t", wide, DTYPE),))
    first = Procedure("first", (), (Output(b),), (Kernel("fill", (y,), (), (("value", 0.0),)),))
    last = Procedure("last", (a,), (Output(b),), (Kernel("copy", (y,), (x,)),))
    step = (
        Call("first", (Ref("x", (Affine(0),)),)),
        Loop("l", 4, (Call("layer", tuple(Ref("x", (Affine(i, (("l", 1),)),)) for i in (0, 1))),)),
        Call("last", (Ref("x", (Affine(4),)), Ref("w", (Affine(0),)))),
    )
    module = Module(
        "m", Level.FABRIC, (("a", 1),), Train(batch=1, microbatches=1), Wafer("w", 1, 1, _tight(12)),
        tuple(arrays), (first, layer, last), step, dies=(0,),
    )  # fmt: skip
    assert any(a.handed for a in Promote().run(module).arrays) == is_handed


SKIPPED = """
wafer w {
  mesh 1 x 1
  die { peak 1 TFLOP/s, sram 6 KB, hbm 80 MB at 1 GB/s, tile 128 }
  link { bandwidth 1 TB/s, latency 100 ns }
}
model m(d = 8, f = 12, vocab = 41, seq = 6) {
  input tokens : i32[batch, seq]
  input labels : i32[batch, seq]
  param wte : [vocab, d] init normal(0.3)
  param gf : [d] init ones
  param head : [vocab, d] init normal(0.3)
  x = embedding(tokens, wte)
  y = x * 0.5
  param w : [d, f] init normal(0.3)
  param v : [f, d] init normal(0.3)
  param g : [d] init ones
  param b : [d] init zeros
  param c : [f] init normal(0.1)
  x = x + gelu(layernorm(x, g, b) @ w + c) @ v
  repeat 1 as part { x = x - y / 4 }
  loss cross_entropy(rmsnorm(x, gf) @ transpose(head), labels)
}
train m on w {
  batch 2
  microbatch 2
  optimizer adamw(lr = 1e-2)
  dtype compute f64, params f64, grads f64
  recompute full
  parallel dp = 1
}
"""


def test_the_gradient_of_what_is_handed_on_stays_an_array(tmp_path: Path) -> None:
    """A value that skips layers is handed on and no array any more, its gradient is one still."""
    (tmp_path / "m.wsl").write_text(SKIPPED, encoding="utf-8")
    _, module = program_of(load(str(tmp_path / "m.wsl")))
    assert any(a.handed for a in module.arrays)
    assert not list(verify(module))
