"""Dropout: the numbers are Philox's, half of half is a quarter, and every strategy drops what one device drops."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.oracles.philox import philox
from tests.support.verdict import EQUAL, verdict
from wscc.backends.interpreter.kernels import dropout as kernel
from wscc.cli import main
from wscc.driver.compile import load
from wscc.frontend.overrides import Overrides
from wscc.host.data import Batches
from wscc.host.inputs import inputs_of

MODEL = """
wafer w = preset "temp-4x8" { mesh 2 x 2 }
model m(layers = 2, d = 8, heads = 2, vocab = 32, seq = 8) {
  input tokens : i32[batch, seq]
  input labels : i32[batch, seq]
  param wte : [vocab, d] init normal(0.3)
  x = dropout(embedding(tokens, wte), rate = 0.1)
  repeat layers as block {
    param wqkv : [d, 3, heads, d / heads] init normal(0.3)
    param wo : [heads, d / heads, d] init normal(0.3)
    q, k, v = split(project(rmsnorm(x), wqkv))
    x = x + dropout(project(dropout(attention(q, k, v, causal), rate = 0.2), wo), rate = 0.4)
  }
  loss cross_entropy(x @ transpose(wte), labels)
}
train m on w { batch 8  microbatch 2  optimizer adamw(lr = 0.01)  parallel dp = 1 }
"""


def test_the_generator_gives_the_published_answers() -> None:
    """Of Random123's `kat_vectors`, two of philox4x32-10; the kernel's counters end in two zeros."""
    assert philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    pi = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]
    assert philox(pi, [0xA4093822, 0x299F31D0]) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]
    places = np.arange(4, dtype=np.uint64) + np.uint64(4 * (5 * 2**32 + 7))
    assert kernel.philox(places, 11, 13).tolist() == philox([7, 5, 0, 0], [11, 13])


def test_the_share_that_is_dropped_is_the_rate_and_no_two_masks_go_together() -> None:
    """Of 2^16 elements: every share within five deviations, for other keys, other ops and neighbours alike."""
    n, rate = 1 << 16, 0.3
    masks = []
    for key, salt in ((1, 0), (2, 0), (1, 1)):
        y = np.empty((1, n))
        kernel.dropout(y, np.ones((1, n)), np.array([key], np.int32), rate, salt, 0, "1")
        assert set(np.unique(y)) == {0.0, 1 / 0.7}
        masks.append(y[0] == 0)
    masks.append(np.roll(masks[0], 1))
    for share, expected in [
        *((m.mean(), rate) for m in masks), *(((masks[0] & m).mean(), rate * rate) for m in masks[1:])
    ]:  # fmt: skip
        assert abs(share - expected) < 5 * np.sqrt(expected * (1 - expected) / n)


@pytest.mark.parametrize(
    ("parallel", "recompute"), [("tp=2,sp=2", "full"), ("pp=2,dp=2", "none"), ("tatp=4", "selective")]
)
def test_every_strategy_drops_what_one_device_drops(parallel: str, recompute: str, tmp_path: Path) -> None:
    small = Overrides(parallel=parallel, sets=(f"train.recompute={recompute}",), dtype="f64")
    found = verdict(MODEL, tmp_path, small, reported=False)
    assert found.what == EQUAL, found.why


def test_keys_depend_on_the_sequence_the_layer_the_step_and_the_seed_alone(tmp_path: Path) -> None:
    (tmp_path / "m.wsl").write_text(MODEL)

    def keys(microbatch: int, step: int, seed: int = 0) -> dict[str, np.ndarray]:
        graph = load(str(tmp_path / "m.wsl"), Overrides(sets=(f"train.microbatch={microbatch}",)))
        batch = Batches(inputs_of(graph), seed).batch(step)
        return {n: np.moveaxis(x, 0, -2).reshape(-1, 8) for n, x in batch.items() if n.endswith("keys")}

    whole, cut = keys(8, 0), keys(2, 0)
    assert whole.keys() == cut.keys()
    assert all(np.array_equal(whole[n], cut[n]) for n in whole)
    block = next(n for n in whole if n.startswith("block"))
    several = np.concatenate([keys(2, step)[block] for step in range(3)])
    assert several.shape == (6, 8)
    assert len(np.unique(several)) == several.size
    assert not np.array_equal(keys(2, 0, seed=1)[block], cut[block])


def test_nothing_is_dropped_in_validation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows that are held out have the loss of a model without dropout; those of training have another."""
    (tmp_path / "text").write_text("A wafer has many dies. " * 40)
    found = []
    for rates in ("", "0"):
        model = re.sub(r"rate = [\d.]+", f"rate = {rates}", MODEL) if rates else MODEL
        (tmp_path / "m.wsl").write_text(
            model.replace("batch 8 ", f'data "{tmp_path / "text"}"  validation 8 rows  batch 8 ')
            .replace("vocab = 32", "vocab = 256").replace("lr = 0.01", "lr = 0")
        )  # fmt: skip
        assert main(["run", str(tmp_path / "m.wsl"), "--json", "--dtype", "f64", "--threads", "1"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    dropping, whole = found
    assert dropping["losses"][0] != pytest.approx(whole["losses"][0], rel=1e-4)
    assert dropping["validation"][0]["loss"] == pytest.approx(whole["validation"][0]["loss"], rel=1e-12)
