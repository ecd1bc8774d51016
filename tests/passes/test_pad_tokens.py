"""`pad` of sequences and positions: programs whose batch or positions no degree divides are equal to one device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.fuzz.draw import Draw, Line, Part
from tests.support.compile_once import artifact_of, artifact_of_file
from tests.support.models import Shape, gpt
from tests.support.paths import SAMPLES
from tests.support.verdict import EQUAL, verdict
from wscc.analysis.flops import model_flops
from wscc.backends.interpreter import host_io
from wscc.backends.verify import verify_program
from wscc.diagnostics import CompileError, Source
from wscc.driver.compile import compile_file
from wscc.driver.train import RunOptions, Trainer
from wscc.equivalence.recompile import differences
from wscc.frontend.elaborate import elaborate
from wscc.frontend.overrides import Overrides
from wscc.frontend.parse import parse
from wscc.frontend.resolve import resolve
from wscc.ir.array import Kind
from wscc.ir.module import Module
from wscc.ir.op import Op
from wscc.ir.text.parse import parse as parse_wir
from wscc.ir.text.print import to_text
from wscc.passes.differentiate import Differentiate
from wscc.passes.pad import Pad

Degrees = tuple[tuple[str, int], ...]

# Ops that work by position, that see keys, that sum over positions, and that give tokens places in turn.
LINES = (
    ("mha", "mlp"), ("mha_full", "norms"), ("gqa_full", "positions"), ("gqa_alibi", "dropout"), ("mixture", "mha_full"),
    ("edges", "edge_attention"), ("float_input", "divide"), ("second_input", "gqa_windowed"),
)  # fmt: skip


def draw_of(
    lines: Sequence[str], degrees: dict[str, int], seq: int = 8, micro: int = 1, extra: int = 0, **more: Any
) -> Draw:
    """A tiny program of two micro-batches; `extra` are sequences of a call that replicas have no place for, or, below
    0, that they have too many places for."""
    parts = (Part(2, tuple(Line(name) for name in lines)),)
    mesh = {1: (1, 1), 2: (1, 2), 4: (2, 2), 8: (2, 4)}
    rows, cols = mesh[int(np.prod([*degrees.values()]))]
    return Draw(
        rows=rows, cols=cols, parts=parts, degrees=tuple(degrees.items()), seq=seq, micro=micro, calls=2,
        extra=2 * extra, experts=4, tile=4, optimizer="adamw(lr = 1e-2, eps = 1e-5, weight_decay = 0.1)",
        **more,
    )  # fmt: skip


def outcome(draw: Draw) -> str:
    with TemporaryDirectory() as folder:
        return verdict(draw.text, Path(folder), mask=draw.mask, reported=False).what


def graph_of(text: str) -> Module:
    return elaborate(resolve(parse(Source("m.wsl", text))))


STRATEGIES: dict[str, dict[str, int]] = {
    "sp": {"sp": 4}, "tatp": {"tatp": 4}, "both": {"sp": 2, "tatp": 2}, "dp": {"dp": 4}, "dp sp": {"dp": 2, "sp": 2},
    "tp": {"sp": 2, "tp": 2}, "pp": {"pp": 2, "dp": 2, "sp": 2},
}  # fmt: skip


@settings(max_examples=2, deadline=None, derandomize=True)
@given(
    lines=st.sampled_from(LINES),
    degrees=st.sampled_from([*STRATEGIES.values()]),
    seq=st.sampled_from([7, 11, 13, 15]),
    micro=st.sampled_from([3, 4]),
    options=st.sampled_from([{}, {"pool": "mean"}, {"pool": "token"}, {"recompute": "full"}, {"zero": 3}]),
)
# Keys of attention that is not causal, and a mean of positions; patches and a class token; slots of experts.
@example(("mha_full",), {"sp": 4}, 13, 3, {"pool": "mean"})
@example(("mha_full", "float_input"), {"tatp": 4}, 13, 3, {"pool": "token"})
@example(("mixture_full", "mixture"), {"dp": 2, "sp": 2}, 13, 4, {"recompute": "selective"})
@example(("edges", "edge_attention"), {"sp": 4}, 11, 3, {})
def test_odd_sizes_equal_one_device(
    lines: tuple[str, ...], degrees: dict[str, int], seq: int, micro: int, options: dict[str, Any]
) -> None:
    fewer = -1 if degrees.get("dp", 1) * micro > 4 else 0
    draw = draw_of(lines, degrees, seq, micro, fewer, mask="uneven", **options)
    graph = graph_of(draw.text)
    step = Differentiate().run(graph)
    assert any(a.unpadded for a in Pad().run(step).arrays if a.kind is Kind.INPUT)
    assert outcome(draw) == EQUAL


@pytest.mark.parametrize(
    ("lines", "degrees", "seq", "micro", "extra"),
    [(("mha",), {"dp": 4}, 4, 4, -3), (("mixture", "mha_full"), {"ep": 2, "sp": 2}, 13, 7, 0)],
    ids=["13 sequences", "7 of experts"],
)  # fmt: skip
def test_the_strategy_changes_no_loss(
    lines: tuple[str, ...], degrees: dict[str, int], seq: int, micro: int, extra: int, tmp_path: Path
) -> None:
    """Of the same batch on one die, where nothing has pads."""
    draw = draw_of(lines, degrees, seq, micro, extra, vocab=16)
    alone = replace(draw, degrees=(), micro=draw.batch // 2, extra=0, rows=1, cols=1)
    assert alone.batch == draw.batch
    runs = []
    for name, d in (("split", draw), ("alone", alone)):
        path = tmp_path / f"{name}.wsl"
        path.write_text(d.text)
        trainer = Trainer(artifact_of_file(path), RunOptions(steps=2, threads=1))
        runs.append([*trainer.steps()])
    assert runs[0] == pytest.approx(runs[1], rel=1e-12)


# ---- nobody sees them


def trainer_of(degrees: dict[str, int], shape: Shape) -> Trainer:
    return Trainer(artifact_of(gpt(degrees, shape)), RunOptions(steps=1, threads=1))


ODD = Shape(batch=14, calls=2, seq=13, d=8, heads=2, kv=2, ffn=8, vocab=16, layers=1)


def test_labels_of_pads_are_ignored_and_tokens_there_are_zero() -> None:
    trainer = trainer_of({"dp": 2, "sp": 4}, ODD)
    [*_] = trainer.steps()
    m = trainer.machine
    stored = {t.name: t for t in m.manifest.tensors if t.kind is Kind.INPUT}
    assert {n: (t.shape, t.type.shape) for n, t in stored.items()} == dict.fromkeys(
        stored, ((7, 13), (8, 16))
    )
    last = 2 * 4 - 1  # the die of the last sequences and the last positions: three of four are pads
    for name, filler in (("tokens", 0), ("labels", -100)):
        ((_, address),) = host_io.addresses(stored[name], (1,))
        shard = m.load(last, address, (4, 4), np.dtype(np.int32))
        assert (shard[:, 1:] == filler).all()
        assert (shard[3] == filler).all()
        assert (shard[:3, 0] >= 0).all()


def test_work_and_files_are_the_models(tmp_path: Path) -> None:
    sets = ("model.layers=1", "model.seq=13", "train.batch=14")
    program = compile_file(
        str(SAMPLES / "gpt-tiny.wsl"), Overrides((*sets, "train.microbatch=4"), "dp=2,sp=4")
    )
    alone = compile_file(str(SAMPLES / "gpt-tiny.wsl"), Overrides((*sets, "train.microbatch=7"), "dp=1"))
    assert program.report["flops_per_step"] == alone.report["flops_per_step"] == model_flops(alone.graph)
    pads = program.report["pads"]
    assert pads["arrays"] == {"tokens": [8, 16], "labels": [8, 16], "wpe": [16, 64]}
    # 8 x 16 positions in place of 7 x 13, and more of attention, whose work grows with the square.
    assert (
        8 * 16 / (7 * 13) - 1
        < pads["flops"] / program.report["flops_per_step"]
        < 8 * 16 * 16 / (7 * 13 * 13) - 1
    )
    assert program.report["params"] == alone.report["params"]
    run = Trainer(program.artifact, RunOptions(steps=0))
    assert run.arrays(Kind.PARAM)["wpe"].shape == (13, 64)
    assert not verify_program(program.artifact).findings


def test_a_program_with_pads_is_made_again() -> None:
    graph = gpt({"dp": 2, "sp": 4}, ODD)
    assert not [*differences(artifact_of(graph), graph)]
    step = Pad().run(Differentiate().run(graph))
    assert parse_wir(Source("m.wir", to_text(step))) == step
    assert Pad().run(step) == step


# ---- what is done for it


def ops_of(lines: Sequence[str], degrees: dict[str, int], **more: Any) -> list[Op]:
    step = Pad().run(Differentiate().run(graph_of(draw_of(lines, degrees, **more).text)))
    return [op for p in step.procedures for op in p.ops]


def test_keys_are_hidden_where_no_mask_hides_them() -> None:
    limits = {
        name: {
            dict(op.attrs).get("limit", 0)
            for op in ops_of((name,), {"sp": 4}, seq=13)
            if "attention" in op.kind
        }
        for name in ("mha", "mha_full")
    }
    assert limits == {"mha": {0}, "mha_full": {13}}


def test_a_sum_over_positions_and_routing_see_the_models_part_alone() -> None:
    ops = ops_of(("mixture_full",), {"sp": 4}, seq=13, pool="mean")
    seen = {
        op.kind: v.type.shape[1]
        for op in ops
        if not op.origin
        for v in op.operands[:1]
        if len(v.type.shape) > 1
    }
    assert {seen[kind] for kind in ("route", "balance", "z_loss", "dispatch", "combine", "sum")} == {13}
    assert seen["cut"] == 16


def test_sequences_of_a_mixture_of_experts_count_once(tmp_path: Path) -> None:
    """What `route` counts is of the fourteen sequences of two calls, each of which is padded to eight."""
    draw = draw_of(("mixture",), {"dp": 2}, 8, 4, -1)
    path = tmp_path / "m.wsl"
    path.write_text(draw.text)
    trainer = Trainer(artifact_of_file(path), RunOptions(steps=1, threads=1))
    [*_] = trainer.steps()
    (chosen,) = (x for n, x in trainer.arrays(Kind.STATISTIC).items() if n.endswith("chosen"))
    assert chosen.sum(axis=-1).tolist() == [14 * 8, 14 * 8]  # of each layer: a token chooses one expert


# ---- what is refused


@pytest.mark.parametrize(
    ("parallel", "sets", "words"),
    [
        ("dp=4", ("train.batch=5", "train.microbatch=2"), "batch 5 is not a multiple of dp x microbatch = 4 x 2 = 8"),
        ("dp=4", ("train.batch=13", "train.microbatch=1"), "batch 13 is not a multiple of"),
        (
            "sp=4", ("model.seq=5",),
            "`sp = 4` does not divide the sequence of 5 per die (with pads 8, 60 % more, and 25 % is the most)",
        ),
    ],
)  # fmt: skip
def test_too_many_pads_are_refused_with_what_would_work(
    parallel: str, sets: tuple[str, ...], words: str
) -> None:
    with pytest.raises(CompileError) as error:
        compile_file(str(SAMPLES / "gpt-tiny.wsl"), Overrides(("model.layers=1", *sets), parallel))
    (refused,) = error.value.diagnostics
    assert words in refused.message
    assert refused.proposals
