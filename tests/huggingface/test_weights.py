"""Checkpoints in and out: a checkpoint has the loss of its own definition, and what is saved is what was trained.

The oracle (`tests.oracles.huggingface`) reads the file under the names of Hugging Face and shares no code with wscc.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from tests.oracles import huggingface as hf
from tests.support.compile_once import programs_once  # noqa: F401
from tests.support.huggingface_configs import CONFIGS, GPT2, LLAMA, LLAMA3, OPT, ROTARY
from wscc.cli import main
from wscc.diagnostics import CompileError
from wscc.driver.compile import load
from wscc.frontend.overrides import Overrides
from wscc.huggingface import checkpoint
from wscc.huggingface.axes import Axes
from wscc.huggingface.families import FAMILIES
from wscc.huggingface.parts import open_checkpoint
from wscc.huggingface.weights import Weights
from wscc.ir.array import Kind

pytestmark = pytest.mark.usefixtures("programs_once")

SEQ = 16
# Exactly one window of 16 tokens and the one after: every sequence of a batch is this text.
TEXT = "Forty-two wafers."
TOKENS = np.frombuffer(TEXT.encode(), np.uint8)
SMALL = [
    "--set",
    "train.batch=4",
    "--set",
    "train.microbatch=2",
    "--parallel",
    "tp=2,tatp=2",
    "--steps",
    "1",
]


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with the text."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text(TEXT)
    return tmp_path


def imported(config: hf.Config) -> None:
    """`model.wsl` of a config."""
    Path("config.json").write_text(json.dumps(config))
    assert main(["import", "config.json", "-o", "model.wsl"]) == 0


def run(capsys: pytest.CaptureFixture[str], *options: str, program: str = "model.wsl") -> list[float]:
    """The losses that `wscc run` prints, in f64."""
    capsys.readouterr()
    model = [*SMALL, "--dtype", "f64"] if program.endswith(".wsl") else ["--steps", "1"]
    assert main(["run", program, "--data", "text", "--json", "--threads", "1", *model, *options]) == 0
    losses: list[float] = json.loads(capsys.readouterr().out)["losses"]
    return losses


def refused(capsys: pytest.CaptureFixture[str], *options: str, code: str = "W505") -> str:
    """The message of the one error that `wscc run` ends with."""
    capsys.readouterr()
    assert main(["run", "model.wsl", "--data", "text", "--json", "--dtype", "f64", *SMALL, *options]) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == code
    assert error["help"]
    return str(error["message"])


# ---- equal to the definition


@pytest.mark.parametrize("name", sorted(CONFIGS.keys() - ROTARY.keys()))
def test_a_checkpoint_has_the_loss_of_its_definition(
    name: str, at: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imported(CONFIGS[name])
    tensors = hf.random_checkpoint(CONFIGS[name])
    save_file(tensors, "model.safetensors")
    (loss,) = run(capsys, "--weights", "model.safetensors")
    assert loss == pytest.approx(hf.loss(CONFIGS[name], tensors, TOKENS), rel=1e-10)


@pytest.mark.parametrize("name", ["opt", "llama-odd", "qwen2_moe"])
def test_what_is_saved_untrained_is_what_was_loaded(
    name: str, at: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under the same names, in the same shapes, bit for bit; OPT's two unused rows become 0."""
    imported(CONFIGS[name])
    path = Path("model.wsl")
    path.write_text(path.read_text().replace("adamw(lr = 3e-4, weight_decay = 0.1)", "sgd(lr = 0)"))
    tensors = hf.random_checkpoint(CONFIGS[name])
    save_file(tensors, "model.safetensors")
    run(capsys, "--weights", "model.safetensors", "--save", "out.safetensors")
    saved = load_file("out.safetensors")
    if name == "opt":
        tensors["model.decoder.embed_positions.weight"][:2] = 0
    assert saved.keys() == tensors.keys()
    for key, value in tensors.items():
        assert np.array_equal(saved[key], value), key


