"""Runs whose numbers are no longer finite: named with step, tensor and die, in text, JSON and Python."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

import wscc
from tests.support.paths import SAMPLES
from wscc.backends.interpreter import host_io
from wscc.backends.interpreter.finite import Lookout
from wscc.cli import main
from wscc.diagnostics import CompileError
from wscc.driver.divergence import Diverged, Watch
from wscc.driver.train import RunOptions, Trainer
from wscc.host.data import LABELS, Batches
from wscc.ir.array import Init, Kind
from wscc.reference.training import History

TINY = {
    "model.layers": 2, "model.d": 16, "model.seq": 8, "model.heads": 2, "train.batch": 4, "train.microbatch": 2,
    "wafer.mesh": "1x4",
}  # fmt: skip
KINDS = (Kind.SCALAR, Kind.GRAD, Kind.STATE, Kind.PARAM)


@lru_cache
def program(dtype: str = "f32", *, wild: bool = False) -> wscc.Program:
    """A program of four dies; a wild one has no clip, and a rate with which it diverges in a few steps."""
    values = {**TINY, "train.optimizer": "sgd(lr = 9e5)"} if wild else TINY
    with TemporaryDirectory() as folder:
        text = (SAMPLES / "gpt-tiny.wsl").read_text()
        (Path(folder) / "model.wsl").write_text(text.replace("clip 1.0", "") if wild else text)
        shutil.copy(SAMPLES / "tiny-text.txt", folder)
        return wscc.compile(Path(folder) / "model.wsl", values, parallel="pp=2,tp=2", dtype=dtype)


def folder_of(made: wscc.Program, at: Path) -> str:
    made.save(at / "out")
    return str(at / "out")


def error_of(made: wscc.Program, **arguments: object) -> CompileError:
    with pytest.raises(wscc.CompileError) as caught:
        made.run(6, processes=1, **arguments)  # type: ignore[arg-type]
    assert caught.value.diagnostics[0].code == "W507"
    return caught.value


# ---- a run that diverges by itself


@pytest.fixture(scope="module")
def diverging() -> wscc.Program:
    return program(wild=True)


def test_it_ends_at_once_in_text_and_json_and_keeps_the_good_file(
    diverging: wscc.Program, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, good = folder_of(diverging, tmp_path), str(tmp_path / "good.safetensors")
    assert main(["run", folder, "--steps", "1", "--save", good]) == 0
    before = load_file(good)
    capfd.readouterr()
    arguments = ["run", folder, "--steps", "30", "--weights", good, "--save", good]
    assert main(arguments) == 1
    out, err = capfd.readouterr()
    steps = len(out.splitlines())
    assert err.startswith(f"error[W507]: training diverged in step {steps + 1}: ")
    assert " on die (0, " in err
    assert "a lower `lr` than 900000" in err
    assert "Warning" not in err
    assert main([*arguments, "--json"]) == 1
    error = json.loads(capfd.readouterr().out, parse_constant=lambda name: pytest.fail(name))["error"]
    assert error["code"] == "W507"
    assert f"in step {steps + 1}: " in error["message"]
    assert all(np.array_equal(v, before[n]) for n, v in load_file(good).items())


def test_it_is_an_error_in_python_whatever_runs_it(diverging: wscc.Program) -> None:
    """One process, checked and with one device beside it, or two: the same step, tensor and die."""
    alone = error_of(diverging).diagnostics[0].message
    checked = error_of(diverging, check=True).diagnostics[0].message
    assert checked == f"{alone}; one device overflows too"
    with pytest.raises(wscc.CompileError) as caught:
        diverging.run(6, processes=2)
    assert caught.value.diagnostics[0].message == alone


@pytest.mark.parametrize("dtype", ["bf16", "f64"])
def test_it_is_told_in_every_type(dtype: str) -> None:
    factor = {"bf16": 1, "f64": 1e150}[dtype]
    made = program(dtype, wild=True)
    weights = {n: w * factor for n, w in made.run(1, processes=1).weights.items()}
    error = error_of(made, weights=weights)
    assert ("--dtype f32" in str(error)) == (dtype == "bf16")


def test_one_device_that_has_no_overflow_is_said() -> None:
    error = error_of(program(wild=True))
    assert isinstance(error, Diverged)
    fine = error.beside(lambda: History((1.0,), (1.0,), {}, {"w": np.ones(1)})).diagnostics[0]
    assert fine.message.endswith("; one device has no overflow")
    assert "--dtype f64 --check" in fine.help
    nan = error.beside(lambda: History((1.0,), (1.0,), {}, {"w": np.array([np.nan])})).diagnostics[0]
    assert nan.message.endswith("; one device overflows too")


# ---- numbers put into the memory of a die


@pytest.fixture(scope="module")
def trained() -> Trainer:
    trainer = Trainer(program().artifact, RunOptions(steps=1, threads=1, checked=True))
    list(trainer.steps())
    return trainer


def places(trainer: Trainer) -> Iterator[tuple[str, tuple[int, ...], int, int]]:
    """(array, element, die, address) of all shards of `KINDS`; two may lie at one address."""
    for t in trainer.manifest.tensors:
        if t.kind in KINDS and t.type.dtype.is_float:
            for index in np.ndindex(*t.extents):
                for die, address, _, _ in host_io._places(t, index, trainer.manifest):
                    yield t.name, index, die, address


def put(trainer: Trainer, die: int, address: int, value: float) -> np.ndarray:
    """Put a number at an address of a die, in the type of the array there; the one that was there."""
    shards = [(t, index) for t in trainer.manifest.tensors for index in np.ndindex(*t.extents)]
    dtype = next(
        t.type.dtype.numpy
        for t, index in shards
        if any((d, a) == (die, address) for d, a, _, _ in host_io._places(t, index, trainer.manifest))
    )
    before = trainer.machine.load(die, address, (1,), dtype)
    trainer.machine.store(die, address, np.array([value], dtype))
    return before


@settings(max_examples=20)
@given(data=st.data(), value=st.sampled_from([np.nan, np.inf, -np.inf]))
def test_one_number_is_found_where_it_is(trained: Trainer, data: st.DataObject, value: float) -> None:
    everywhere = list(places(trained))
    _, _, die, address = data.draw(st.sampled_from(everywhere))
    before = put(trained, die, address, value)
    found = list(Lookout(trained.machine, KINDS).found())
    clear = Lookout(trained.machine, KINDS).is_clear()
    trained.machine.store(die, address, before)
    there = {(name, index) for name, index, *where in everywhere if where == [die, address]}
    assert {(f.tensor.name, f.index) for f in found} == there
    assert {(f.die, str(f.value)) for f in found} == {(trained.machine.die_name(die), str(value))}
    assert not clear
    assert Lookout(trained.machine, KINDS).is_clear()


def test_of_many_numbers_the_first_that_the_step_computes_is_named(trained: Trainer) -> None:
    """The loss, gradients from the last layer to the first, their norm, moments, weights: take away one at a time."""
    watch = Watch(trained.machine, trained.graph)
    watch.check(1)
    at = {(name, index): (die, address) for name, index, die, address in reversed(list(places(trained)))}
    names = trained.manifest.tensors
    gradient = next(
        t.name for t in names if t.kind is Kind.GRAD and t.relation and t.relation.array == "block.wup"
    )
    moment = next(t.name for t in names if t.kind is Kind.STATE and t.relation and t.relation.array == "wte")
    order = [
        (("loss", ()), "the loss is"), ((gradient, (1,)), "the gradient of `block.wup[1]` holds"),
        ((gradient, (0,)), "the gradient of `block.wup[0]` holds"),
        (("norm2", ()), "the squared norm of the gradients is"), ((moment, ()), "a moment of `wte` holds"),
        (("block.g1", (0,)), "`block.g1[0]` holds"),
    ]  # fmt: skip
    before = {key: put(trained, *at[key], np.nan) for key, _ in order}
    for key, words in order:
        with pytest.raises(Diverged) as caught:
            watch.check(3)
        die = trained.machine.die_name(at[key][0])
        assert caught.value.diagnostics[0].message == f"training diverged in step 3: {words} nan on die {die}"
        trained.machine.store(*at[key], before[key])
    watch.check(3)


def test_later_steps_blame_the_rate(trained: Trainer) -> None:
    die, address = next((d, a) for n, _, d, a in places(trained) if n == "loss")
    before = put(trained, die, address, np.inf)
    with pytest.raises(Diverged) as caught:
        Watch(trained.machine, trained.graph).check(2)
    trained.machine.store(die, address, before)
    # The file has clip and warmup, and is f32.
    assert caught.value.diagnostics[0].help == "try a lower `lr` than 0.001"


def test_of_rows_held_out_the_loss_alone_counts(trained: Trainer) -> None:
    """The weights that such a step leaves are put back."""
    watch = Watch(trained.machine, trained.graph)
    at = {name: (die, address) for name, _, die, address in places(trained)}
    weight = put(trained, *at["block.g1"], np.inf)
    watch.check_validation(2)
    trained.machine.store(*at["block.g1"], weight)
    loss = put(trained, *at["loss"], np.inf)
    with pytest.raises(
        CompileError, match=r"W507.*the loss of the rows held out is inf on die .* after step 2"
    ):
        watch.check_validation(2)
    trained.machine.store(*at["loss"], loss)


def test_the_first_step_blames_the_weights() -> None:
    """Those of the seed are beyond f32 here; NumPy would warn of them as they are made."""
    artifact = program().artifact
    tensors = tuple(
        replace(t, init=Init("normal", 1e39)) if t.name == "wte" else t for t in artifact.manifest.tensors
    )
    huge = replace(artifact, manifest=replace(artifact.manifest, tensors=tensors))
    error = error_of(wscc.Program(huge, {}))
    assert "in step 1: the loss is nan" in str(error)
    assert "begin with smaller ones" in str(error)


# ---- what comes near


def test_a_batch_of_ignored_labels_has_loss_0_and_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batches.batch

    def ignored(self: Batches, step: int) -> dict[str, np.ndarray]:
        return {n: np.full_like(x, -100) if n == LABELS else x for n, x in batch(self, step).items()}

    monkeypatch.setattr(Batches, "batch", ignored)
    run = program().run(2, check=True)
    assert run.check is not None
    assert run.check.ok
    assert run.losses.tolist() == [0.0, 0.0]
    assert not any(g.any() for g in run.gradients.values())


def test_weights_beyond_the_type_are_refused_before_a_step() -> None:
    weights = {n: w.astype(np.float64) for n, w in program().run(1, processes=1).weights.items()}
    weights["block.g1"][1, 3] = 1e300
    with pytest.raises(wscc.CompileError, match=r"W505.*`block.g1` holds what is no finite number in f32"):
        program().run(weights=weights)
