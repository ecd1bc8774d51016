"""Programs on named arrays: equal to one device whatever labels are ignored, and undisturbed by validation."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import wscc
from tests.support.compile_once import artifact_of
from tests.support.models import Shape, gpt
from tests.support.verdict import faults
from wscc.backends.artifact.files import Artifact
from wscc.backends.interpreter import host_io
from wscc.cli import main
from wscc.driver.train import RunOptions, Trainer, run
from wscc.host.data import counted
from wscc.host.inputs import LABELS
from wscc.ir.array import Kind
from wscc.ir.types import DType
from wscc.reference.training import evaluate

SHAPE = Shape(batch=8, calls=2, seq=4, vocab=12, d=8, heads=2, ffn=8, layers=2)
STRATEGIES: tuple[dict[str, Any], ...] = (
    {"dp": 2, "tp": 2, "tatp": 2},
    {"pp": 2, "dp": 4, "zero": 3},
    {"sp": 2, "dp": 2},
)
Arrays = dict[str, NDArray[Any]]


@cache
def program(number: int) -> Artifact:
    degrees = {**STRATEGIES[number]}
    zero = degrees.pop("zero", 0)
    return artifact_of(gpt(degrees, SHAPE, zero=zero))


def drawn(rows: int, seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    tokens, labels = rng.integers(0, SHAPE.vocab, (2, rows, SHAPE.seq))
    labels[rng.random(labels.shape) < 0.3] = -100
    return {"tokens": tokens.astype(np.uint8), LABELS: labels}


def holding_out(artifact: Artifact, rows: int) -> Artifact:
    train = replace(artifact.manifest.train, validation_rows=rows)
    return replace(artifact, manifest=replace(artifact.manifest, train=train))


# ---- equality


@settings(max_examples=6, deadline=None)
@given(
    number=st.sampled_from(range(len(STRATEGIES))),
    rows=st.integers(8, 20),
    seed=st.integers(0, 99),
    silent=st.sets(st.integers(0, 7), max_size=8),
)
@example(number=0, rows=16, seed=1, silent={0, 1, 2, 3})  # the first micro-batch of step 1
@example(number=0, rows=16, seed=2, silent={0, 1, 4, 5})  # a replica in step 1
@example(number=1, rows=16, seed=3, silent=set(range(8)))  # all of step 1
@example(number=2, rows=9, seed=4, silent={2, 3, 6, 7})
def test_a_program_on_arrays_equals_one_device(number: int, rows: int, seed: int, silent: set[int]) -> None:
    arrays = drawn(rows, seed)
    arrays[LABELS][list(silent)] = -100
    if (arrays[LABELS] == -100).all():
        return
    trainer = Trainer(program(number), RunOptions(steps=2, data=arrays, threads=1))
    done = [trainer.result(x) for x in trainer.steps()]
    assert not [*faults(trainer, done)]
    for step in range(2):
        turns = [(8 * step + i) % rows for i in range(8)]
        for name, batch in trainer.batches.batch(step).items():
            assert batch.reshape(8, SHAPE.seq).tolist() == arrays[name][turns].tolist()


# ---- validation


def state(trainer: Trainer) -> list[bytes]:
    """Every bit that a step hands on to the next one."""
    machine = trainer.machine
    return [
        host_io.read(machine, t.name, index).tobytes()
        for t in machine.manifest.tensors
        if t.kind in host_io.FILLED
        for index in np.ndindex(*t.extents)
    ]


@pytest.mark.parametrize("number", range(len(STRATEGIES)))
def test_validation_is_the_loss_of_the_held_out_rows_and_changes_no_bit(number: int) -> None:
    """11 rows are a batch and a part of one; the reference has them all in one, with the same weights."""
    arrays, kept = drawn(30), 11
    options = RunOptions(steps=3, data=arrays, threads=1, checked=number == 0)
    plain = Trainer(program(number), replace(options, data={n: a[:-kept] for n, a in arrays.items()}))
    trainer = Trainer(holding_out(program(number), kept), options)
    for loss, same in zip(trainer.steps(), plain.steps(), strict=True):
        assert loss == same
        before = state(trainer)
        found = trainer.validation_loss()
        assert state(trainer) == before == state(plain)
        assert trainer.validation_loss() == found
    assert found == pytest.approx(on_one_device(trainer, arrays, kept), rel=1e-10)


def on_one_device(trainer: Trainer, arrays: Arrays, kept: int) -> float:
    """The loss that the reference has for the last rows, each in a micro-batch with seven whose labels are ignored."""
    weights = trainer.arrays(Kind.PARAM)
    total, labels = 0.0, 0
    shape = (SHAPE.calls, SHAPE.batch // SHAPE.calls, SHAPE.seq)
    for row in range(-kept, 0):
        batch = {"tokens": np.zeros(shape, np.int32), LABELS: np.full(shape, -100, np.int32)}
        for name, whole in batch.items():
            whole[1, 2] = arrays[name][row]
        step = evaluate(trainer.graph, weights, batch, DType.F64)
        total, labels = total + step.loss * counted(batch), labels + counted(batch)
    return total / labels


def test_when_validation_is_looked_at_and_what_is_counted() -> None:
    arrays = drawn(20)
    seen: list[tuple[int, float]] = []
    artifact = holding_out(program(2), 4)
    options = RunOptions(steps=5, data=arrays, validate_every=2)
    outcome = run(artifact, options, on_validation=lambda step, loss: seen.append((step, loss)))
    assert [step for step, _ in seen] == [2, 4, 5]
    assert outcome.validation == dict(seen)
    assert len(set(outcome.validation.values())) == 3
    labels = np.concatenate([arrays[LABELS][[i % 16 for i in range(8 * s, 8 * s + 8)]] for s in range(5)])
    use = outcome.data
    assert (use.source, use.rows, use.validation_rows) == ("arrays", 16, 4)
    assert (use.labels_counted, use.labels_ignored) == ((labels != -100).sum(), (labels == -100).sum())
    with pytest.raises(wscc.CompileError, match="holds out no rows"):
        run(program(2), options)
    with pytest.raises(wscc.CompileError, match="the program has no data"):
        run(artifact, RunOptions(steps=1))


# ---- all doors


MODEL = """
wafer w = preset "temp-4x8" { mesh 1 x 2 }
model m(d = 8, vocab = 12, seq = 4) {
  input tokens : i32[batch, seq]
  input labels : i32[batch, seq]
  param table : [vocab, d] init normal(0.3)
  loss cross_entropy(embedding(tokens, table) @ transpose(table), labels)
}
train m on w {
  batch 4 microbatch 2 data "d/x.npz" validation 25 % optimizer sgd(lr = 1) parallel dp = 2
  dtype compute f64, params f64, grads f64
}
"""


def test_a_file_an_artifact_an_option_and_a_dict_are_the_same_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = drawn(8)
    (tmp_path / "d").mkdir()
    np.savez(tmp_path / "d" / "x.npz", **arrays)
    (tmp_path / "m.wsl").write_text(MODEL)
    compiled = wscc.compile(tmp_path / "m.wsl")
    compiled.save(tmp_path / "out")
    (tmp_path / "d" / "x.npz").rename(tmp_path / "y.npz")
    monkeypatch.chdir(tmp_path)
    want = compiled.run(3, check=True)
    assert want.check is not None
    assert want.check.ok
    for options in ([], ["--data", "y.npz"]):
        assert main(["run", "out", "--steps", "3", "--check", "--json", *options]) == 0
        got = json.loads(capsys.readouterr().out)
        assert got["losses"] == want.losses.tolist()
        assert got["validation"] == [{"step": 3, "loss": want.validation[3]}]
        assert got["data"] == {
            "source": "arrays", "rows": 6, "validation_rows": 2,
            "labels_counted": want.data.labels_counted, "labels_ignored": want.data.labels_ignored,
        }  # fmt: skip
    assert wscc.load("out").run(3, data=arrays).validation == want.validation
    assert main(["run", "out", "--steps", "2", "--validate-every", "1"]) == 0
    shown = capsys.readouterr().out
    assert "step     1   validation loss " in shown
    assert "6 rows to train on, 2 held out; " in shown
    assert main(["run", "out", "--data", "m.wsl"]) == 1
    assert main(["run", "out", "--data", str(tmp_path / "d")]) == 1