@pytest.mark.parametrize("name", ["gpt2", "opt", "llama"])
def test_a_trained_and_saved_model_has_the_loss_that_training_has_next(
    name: str, at: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The loss of step 2 is that of the file saved after step 1, by wscc and by the definition."""
    imported(CONFIGS[name])
    save_file(hf.random_checkpoint(CONFIGS[name]), "model.safetensors")
    losses = run(capsys, "--weights", "model.safetensors", "--steps", "2")
    run(capsys, "--weights", "model.safetensors", "--save", "out.safetensors", "--threads", "2")
    assert run(capsys, "--weights", "out.safetensors")[0] == pytest.approx(losses[1], rel=1e-12)
    assert hf.loss(CONFIGS[name], load_file("out.safetensors"), TOKENS) == pytest.approx(losses[1], rel=1e-10)
    assert losses[1] < losses[0]


def test_an_artifact_alone_takes_weights_and_equals_the_reference(
    at: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imported(LLAMA3)
    assert main(["compile", "model.wsl", "-o", "out", "--dtype", "f64", *SMALL[:-2]]) == 0
    for file in ("model.wsl", "config.json"):
        Path(file).unlink()
    tensors = hf.random_checkpoint(LLAMA3)
    save_file(tensors, "model.safetensors")
    (loss,) = run(capsys, "--weights", "model.safetensors", "--check", program="out")
    assert loss == pytest.approx(hf.loss(LLAMA3, tensors, TOKENS), rel=1e-10)


# ---- what files hold besides, or not


def test_names_without_the_prefix_and_masks_are_taken(at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in the released gpt2, which has no `transformer.` and holds the causal mask of every layer."""
    imported(GPT2)
    tensors = hf.random_checkpoint(GPT2)
    bare = {name.removeprefix("transformer."): value for name, value in tensors.items()}
    bare |= {f"h.{i}.attn.bias": np.tril(np.ones((1, 1, SEQ, SEQ), np.float32)) for i in range(2)}
    save_file(bare, "model.safetensors")
    assert run(capsys, "--weights", "model.safetensors")[0] == pytest.approx(
        hf.loss(GPT2, tensors, TOKENS), rel=1e-10
    )


def test_a_tied_head_may_be_written_out_and_another_one_may_not(
    at: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imported(OPT)
    tensors = hf.random_checkpoint(OPT)
    tensors["lm_head.weight"] = tensors["model.decoder.embed_tokens.weight"].copy()
    save_file(tensors, "model.safetensors")
    assert run(capsys, "--weights", "model.safetensors")[0] == pytest.approx(
        hf.loss(OPT, tensors, TOKENS), rel=1e-10
    )
    tensors["lm_head.weight"][-1, -1] += 1
    save_file(tensors, "model.safetensors")
    assert "`lm_head.weight`" in refused(capsys, "--weights", "model.safetensors")


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_floating_point_types_are_converted(
    dtype: Any, at: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imported(LLAMA)
    tensors = {name: value.astype(dtype) for name, value in hf.random_checkpoint(LLAMA).items()}
    save_file(tensors, "model.safetensors")
    (loss,) = run(capsys, "--weights", "model.safetensors")
    assert loss == pytest.approx(hf.loss(LLAMA, tensors, TOKENS), rel=1e-10)


def test_weights_of_bf16_are_saved_as_such(at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imported(GPT2)
    run(capsys, "--dtype", "bf16", "--save", "out.safetensors")
    assert {v.dtype for v in load_file("out.safetensors").values()} == {np.dtype(ml_dtypes.bfloat16)}


# ---- a checkpoint in parts


def in_parts(tensors: dict[str, Any]) -> dict[str, Any]:
    """Two files and their index."""
    names = sorted(tensors)
    place = {name: f"model-{1 + i % 2}.safetensors" for i, name in enumerate(names)}
    for file in set(place.values()):
        save_file({n: tensors[n] for n in names if place[n] == file}, file)
    Path("index.json").write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": place}))
    return place


def test_a_checkpoint_in_parts_is_read_by_its_index(at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imported(LLAMA)
    tensors = hf.random_checkpoint(LLAMA)
    in_parts(tensors)
    (loss,) = run(capsys, "--weights", "index.json")
    assert loss == pytest.approx(hf.loss(LLAMA, tensors, TOKENS), rel=1e-10)


def test_an_index_that_lies_is_refused(at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imported(LLAMA)
    place = in_parts(hf.random_checkpoint(LLAMA))
    norm = "model.norm.weight"
    other = {"model-1.safetensors": "model-2.safetensors", "model-2.safetensors": "model-1.safetensors"}
    for index, says in (
        ({"weight_map": {**place, norm: "../good.safetensors"}}, "`../good.safetensors` is not the name"),
        ({"weight_map": {**place, norm: "/etc/passwd"}}, "`/etc/passwd` is not the name"),
        ({"weight_map": {**place, norm: 3}}, "`3` is not the name"),
        ({"weight_map": {**place, norm: other[place[norm]]}}, "does not hold `model.norm.weight`"),
        ({"weight_map": {n: f for n, f in place.items() if n != norm}}, "which it does not say"),
        ({}, "no `weight_map`"),
    ):
        Path("index.json").write_text(json.dumps(index))
        with pytest.raises(CompileError, match=says) as caught:
            open_checkpoint(at / "index.json")
        assert caught.value.diagnostics[0].code == "W505"
    Path("index.json").write_text(json.dumps({"weight_map": place}))
    Path("model-1.safetensors").unlink()
    assert "no such file" in refused(capsys, "--weights", "index.json", code="W002")


# ---- fewer positions than a checkpoint has


@pytest.mark.parametrize("name", ["gpt2", "opt"])
def test_the_first_positions_are_those_of_a_shorter_sequence(
    name: str, at: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The definition on a table of 20 positions; the program has 16 of them, and a text that is as long."""
    config = {**CONFIGS[name], ("n_positions" if name == "gpt2" else "max_position_embeddings"): 20}
    Path("config.json").write_text(json.dumps(config))
    assert main(["import", "config.json", "--seq", "16", "-o", "model.wsl"]) == 0
    tensors = hf.random_checkpoint(config)
    save_file(tensors, "model.safetensors")
    capsys.readouterr()
    options = [
        "--data",
        "text",
        "--json",
        "--threads",
        "1",
        "--dtype",
        "f64",
        "--weights",
        "model.safetensors",
    ]
    assert main(["run", "model.wsl", *options, *SMALL]) == 0
    printed = capsys.readouterr()
    shown = json.loads(printed.out)
    assert shown["losses"] == [pytest.approx(hf.loss(config, tensors, TOKENS), rel=1e-10)]
    assert "has 20 positions, of which the first 16 are read" in shown["notes"][0]
    assert f"note: {shown['notes'][0]}\n" in printed.err
    longer = load("model.wsl", Overrides(sets=("model.seq=24",)))
    with pytest.raises(CompileError, match="a sequence of 20 at most has positions in it"):
        Weights(at / "model.safetensors", [a for a in longer.arrays if a.kind is Kind.PARAM])


# ---- a model of its own names


def test_a_model_of_other_names_is_stored_under_them(at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imported(GPT2)
    path = Path("model.wsl")
    path.write_text(path.read_text().replace("wup", "wide").replace("as block", "as layer"))
    losses = run(capsys, "--save", "out.safetensors", "--steps", "2")
    saved = load_file("out.safetensors")
    assert {"wte", "layer.0.wide", "layer.1.wqkv", "gf"} <= saved.keys()
    assert saved["layer.1.wqkv"].shape == (32, 3, 4, 8)
    run(capsys, "--save", "out.safetensors")
    assert run(capsys, "--weights", "out.safetensors")[0] == pytest.approx(losses[1], rel=1e-12)


def test_two_parameters_of_one_name_in_a_file_are_refused(
    at: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Layer 1 of the `repeat`, and the second call of the block of the same name."""
    (at / "model.wsl").write_text("""\
wafer w = preset "temp-4x8"
block a(x) { param w : [16] init ones  return x + w }
model m(seq = 16) {
  input tokens : i32[batch, seq]
  input labels : i32[batch, seq]
  param table : [128, 16] init normal(0.1)
  x = embedding(tokens, table)
  repeat 2 as a { param w : [16] init ones  x = x + w }
  loss cross_entropy(a(a(x)) @ transpose(table), labels)
}
train m on w { batch 4  microbatch 2  optimizer sgd(lr = 0.1) }
""")
    message = refused(capsys, "--parallel", "dp=2", "--save", "out.safetensors")
    assert "would both be called" in message


# ---- files that do not fit


def test_every_mistake_of_a_file_is_told_at_once(at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imported(LLAMA)
    tensors = hf.random_checkpoint(LLAMA)
    del tensors["model.norm.weight"]
    tensors["model.layers.2.mlp.up_proj.weight"] = np.ones(3, np.float32)
    tensors["lm_head.weight"] = tensors["lm_head.weight"].T.copy()
    tensors["model.layers.0.mlp.up_proj.weight"] = tensors["model.layers.0.mlp.up_proj.weight"].astype(
        np.int8
    )
    save_file(tensors, "model.safetensors")
    message = refused(capsys, "--weights", "model.safetensors")
    for words in (
        "1 missing (`model.norm.weight`)", "1 not of this model (`model.layers.2.mlp.up_proj.weight`)",
        "1 of another shape (`lm_head.weight` [32, 128], not [128, 32])", "`model.layers.0.mlp.up_proj.weight` I8",
    ):  # fmt: skip
        assert words in message


def test_a_checkpoint_of_another_family_is_refused(at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imported(GPT2)
    save_file(hf.random_checkpoint(LLAMA), "model.safetensors")
    assert "does not fit" in refused(capsys, "--weights", "model.safetensors")


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_what_is_not_finite_in_the_program_is_refused(
    value: float, at: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imported(GPT2)
    tensors = {name: v.astype(np.float64) for name, v in hf.random_checkpoint(GPT2).items()}
    tensors["transformer.h.1.mlp.c_fc.bias"][3] = value
    save_file(tensors, "model.safetensors")
    told = refused(capsys, "--weights", "model.safetensors", "--dtype", "bf16")
    assert "`transformer.h.1.mlp.c_fc.bias`" in told


def _hostile(good: bytes) -> dict[str, bytes]:
    size = int.from_bytes(good[:8], "little")
    header, data = good[8 : 8 + size], good[8 + size :]

    def with_header(text: bytes) -> bytes:
        return len(text).to_bytes(8, "little") + text + data

    parsed = json.loads(header)
    names = sorted(parsed)
    overlapping = {**parsed, names[0]: parsed[names[1]]}
    outside = {**parsed, names[0]: {**parsed[names[0]], "data_offsets": [0, 10**15]}}
    huge = {**parsed, names[0]: {**parsed[names[0]], "shape": [2**40, 2**40, 2**40]}}
    return {
        "empty": b"", "seven bytes": good[:7], "header cut": good[: 8 + size // 2], "data cut": good[:-4],
        "more data": good + b"1234", "huge header": (2**62).to_bytes(8, "little") + good[8:],
        "not json": with_header(b"\xff" * size), "json of another kind": with_header(b"[1, 2, 3]"),
        "deep": with_header(b"[" * 100_000), "overlapping": with_header(json.dumps(overlapping).encode()),
        "outside": with_header(json.dumps(outside).encode()), "huge": with_header(json.dumps(huge).encode()),
        "negative": with_header(header.replace(b"[32", b"[-2")), "pickle": b"\x80\x04" + good, "zip": b"PK\3\4" + good,
    }  # fmt: skip


def refusal(path: Path) -> CompileError | None:
    """What is said of a file that is read to its end; None if it is read."""
    try:
        opened = checkpoint.Checkpoint(path)
        for name in opened.shapes:
            if opened.dtypes[name] in checkpoint.READABLE:
                assert opened.read(name).shape == opened.shapes[name]
    except CompileError as error:
        return error
    return None


def test_a_damaged_file_is_one_named_error(at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_file(hf.random_checkpoint(GPT2), "good")
    assert refusal(at / "good") is None
    for name, content in _hostile((at / "good").read_bytes()).items():
        (at / "bad").write_bytes(content)
        error = refusal(at / "bad")
        assert error is not None, name
        (found,) = error.diagnostics
        assert found.code == "W505", name
        assert "bad` is not a whole safetensors file: " in found.message, name
        assert "Error" not in found.message, name
    imported(GPT2)
    assert "`bad` is not a whole" in refused(capsys, "--weights", "bad")


def test_no_cut_and_no_changed_byte_of_the_header_is_a_crash(at: Path) -> None:
    save_file(hf.random_checkpoint(GPT2), "good")
    good = (at / "good").read_bytes()
    rng = np.random.default_rng(0)
    size = 8 + int.from_bytes(good[:8], "little")
    told = 0
    for _ in range(300):
        bad = bytearray(good)
        bad[int(rng.integers(size))] = int(rng.integers(256))
        (at / "bad").write_bytes(bytes(bad[: int(rng.integers(len(bad)))] if rng.random() < 0.3 else bad))
        error = refusal(at / "bad")
        told += error is not None and error.diagnostics[0].code == "W505"
    assert told > 200


# ---- reading and writing files


@pytest.mark.parametrize("option", ["--weights", "--save"])
def test_a_path_that_cannot_be_is_told_before_anything_runs(
    option: str, at: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imported(GPT2)
    if option == "--weights":
        (at / "folder").mkdir()
        assert "no such file" in refused(capsys, option, "folder", code="W002")
    assert "no such file" in refused(capsys, option, "nowhere/x.safetensors", code="W002")
    refused(capsys, option, "a\0b", code="W002")


def test_a_pipe_is_not_waited_for(at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imported(GPT2)
    os.mkfifo("pipe")
    assert "regular" in refused(capsys, "--weights", "pipe", code="W002")


def test_a_save_that_fails_leaves_what_was_there(
    at: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(tensors: object, path: str, metadata: object) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    imported(GPT2)
    (at / "out.safetensors").write_bytes(b"before")
    monkeypatch.setattr(checkpoint, "save_file", full)
    assert "no space left" in refused(capsys, "--save", "out.safetensors", code="W002")
    assert (at / "out.safetensors").read_bytes() == b"before"
    assert {p.name for p in at.iterdir()} == {"text", "config.json", "model.wsl", "out.safetensors"}


def test_a_saved_file_replaces_the_one_it_was_loaded_from_and_others_may_read_it(
    at: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imported(GPT2)
    save_file(hf.random_checkpoint(GPT2), "w")
    before = load_file("w")["transformer.wte.weight"]
    shutil.copymode("text", "w")
    run(capsys, "--weights", "w", "--save", "w")
    assert not np.array_equal(load_file("w")["transformer.wte.weight"], before)
    assert (at / "w").stat().st_mode == (at / "text").stat().st_mode


# ---- the mapping


ALL_AXES = sorted({m.axes for f in FAMILIES for m in f.tensors}, key=str)


@given(st.sampled_from(ALL_AXES), st.data())
def test_axes_lead_there_and_back(axes: Axes, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.integers(1, 4)) for _ in range(axes.rank))
    ours = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    theirs = axes.to_theirs(ours)
    assert theirs.shape == axes.their_shape(shape)
    assert theirs.flags.c_contiguous
    assert np.array_equal(axes.to_ours(theirs, shape), ours)
    assert sorted(theirs[axes.pad :].ravel()) == sorted(ours.ravel())


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
def test_a_family_names_nothing_twice(family: Any) -> None:
    assert len({m.ours for m in family.tensors}) == len(family.tensors)
    whole = [m.theirs for m in family.tensors if m.axes.joined is None]  # others are parts of one tensor
    assert len(set(whole)) == len(whole)
