"""Chains of ops computed block by block: the same numbers as one device, whichever chains are chosen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import SAMPLES
from wscc.cli import main
from wscc.driver.compile import load
from wscc.frontend.overrides import NO_OVERRIDES, Overrides
from wscc.ir.module import Module, Procedure
from wscc.machine.wafer import Die
from wscc.passes.differentiate import Differentiate
from wscc.passes.lower_collectives import chains
from wscc.passes.lower_collectives.chains import Chain, with_chains
from wscc.passes.partition import Partition

LOWERING = sys.modules["wscc.passes.lower_collectives"]
# Which of the choices of chains, in a fast memory of 8 KB: with sums over blocks, and without.
SUMS, NO_SUMS = 1, 2
SMALL = (
    "wafer.mesh=2x4",
    "wafer.die.sram=8 KB",
    "wafer.die.tile=4",
    "model.layers=1",
    "model.d=32",
    "model.seq=16",
    "train.batch=8",
)

# The square matrix joins the rows of `y` with its own columns: its product has one index twice.
TWICE = """
wafer w {
  mesh 1 x 2
  die { peak 1 TFLOP/s, sram 6000 B, hbm 80 MB at 1 GB/s, tile 1 }
  link { bandwidth 1 TB/s, latency 100 ns }
}
model m(d = 8, vocab = 8, seq = 4) {
  input tokens : i32[batch, seq]
  input labels : i32[batch, seq]
  param wte : [vocab, d] init normal(0.3)
  param s0 : [d, d] init normal(0.3)
  y = embedding(tokens, wte) * 0.5
  y = relu(y @ s0) - y
  loss cross_entropy(y @ transpose(wte), labels)
}
train m on w {
  batch 1
  microbatch 1
  optimizer sgd(lr = 1e-2)
  dtype compute f64, params f64, grads f64
  parallel sp = 2
}
"""


def checked(args: list[str], choice: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[int]]:
    """The status of `run --check` where this choice is taken wherever there is one, and the blocks of each chain."""
    blocks = list[int]()

    def always(choices: Sequence[Callable[[], Procedure]], *_: object) -> Procedure:
        return choices[min(choice, len(choices) - 1)]()

    def counted(procedure: Procedure, chosen: Iterable[Chain]) -> Any:
        chosen = tuple(chosen)
        blocks.extend(len(c.blocks) for c in chosen)
        return with_chains(procedure, chosen)

    monkeypatch.setattr(LOWERING, "losing_least", always)
    monkeypatch.setattr(LOWERING, "with_chains", counted)
    return main(["run", *args, "--check", "--steps", "2"]), blocks


@pytest.mark.parametrize(
    ("model", "strategy", "choice", "dtype"),
    [
        ("llama-tiny", "tatp=4", SUMS, "f64"),
        ("llama-tiny", "tatp=4", NO_SUMS, "f64"),
        ("gpt-tiny", "sp=2,tatp=2", SUMS, "f64"),
        ("gpt-tiny", "dp=2,tp=2", NO_SUMS, "f64"),
        ("llama-tiny", "tp=2", SUMS, "f64"),
        # Sums over blocks are rounded once, and gradients in bf16 are not added to by blocks.
        ("llama-tiny", "tp=2", SUMS, "bf16"),
        ("gpt-tiny", "tp=2", SUMS, "bf16"),
    ],
)
def test_blocks_equal_one_device(
    model: str, strategy: str, choice: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = [word for s in (*SMALL, "train.microbatch=4", "train.zero=3") for word in ("--set", s)]
    args = [str(SAMPLES / f"{model}.wsl"), "--dtype", dtype, "--parallel", strategy, *sets]
    status, blocks = checked(args, choice, monkeypatch)
    assert status == 0
    assert max(blocks) > 1


@pytest.mark.parametrize("choice", [SUMS, NO_SUMS])
def test_an_op_that_has_an_index_twice_is_in_no_chain(
    choice: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.wsl").write_text(TWICE, encoding="utf-8")
    assert checked([str(tmp_path / "m.wsl")], choice, monkeypatch)[0] == 0


def test_a_procedure_has_chains_where_they_lose_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a fifth of the time of the work is lost without."""
    plain, chained, worse = (replace(_sharded().procedures[0], name=n) for n in ("plain", "chained", "worse"))

    def taken(lost_without: float) -> str:
        lost = {"plain": lost_without, "chained": 0.1, "worse": 2.0}
        monkeypatch.setattr(chains, "lost_to_hbm", lambda p, *_: lost[p.name])
        monkeypatch.setattr(chains, "cumulative_work", lambda *_: _Work())
        return chains.losing_least([lambda: plain, lambda: worse, lambda: chained], load_die(), {}).name

    assert taken(0.19) == "plain"
    assert taken(0.3) == "chained"


class _Work:
    seconds = (0.0, 1.0)


def load_die() -> Die:
    return _sharded().machine.die


def _sharded(strategy: str = "") -> Module:
    changes = Overrides(("train.recompute=selective",), strategy) if strategy else NO_OVERRIDES
    return Partition().run(Differentiate().run(load(str(SAMPLES / "llama-tiny.wsl"), changes)))


def test_a_chain_keeps_what_lies_between_the_products_of_a_layer() -> None:
    """Found by the rules of the ops alone: hidden units of a feed-forward layer, forward and backward."""
    module = _sharded("tatp=4")
    for name, inside in (("block.fwd", {"swiglu"}), ("block.bwd", {"d.swiglu", "d.matmul", "d.matmul.1"})):
        procedure = next(p for p in module.procedures if p.name == name)
        choice = chains.chains_of(procedure, module.sizes, chains.Fast(256, 4))[0]
        assert any(inside <= c.inside for c in choice), [c.inside for c in choice]
