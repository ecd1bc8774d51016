"""What a search of all strategies of a wafer takes, cold, and what it finds beside the strategy of the file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    model: str
    sets: tuple[str, ...] = ()


CASES = (
    Case("gpt-tiny 2x4", "samples/gpt-tiny.wsl"),
    Case("llama2-7b 2x2", "samples/llama2-7b.wsl", ("wafer.mesh=2x2", "train.batch=64")),
    Case("llama2-7b 6x8", "samples/llama2-7b.wsl", ("wafer.mesh=6x8", "train.batch=96")),
    Case("gpt3-175b 6x8", "samples/gpt3-175b.wsl"),
)


def show_searches(quick: bool) -> None:
    print(
        "search, cold: seconds; steps of the best and of the file's own strategy, and what no strategy goes below"
    )
    head = f"{'':<16}{'seconds':>9}{'CPU s':>8}{'all':>6}{'est.':>6}{'comp.':>6}{'sim.':>5}"
    print(f"{head}{'best s':>11}{'own s':>11}{'bound s':>11}  best, and why it ended")
    for case in CASES[: 2 if quick else None]:
        print(_row(case), flush=True)
    print()


def _row(case: Case) -> str:
    words = [word for s in case.sets for word in ("--set", s)]
    begun, before = time.perf_counter(), os.times()
    made = subprocess.run(
        [sys.executable, "-m", "wscc", "search", case.model, *words, "--top", "1000", "--json"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    seconds, after = time.perf_counter() - begun, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    told = json.loads(made.stdout)
    counts = f"{told['strategies']:>6}{told['estimated']:>6}{told['compiled']:>6}{told['simulated']:>5}"
    own = next((_step(row) for row in told["rows"] if row["given"]), "refused")
    steps = f"{told['step_seconds']:>11.4g}{own:>11}{told['bound_seconds']:>11.4g}"
    return f"{case.name:<16}{seconds:>9.1f}{cpu:>8.1f}{counts}{steps}  {told['best']}, {told['ended']}"


def _step(row: dict[str, float | None]) -> str:
    return f"{row['step_seconds']:.4g}" if row["step_seconds"] is not None else f">{row['least_seconds']:.4g}"
