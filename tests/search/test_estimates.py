"""What bounds and estimates of a full-size model count, by hand: a Llama has ops of positions besides its attention."""

from __future__ import annotations

import pytest

from wscc.analysis.memory.array_layout import peak_array_bytes
from wscc.driver.compile import compile_file
from wscc.files import read_source
from wscc.frontend.overrides import Overrides
from wscc.frontend.parse import parse
from wscc.ir.array import Kind
from wscc.ir.op import Op
from wscc.passes.differentiate import Differentiate
from wscc.search.candidates import Compiled, Problem, compiled, estimated, simulated
from wscc.search.closed_forms import ClosedForms
from wscc.search.space import plan_of
from wscc.search.statement_times import StatementTimes
from wscc.strategy import mesh_axes

GPT_TINY = "samples/gpt-tiny.wsl"
# Of samples/llama2-7b.wsl: layers, width, that of its feed-forward part, vocabulary, and tokens of a sequence.
LAYERS, D, FFN, VOCAB, SEQ = 32, 4096, 11008, 32000, 4096
HEADS, WIDTH, PEAK = 32, 128, 1.8e15
BATCH = 64
LLAMA = Problem(
    parse(read_source("samples/llama2-7b.wsl")), Overrides((f"train.batch={BATCH}",), parallel="auto")
)


