"""Chains of ops computed block by block: the same numbers as one device, whichever chains are chosen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from tests.support.paths import SAMPLES
from wscc.cli import main
from wscc.ir.module import Procedure
from wscc.machine.wafer import Die
from wscc.passes.lower_collectives.chains import Chain, with_chains

LOWERING = sys.modules["wscc.passes.lower_collectives"]
# Which of the choices of chains, in a fast memory of 8 KB: with sums over blocks, and without.
SUMS, NO_SUMS = 1, 2


@pytest.mark.parametrize(
    ("model", "strategy", "choice"),
    [
        ("llama-tiny", "tatp=4", SUMS),
        ("llama-tiny", "tatp=4", NO_SUMS),
        ("gpt-tiny", "sp=2,tatp=2", SUMS),
        ("gpt-tiny", "pp=2,tp=2", NO_SUMS),
        ("llama-tiny", "tp=2", SUMS),
    ],
)
def test_blocks_equal_one_device(
    model: str,
    strategy: str,
    choice: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    blocks = list[int]()

    def always(choices: Sequence[Callable[[], Procedure]], _: Die) -> Procedure:
        return choices[min(choice, len(choices) - 1)]()

    def counted(procedure: Procedure, chains: Iterable[Chain]) -> Any:
        chosen = tuple(chains)
        blocks.extend(len(c.blocks) for c in chosen)
        return with_chains(procedure, chosen)

    monkeypatch.setattr(LOWERING, "losing_least", always)
    monkeypatch.setattr(LOWERING, "with_chains", counted)
    small = ["--set", "wafer.mesh=2x4", "--set", "wafer.die.sram=8 KB", "--set", "wafer.die.tile=4"]
    small += ["--set", "model.layers=2", "--set", "train.batch=4", "--set", "train.microbatch=2"]
    options = ["--dtype", "f64", "--steps", "2", "--parallel", strategy, "--set", "train.zero=3", *small]
    assert main(["run", str(SAMPLES / f"{model}.wsl"), "--check", *options]) == 0
    assert "check passed" in capsys.readouterr().out
    assert max(blocks) > 1
