"""`hoist_casts`: weights are converted once a step, no value changes, and copies that do not fit are left out."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.paths import SAMPLES
from wscc.backends.artifact.files import Artifact
from wscc.backends.emit import emit
from wscc.backends.verify import verify_program
from wscc.diagnostics import CompileError, Source
from wscc.driver.compile import Compiled, compile_graph
from wscc.driver.pipeline import Pipeline
from wscc.driver.train import RunOptions, Trainer
from wscc.equivalence import check_semantics
from wscc.frontend.elaborate import elaborate
from wscc.frontend.overrides import Overrides
from wscc.frontend.parse import parse
from wscc.frontend.resolve import resolve
from wscc.ir.array import Kind
from wscc.ir.module import Module
from wscc.ir.step import calls
from wscc.ir.text.print import to_text
from wscc.passes.hoist_casts import HoistCasts
from wscc.passes.overlap_calls import OverlapCalls
from wscc.passes.stages import Stages

SMALL = ("model.layers=2", "model.seq=8", "model.d=16", "model.vocab=32")


def small(sample: str, parallel: str, *sets: str, compute: str = "bf16") -> Module:
    """A tiny sample with weights in f32."""
    text = (SAMPLES / f"{sample}-tiny.wsl").read_text().replace("compute f32", f"compute {compute}")
    overrides = Overrides(sets=(*SMALL, *sets), parallel=parallel)
    return elaborate(resolve(parse(Source("m.wsl", text)), overrides))


@lru_cache
def compiled() -> Compiled:
    return compile_graph(small("gpt", "tp=2", "model.d=64"), 1)


def planned(graph: Module, *, hoist: bool) -> Module:
    """With weights converted once, or at every use; calls stay apart, since they are merged where memory allows."""
    left_out = (OverlapCalls,) if hoist else (OverlapCalls, HoistCasts)
    return Pipeline.default(1).without(*left_out).run(graph)


def trained(graph: Module, *, hoist: bool) -> dict[str, bytes]:
    """Losses, weights, gradients and optimizer state of two steps."""
    artifact = Artifact(*emit(planned(graph, hoist=hoist)), to_text(graph))
    trainer = Trainer(artifact, RunOptions(steps=2, threads=1))
    out = {f"loss {i}": repr(loss).encode() for i, loss in enumerate(trainer.steps())}
    for kind in (Kind.PARAM, Kind.GRAD, Kind.STATE):
        out |= {n: value.tobytes() for n, value in trainer.arrays(kind).items()}
    return out


@settings(max_examples=2, deadline=None)
@given(
    sample=st.sampled_from(["gpt", "llama"]),
    parallel=st.sampled_from(["pp=2,dp=2", "dp=2,tp=2", "tatp=2"]),
    zero=st.sampled_from([0, 1, 3]),
    microbatch=st.sampled_from([2, 4, 8]),
)
def test_hoisting_changes_no_bit(sample: str, parallel: str, zero: int, microbatch: int) -> None:
    """Weights that two stages hold, that are gathered for every layer, that travel; from one call a step on."""
    graph = small(sample, parallel, f"train.zero={zero}", f"train.microbatch={microbatch}")
    assert trained(graph, hoist=True) == trained(graph, hoist=False)


def test_a_program_with_compute_copies_is_valid_and_means_its_graph() -> None:
    """The word table is tied, so that both stages convert their own."""
    artifact = compile_graph(small("gpt", "pp=2"), 1).artifact
    assert not verify_program(artifact).findings
    assert not check_semantics(artifact).findings


def conversions(module: Module) -> dict[str, int]:
    """By procedure, how often a step converts weights to bf16 in it."""
    return {
        c.procedure: times
        for c, times in calls(module.step)
        for op in module.procedure(c.procedure).ops
        if op.kind == "cast" and op.operands[0].name.startswith("w")
    }


def test_each_weight_is_converted_once_a_step_into_half_its_bytes() -> None:
    program = compiled()
    before = conversions(program.modules["stages"])
    assert before == {"prologue.fwd": 4, "block.fwd": 8, "epilogue.fwd": 4, "block.bwd": 8, "epilogue.bwd": 4}
    assert conversions(program.modules["hoist_casts"]) == {"prologue.cast": 1, "block.cast": 2}
    memory = program.report["memory"]["by_category"]
    assert memory["compute_copy"] * 2 == memory["param"]


@pytest.mark.parametrize("compute", ["f32", "f64"])
def test_a_program_that_narrows_no_weight_is_left_alone(compute: str) -> None:
    graph = small("gpt", "tp=2", compute=compute)
    staged = Pipeline.default(1).until(Stages).run(graph)
    assert HoistCasts().run(staged) is staged


def test_a_weight_that_is_read_after_its_update_has_no_copy() -> None:
    """A copy would be the weight as it was before."""
    staged = Pipeline.default(1).until(Stages).run(small("gpt", "tp=2"))
    step = staged.step
    (first,) = [i for i, s in enumerate(step) if any("block.update" in c.procedure for c, _ in calls((s,)))]
    early = staged.with_(step=(step[first], *step[:first], *step[first + 1 :]))
    hoisted = {a.name for a in HoistCasts().run(staged).arrays if a.kind is Kind.COMPUTE_COPY}
    remaining = {a.name for a in HoistCasts().run(early).arrays if a.kind is Kind.COMPUTE_COPY}
    assert {n for n in hoisted if n.startswith("block.")}
    assert remaining == {n for n in hoisted if not n.startswith("block.")}


def test_what_does_not_fit_with_copies_is_compiled_without_them() -> None:
    """Whether arrays alone are too much or locals beside them; what fits neither way is refused with the numbers of
    the smaller one."""
    graph = compiled().graph
    assert compiled().report["weights_converted"] == "once a step"
    full, least = (arena(planned(graph, hoist=hoist)) for hoist in (True, False))
    for capacity in (full - 64, least):
        program = compile_graph(with_memory(graph, capacity), 1)
        assert program.report["weights_converted"] == "at each use: compute copies do not fit"
        plain = Pipeline.default(1).without(HoistCasts).run(with_memory(graph, capacity))
        assert program.report["memory"]["peak_bytes_per_die_max"] == arena(plain)
    with pytest.raises(CompileError, match="64 B too much"):
        compile_graph(with_memory(graph, least - 64), 1)


def arena(module: Module) -> int:
    assert module.memory is not None
    return module.memory.arena_bytes


def with_memory(graph: Module, capacity: int) -> Module:
    die = replace(graph.machine.die, sram=capacity // 2, hbm=capacity - capacity // 2)
    return graph.with_(machine=replace(graph.machine, die=die))