def test_a_bound_counts_every_product_of_a_layer() -> None:
    """Two FLOPs of a weight and token, and those of the half of attention that the mask leaves; three times that."""
    graph = LLAMA.one_die()
    weights = LAYERS * (4 * D * D + 3 * D * FFN) + D * VOCAB
    tokens = BATCH * SEQ
    attention = LAYERS * tokens * 2 * 2 * (SEQ // 2) * D
    assert graph.machine.die.peak == PEAK
    assert ClosedForms.of(graph, Differentiate().run(graph), {}).flops == 3 * (
        2 * tokens * weights + attention
    )


@pytest.mark.parametrize(("tp", "tatp"), [(2, 16), (4, 8)])
def test_attention_of_whole_tiles_is_estimated_at_the_peak(tp: int, tatp: int) -> None:
    """Keys come in `tatp` shards of at least a tile; of n in zigzag, each has (2n + 1) / 4 to look at."""
    module = LLAMA.sharded(plan_of(mesh_axes({"tp": tp, "tatp": tatp}), ["1", "selective", "0", "1"]))
    forward = module.procedure("block.fwd")
    tasks = zip(forward.statements, StatementTimes.of(module).tasks(forward), strict=True)
    seconds = next(task.work for s, task in tasks if s.kind == "attention")
    scores = HEADS // tp * (SEQ // tatp) * (SEQ // tatp) * (2 * tatp + 1) / 4
    assert seconds == pytest.approx(2 * 2 * scores * WIDTH / PEAK)


TINY = Problem(parse(read_source(GPT_TINY)), Overrides(("wafer.mesh=2x2",), parallel="auto"))


@pytest.mark.parametrize(
    ("degrees", "microbatch", "zero"),
    [
        pytest.param({"dp": 2}, "1", "3", id="a gather begins when the die has come to the one before"),
        pytest.param({"sp": 4}, "4", "1", id="keys are gathered before their gradients are sent back"),
        pytest.param({"tp": 4}, "4", "0", id="a reshard that both sides need holds up the die"),
    ],
)
def test_messages_are_waited_for_as_in_the_program(
    degrees: dict[str, int], microbatch: str, zero: str
) -> None:
    """Where latency is most of a step, the estimate is near the simulated one only if as much of it is hidden."""
    plan = plan_of(mesh_axes(degrees), [microbatch, "none", zero, "1"])
    program, estimate = compiled(TINY, plan), estimated(TINY, plan)
    assert isinstance(program, Compiled)
    assert estimate == pytest.approx(simulated(TINY, program).step_seconds, rel=0.15)


def test_work_that_outgrows_the_sram_is_estimated_to_take_longer_for_a_token() -> None:
    """Sums and operands of a layer of gpt3-175b fit for 2 sequences; for 8, turns of streams pass over them in HBM."""
    problem = Problem(parse(read_source("samples/gpt3-175b.wsl")), Overrides(parallel="auto"))
    strategy = mesh_axes({"tp": 6, "tatp": 8})
    few, many = (estimated(problem, plan_of(strategy, [n, "selective", "0", "1"])) for n in ("4", "8"))
    assert isinstance(few, float)
    assert isinstance(many, float)
    assert many > 1.2 * few


def test_each_turn_passes_over_an_operand_that_finds_no_room() -> None:
    """A weight gradient in 4 turns, each of which needs all of an operand of 1 MB or more, in an SRAM of less."""
    sets = ("model.d=1024", "model.seq=1024", "wafer.mesh=1x4", "wafer.die.sram=900 kB")
    problem = Problem(parse(read_source(GPT_TINY)), Overrides(sets, parallel="auto"))
    module = problem.sharded(plan_of(mesh_axes({"tatp": 4}), ["4", "none", "0", "1"]))
    times, backward = StatementTimes.of(module), module.procedure("block.bwd")
    passes = []
    for s, task in zip(backward.statements, times.tasks(backward), strict=True):
        if isinstance(s, Op) and s.kind == "matmul" and s.stream and s.stream.moving_out:
            whole = [v for v, term in zip(s.operands, s.rule.ins, strict=True) if s.stream.factor not in term]
            amount = sum(times.slicing.local(v) for v in whole)
            passes.append(task.direct / times.rates.die.hbm(amount))
    assert passes
    assert min(passes) >= 4


@pytest.mark.parametrize(
    ("pp", "microbatch", "interleave"), [(3, "1", "1"), (2, "1", "3"), (3, "8", "2"), (4, "1", "2")]
)
def test_stages_wait_for_each_other_as_in_the_program(pp: int, microbatch: str, interleave: str) -> None:
    """With work that takes all of the time; interleaved chunks wait for longer than they save at the ends."""
    sets = ("wafer.mesh=1x4", "train.batch=48", "model.layers=12", "wafer.die.peak=100 GFLOP/s")
    problem = Problem(parse(read_source(GPT_TINY)), Overrides(sets, parallel="auto"))
    plan = plan_of(mesh_axes({"pp": pp}), [microbatch, "selective", "0", interleave])
    program = compiled(problem, plan)
    assert isinstance(program, Compiled)
    assert estimated(problem, plan) == pytest.approx(simulated(problem, program).step_seconds, rel=0.04)


def test_stages_exchange_forward_and_backward_in_one_call() -> None:
    """Where latency is most of a step: one of each micro-batch, not two."""
    plan = plan_of(mesh_axes({"pp": 2}), ["1", "full", "0", "1"])
    program = compiled(TINY, plan)
    assert isinstance(program, Compiled)
    assert estimated(TINY, plan) == pytest.approx(simulated(TINY, program).step_seconds, rel=0.1)


def test_more_work_of_a_call_hides_more_of_the_completion_of_gradients() -> None:
    """Messages of the sum of a layer's gradients, behind backward work on one, two and four sequences of the next."""
    sets = ("model.d=1024", "model.seq=256")
    problem = Problem(parse(read_source("tests/cases/search.wsl")), Overrides(sets, parallel="auto"))
    plans = [plan_of(mesh_axes({"dp": 2, "sp": 2}), [n, "none", "0", "1"]) for n in ("1", "2", "4")]
    estimates = [estimated(problem, plan) for plan in plans]
    steps = []
    for plan in plans:
        program = compiled(problem, plan)
        assert isinstance(program, Compiled)
        steps.append(simulated(problem, program).step_seconds)
    assert steps == sorted(steps, reverse=True)
    assert estimates == [pytest.approx(n, rel=0.1) for n in steps]
    assert estimates[2] < estimates[1] < estimates[0]


@pytest.mark.parametrize(("spare", "copies"), [(8_000, False), (10**7, True)])
def test_compute_copies_are_estimated_where_the_program_has_them(spare: int, copies: bool) -> None:
    """Beside all arrays and copies, locals need more than 8 kB and less than 10 MB."""
    plan = plan_of(mesh_axes({"tp": 2}), ["2", "none", "0", "1"])
    arrays = peak_array_bytes(_mixed(10**9).sharded(plan))
    problem = _mixed(arrays + spare - 10**6)
    program = compile_file(GPT_TINY, problem.settled(plan))
    assert (program.report["weights_converted"] == "once a step") == copies
    assert any(a.kind is Kind.COMPUTE_COPY for a in problem.sharded(plan).arrays) == copies


def _mixed(hbm: int) -> Problem:
    """Weights in f32 that are multiplied in bf16, on dies of 1 MB of SRAM and so many bytes of HBM."""
    sets = ("wafer.mesh=1x2", "wafer.die.sram=1 MB", f"wafer.die.hbm={hbm} B", "train.dtype.compute=bf16")
    return Problem(parse(read_source(GPT_TINY)), Overrides(sets, parallel="auto"))
