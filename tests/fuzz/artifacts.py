"""Corruptions of compiled programs, and what catches each: `python -m tests.fuzz.artifacts [COUNT] [SEED]`."""

from __future__ import annotations

import sys
from collections import Counter
from functools import lru_cache
from random import Random

import numpy as np

from tests.fuzz.corruptions import CORRUPTIONS, corrupted
from tests.fuzz.kinds import Drawn
from tests.support.models import Shape, gpt, llama
from wscc.backends.artifact.files import Artifact
from wscc.backends.verify import verify_program
from wscc.diagnostics import CompileError
from wscc.driver.compile import compile_graph
from wscc.driver.train import RunOptions, Trainer
from wscc.equivalence import check_semantics
from wscc.ir.array import Kind
from wscc.ir.types import DType
from wscc.machine.wafer import Die, Wafer

# Every axis, overlap, stages, sharded weights, both families, element types that are widened, and arrays in HBM.
WITH_HBM = Wafer("w", 2, 2, Die(sram=20_000, hbm_bandwidth=10**9))
PROGRAMS = {
    "tatp=4": lambda: gpt({"tatp": 4}, Shape(batch=8)),
    "dp=2 tp=2": lambda: gpt({"dp": 2, "tp": 2}, Shape(batch=8), dtype=DType.F32, zero=3),
    "pp=2 sp=2": lambda: llama({"pp": 2, "sp": 2}, Shape(batch=8)),
    "tp=2 tatp=2": lambda: llama({"tp": 2, "tatp": 2}, Shape(batch=8), dtype=DType.F32),
    "tatp=4, copies": lambda: gpt({"tatp": 4}, Shape(), wafer=WITH_HBM),
}
# Other kinds of model and machine, which tests of the suite leave out.
OTHERS = {
    d.kind: d
    for d in (
        Drawn("experts", "ep=2,tp=2", ("f32", "f32", "f32")),
        Drawn("images", "sp=2", ("f64", "f64", "f64")),
        Drawn("torus", "tatp=4", ("f32", "bf16", "f32")),
        Drawn("wafers", "dp=2,tp=2", ("bf16", "f32", "f32")),
        Drawn("graphs", "tatp=2", ("f32", "f32", "f32")),
        Drawn("dropout", "tp=2,dp=2", ("bf16", "f32", "f32")),
        Drawn("slow memory", "dp=2,tp=2", ("f32", "f32", "f32")),
    )
}
STEPS = 3


@lru_cache
def program(name: str) -> Artifact:
    return OTHERS[name].artifact() if name in OTHERS else compile_graph(PROGRAMS[name]()).artifact


def bits(artifact: Artifact) -> bytes:
    """Everything that some steps leave where the host sees it: losses, gradients, weights, optimizer state."""
    trainer = Trainer(artifact, RunOptions(steps=STEPS, threads=1))
    with np.errstate(all="ignore"):
        losses = np.array(list(trainer.steps()))
        arrays = [
            trainer.arrays(kind)[n]
            for kind in (Kind.GRAD, Kind.PARAM, Kind.STATE)
            for n in sorted(trainer.arrays(kind))
        ]
    return b"".join(a.tobytes() for a in (losses, *arrays))


@lru_cache
def right_bits(name: str) -> bytes:
    return bits(program(name))


def caught_by(name: str, broken: Artifact) -> str:
    """The check that finds it, `harmless` if a run leaves the same bits, else `missed`."""
    verdict = verify_program(broken)
    if verdict.findings:
        return verdict.findings[0].check
    meaning = check_semantics(broken)
    if meaning.findings:
        return "meaning"
    try:
        return "harmless" if bits(broken) == right_bits(name) else "missed"
    except CompileError as error:
        return f"missed: {error.diagnostics[0].message}"


def draw(number: int, seed: int) -> tuple[str, str, str]:
    """(kind, program, caught by what) of one corruption; kinds and programs take turns."""
    rng = Random(f"{seed}/{number}")
    kind = list(CORRUPTIONS)[number % len(CORRUPTIONS)]
    name = rng.choice([*PROGRAMS, *OTHERS])
    return kind, name, caught_by(name, corrupted(program(name), kind, rng))


def main(count: int, seed: int) -> int:
    table: dict[str, Counter[str]] = {kind: Counter() for kind in CORRUPTIONS}
    missed = 0
    for number in range(count):
        kind, name, by = draw(number, seed)
        table[kind][by.split(":")[0]] += 1
        if by.startswith("missed"):
            missed += 1
            print(f"{number}: {kind} of {name}: {by}", flush=True)
    columns = ["load", "routes", "messages", "waits", "memory", "step", "meaning", "harmless", "missed"]
    print(f"{'kind':<24}{'number':>8}" + "".join(f"{c:>10}" for c in columns))
    for kind, counts in {**table, "all": sum(table.values(), Counter())}.items():
        print(f"{kind:<24}{sum(counts.values()):>8}" + "".join(f"{counts[c]:>10}" for c in columns))
    return 1 if missed else 0


if __name__ == "__main__":
    given = [int(a) for a in sys.argv[1:]]
    sys.exit(main(*(given + [1000, 0][len(given) :])))
