"""A training goes on from a folder bit for bit: with experts, dropout, a schedule and sharded state."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from wscc.cli import main

MODEL = """
wafer w = preset "temp-4x8" { mesh 2 x 2 }
model m(layers = 2, d = 8, experts = 2, ffn = 8, vocab = 32, seq = 4, patches = 4) {
  input images : f32[batch, patches, d]
  input labels : i32[batch]
  param cls : [1, d] init normal(0.3)
  x = concat(cls, images)
  repeat layers as block {
    param wr : [d, experts] init normal(0.3)
    param wup : [experts, d, ffn] init normal(0.3)
    param wdown : [experts, ffn, d] init normal(0.3)
    h = rmsnorm(x)
    gates, slots = route(router(h, wr), k = 1, capacity = 1.5)
    x = x + dropout(combine(experts(gelu(experts(dispatch(h, slots), wup)), wdown), gates, slots), rate = 0.2)
  }
  param head : [d, vocab] init normal(0.3)
  loss cross_entropy(first(x) @ head, labels)
}
train m on w {
  batch 4  microbatch 1  optimizer adamw(lr = 0.01, weight_decay = 0.1)  lr_schedule warmup(3), cosine(9, 0.1)
  dtype compute bf16, params f32, grads f32  zero 1  parallel pp = 2, dp = 2
}
"""


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("m.wsl").write_text(MODEL)
    rng = np.random.default_rng(0)
    images, labels = rng.normal(size=(12, 4, 8)).astype(np.float32), rng.integers(0, 32, 12)
    np.savez("data.npz", images=images, labels=labels)
    assert main(["compile", "m.wsl", "-o", "out"]) == 0
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *options: str, code: int = 0) -> dict[str, object]:
    capsys.readouterr()
    assert main(["run", "out", "--data", "data.npz", "--threads", "1", "--json", *options]) == code
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_a_training_goes_on_bit_for_bit(at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = run(capsys, "--steps", "5", "--save", "whole")["losses"]
    first = run(capsys, "--steps", "2", "--save", "half")["losses"]
    rest = run(capsys, "--steps", "3", "--weights", "half", "--save", "rest")["losses"]
    assert [*first, *rest] == whole  # type: ignore[misc]
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert Path("rest", name).read_bytes() == Path("whole", name).read_bytes()
    anew = run(capsys, "--steps", "1", "--weights", "half/model.safetensors")["losses"]
    assert anew != rest[:1]  # type: ignore[index]  # without the folder, step 1 begins again


def test_a_folder_is_whole_whenever_a_save_ends(
    at: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off before each time that a file takes its place: training goes on from the old state or from the new."""
    run(capsys, "--steps", "1", "--save", "runs/half")
    replace, losses = os.replace, []
    for number in range(4):
        moves = count()

        def cut_off(old: str, new: str, at: int = number, moves: Iterator[int] = moves) -> None:
            if next(moves) == at:
                raise KeyboardInterrupt
            replace(old, new)

        shutil.copytree("runs/half", f"cut{number}")
        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr(os, "replace", cut_off)
            main(
                [
                    "run",
                    "out",
                    "--data",
                    "data.npz",
                    "--threads",
                    "1",
                    "--steps",
                    "1",
                    "--seed",
                    "1",
                    "--save",
                    f"cut{number}",
                ]
            )
        losses.append(run(capsys, "--steps", "1", "--weights", f"cut{number}")["losses"])
    old, new = losses[0], losses[3]
    assert old != new
    assert losses == [old, old, new, new]


def test_a_folder_that_does_not_fit_is_refused(at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "--steps", "1", "--save", "half")
    weights, state = load_file("half/model.safetensors"), load_file("half/optimizer.safetensors")

    def refused(*options: str) -> str:
        error = run(capsys, "--weights", "half", *options, code=1)["error"]
        assert error["code"] == "W505"  # type: ignore[index]
        return str(error["message"])  # type: ignore[index]

    assert "begins at step 1" in refused("--check")
    moment = next(n for n in state if n.startswith("head"))
    save_file({n: x for n, x in state.items() if n != moment}, "half/optimizer.safetensors")
    assert f"`{moment}`" in refused()
    save_file({**state, "t": np.array([-1], np.int32)}, "half/optimizer.safetensors")
    assert "no number of steps" in refused()
    save_file(state, "half/optimizer.safetensors")
    save_file({n: x + 1 for n, x in weights.items()}, "half/model.safetensors")
    assert "was not saved with" in refused()
