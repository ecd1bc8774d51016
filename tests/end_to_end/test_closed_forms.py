"""Equality alone could be had by computing everything everywhere: what each die computes, holds and sends.

The formulas are written out for the tests' GPT: B sequences of S tokens a step, L layers of width d, MLP width f,
V words, in c calls; every number is of one die unless it says otherwise.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

import pytest

from tests.support.models import Shape, gpt
from wscc.driver.compile import Compiled, compile_graph
from wscc.driver.train import RunOptions, Trainer
from wscc.ir.fabric import Kernel
from wscc.ir.module import Module
from wscc.ir.per_die import at
from wscc.ir.step import calls
from wscc.machine.wafer import Wafer

SHAPE = Shape(batch=16, calls=2, seq=8, d=32, heads=4, ffn=64, vocab=64, layers=3)
F64 = 8
STRATEGIES = [
    {"dp": 4}, {"tp": 2}, {"tp": 4}, {"tatp": 2}, {"tatp": 4}, {"dp": 2, "tp": 2}, {"dp": 2, "tatp": 4},
    {"tp": 2, "tatp": 2}, {"dp": 2, "tp": 2, "tatp": 2},
]  # fmt: skip


def compiled(degrees: dict[str, int], **options: object) -> Compiled:
    return _compiled(tuple(degrees.items()), **options)


@lru_cache
def _compiled(degrees: tuple[tuple[str, int], ...], **options: object) -> Compiled:
    return compile_graph(gpt(dict(degrees), SHAPE, **options))


def matrices(s: Shape) -> int:
    """Elements of the weights of a layer that are multiplied."""
    return 4 * s.d * s.d + 2 * s.d * s.ffn


def step_flops(s: Shape) -> int:
    """6 per token and weight (forward, gradient of input, gradient of weight), 14 per pair of tokens and
    channel in attention: two products forward, five backward, causal pairs computed like others."""
    tokens = s.batch * s.seq
    weights = s.layers * matrices(s) + s.vocab * s.d
    return 6 * tokens * weights + 14 * s.layers * s.batch * s.seq * s.seq * s.d


def gemm_flops(module: Module, die: int) -> int:
    """FLOPs of all gemm instructions that one die executes in a step."""
    total = 0
    for call, times in calls(module.step):
        for k in module.procedure(call.procedure).body:
            if isinstance(k, Kernel) and k.opcode == "gemm" and at(k.where, die):
                total += 2 * times * k.writes[0].elements * k.reads[0].shape[-1]
    return total


@pytest.mark.parametrize("degrees", STRATEGIES, ids=str)
def test_every_die_does_its_share_of_the_products(degrees: dict[str, int]) -> None:
    """Exactly work / dies: nothing that is multiplied is replicated."""
    module = compiled(degrees).modules["plan_memory"]
    dies = prod(degrees.values())
    assert {gemm_flops(module, i) * dies for i in range(dies)} == {step_flops(SHAPE)}


@pytest.mark.parametrize(("recompute", "again"), [("selective", 0), ("full", 1)])
def test_recomputation_costs_what_it_says(recompute: str, again: int) -> None:
    """`selective` repeats no product; `full` repeats the forward products of every layer but those whose
    result its backward pass does not read: the down projection, and the logits' own."""
    s = SHAPE
    tokens = s.batch * s.seq
    forward = 2 * tokens * (s.layers * (matrices(s) - s.d * s.ffn) + s.vocab * s.d)
    forward += 4 * s.layers * s.batch * s.seq * s.seq * s.d
    module = compiled({"tp": 2}, recompute=recompute).modules["plan_memory"]
    assert gemm_flops(module, 0) * 2 == step_flops(s) + again * forward


@pytest.mark.parametrize("degrees", STRATEGIES, ids=str)
def test_memory_by_category(degrees: dict[str, int]) -> None:
    """Matrices and the word table over tp x tatp; vectors as tp splits them; dp replicates all. Gradients as
    much again, optimizer state twice. Each element of an array is rounded up to 64 bytes."""
    s, tp = SHAPE, degrees.get("tp", 1)
    share = tp * degrees.get("tatp", 1)
    split = [3 * s.d * s.d, s.d * s.d, s.d * s.ffn, s.d * s.ffn]
    vectors = [s.d // 1] * 6  # two norms' gains and biases, two output biases
    by_tp = [3 * s.d, s.ffn]  # biases of qkv and of the MLP follow their columns
    up = lambda n: -(-n * F64 // 64) * 64  # noqa: E731
    layer = sum(up(n // share) for n in split) + sum(map(up, vectors)) + sum(up(n // tp) for n in by_tp)
    position = {1: s.seq * s.d}.get(tp, s.seq * s.d // tp)  # split by tp along the sequence or the width
    whole = s.layers * layer + up(s.vocab * s.d // share) + up(position) + 2 * up(s.d)
    report = compiled(degrees).report
    of = report["memory"]["by_category"]
    assert of["param"] == whole
    assert of["grad"] == whole
    assert of["state"] == 2 * whole
    once = F64 * (s.layers * (matrices(s) + 9 * s.d + s.ffn) + s.vocab * s.d + s.seq * s.d + 2 * s.d)
    for kind, times in (("param", 1), ("grad", 1), ("state", 2)):
        assert report["storage"]["by_kind"][kind]["once_bytes"] == times * once


def link_bytes(degrees: dict[str, int]) -> dict[tuple[int, int], int]:
    artifact = compiled(degrees).artifact
    trainer = Trainer(artifact, RunOptions(steps=1, threads=1))
    list(trainer.steps())
    return trainer.machine.traffic()


def test_dp_sends_each_gradient_once_per_link_and_direction() -> None:
    """Two replicas: a gradient crosses once each way, whether it is reduced in halves or exchanged whole; so
    do the loss and the number of labels. The gradient norm needs nothing: gradients are complete."""
    s = SHAPE
    params = s.layers * (matrices(s) + 9 * s.d + s.ffn) + s.vocab * s.d + s.seq * s.d + 2 * s.d
    assert set(link_bytes({"dp": 2}).values()) == {(params + 2) * F64}


@pytest.mark.parametrize("size", [2, 4])
def test_tatp_sends_half_of_the_other_shards_per_link_and_direction(size: int) -> None:
    """A closed ring: (T - 1)/2 shards (T = 2: one) per stream. Weights stream forward and twice backward, the
    word table for the embedding forward and as its gradient, for the head three times; vectors' gradients
    (9 d + f a layer, positions, the last norm) and a scalar are gathered whole once a step, from each die to all
    others at once: of four, one lies two hops away, so that 16 hops are spread over 8 links. Two scalars that are
    alone go round the ring."""
    s = SHAPE
    streamed = s.calls * (3 * s.layers * matrices(s) + 5 * s.vocab * s.d)
    vectors = s.layers * (9 * s.d + s.ffn) + s.seq * s.d + 2 * s.d
    per_link = {2: 1.0, 4: 1.5}[size]
    want = per_link * (streamed / size + 2) + {2: 1, 4: 2}[size] * (vectors + 1)
    seen = link_bytes({"tatp": size})
    assert len(seen) == 2 * (size if size > 2 else 1)
    assert sum(seen.values()) / len(seen) == want * F64


@pytest.mark.parametrize("degrees", [{"dp": 2, "tp": 8}], ids=str)
def test_what_dies_repeat_is_stated(degrees: dict[str, int]) -> None:
    """Four heads, four sequences on tp = 8: every die does attention whole, and the report says so to the FLOP."""
    wafer = Wafer("w", 4, 4)
    made = compile_graph(gpt(degrees, SHAPE, wafer=wafer))
    dies = prod(degrees.values())
    executed = sum(gemm_flops(made.modules["plan_memory"], i) for i in range(dies))
    stated = made.report["replicated_flops"]
    assert {n.split("/")[1] for n in stated} == {"attention", "d.q"}
    assert executed == step_flops(SHAPE) + sum(stated.values())
