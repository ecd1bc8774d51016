"""Artifacts that say what cannot be, with right hashes: `python -m tests.fuzz.hostile [COUNT] [SEED]`.

Every draw edits the files of a compiled program at random and tries what is left in `run`, `verify`, `simulate` and
`monitor`. A named error, or another program, is fine; a traceback, ten seconds or a gigabyte is not. A program that
runs to another result than the one compiled, although its graph and data are the same, must be caught by `verify`.
"""

from __future__ import annotations

import multiprocessing
import resource
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import numpy as np

from tests.fuzz.edits import Files, edited, without
from tests.fuzz.kinds import with_dropout
from tests.support.paths import SAMPLES
from wscc.api.program import compile as compile_program
from wscc.api.program import load
from wscc.backends.artifact import files as artifact_files
from wscc.backends.artifact.files import DATA, GRAPH, MANIFEST, PROGRAMS, Artifact
from wscc.backends.simulator.memory import memory_over_time
from wscc.cli.monitor_facts import die_facts, link_facts, memory_facts
from wscc.diagnostics import CompileError
from wscc.driver.simulate import simulate
from wscc.driver.timeline import stage_calls
from wscc.driver.train import RunOptions, run
from wscc.equivalence import check_semantics

SECONDS, WAITING, BYTES = 10, 60, 1 << 30
WORKERS = 2
SMALL = {
    "model.layers": 2,
    "model.d": 16,
    "model.heads": 2,
    "model.seq": 8,
    "train.batch": 4,
    "train.microbatch": 1,
}
PROGRAMS_BY_NAME: dict[str, tuple[str, str, dict[str, object | None]]] = {
    "one die": ("gpt-tiny", "dp=1", {}),
    "dp=2 tp=2 zero=3": ("gpt-tiny", "dp=2,tp=2", {"train.zero": 3}),
    "pp=2 tatp=2": ("gpt-tiny", "pp=2,tatp=2", {}),
    "sp=2, zigzag": ("llama-tiny", "sp=2,tp=2", {}),
    "named arrays": ("gpt-tiny", "dp=2", {}),
    "experts": ("moe-tiny", "ep=2,tp=2", {"model.heads": 4, "model.ffn": 8, "train.microbatch": 2}),
    "images": (
        "vit-tiny",
        "tp=2",
        {"model.seq": None, "model.heads": 4, "model.ffn": 8, "wafer.mesh": "2x4"},
    ),
    "graph": (
        "gcn-tiny",
        "tatp=2",
        {
            "model.layers": None,
            "model.heads": None,
            "model.seq": None,
            "train.batch": None,
            "train.microbatch": None,
        },
    ),
    "dropout": ("gpt-tiny", "pp=2,dp=2", {}),
    "torus": ("gpt-tiny", "tatp=4", {"wafer.mesh": "2x4 torus"}),
    "two wafers": ("gpt-tiny-2wafers", "dp=2,tp=2", {}),
    "copies from HBM": ("gpt-tiny", "tatp=2", {"wafer.die.sram": "8 KB", "wafer.die.hbm": "1 GB at 1 GB/s"}),
}


@cache
def original(name: str) -> Files:
    """The files of a compiled program."""
    sample, parallel, more = PROGRAMS_BY_NAME[name]
    with tempfile.TemporaryDirectory() as folder:
        path = SAMPLES / f"{sample}.wsl"
        if name == "named arrays":
            path = _with_arrays(path, Path(folder))
        if name == "dropout":
            text = with_dropout(path.read_text(encoding="utf-8")).replace('data "tiny-text.txt"', "")
            path = Path(folder) / path.name
            path.write_text(text, encoding="utf-8")
        settings = {key: value for key, value in {**SMALL, **more}.items() if value is not None}
        compile_program(path, settings, parallel=parallel).save(Path(folder) / "a")
        return {p.name: p.read_bytes() for p in (Path(folder) / "a").iterdir()}


def _with_arrays(model: Path, folder: Path) -> Path:
    """The model with an `.npz` of tokens and labels as its data."""
    tokens = np.arange(80, dtype=np.int32).reshape(10, 8)
    np.savez(folder / "data.npz", tokens=tokens, labels=tokens + 1)
    text = model.read_text(encoding="utf-8").replace("tiny-text.txt", "data.npz")
    (folder / model.name).write_text(text, encoding="utf-8")
    return folder / model.name


@cache
def right_losses(name: str) -> tuple[float, ...]:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), original(name))
        return losses(load(folder).artifact)


def write(folder: Path, files: Files) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content)


def losses(artifact: Artifact) -> tuple[float, ...]:
    return run(artifact, RunOptions(steps=2, threads=1)).losses


class Hang(BaseException):
    """A draw took too long."""


@contextmanager
def guarded() -> Iterator[None]:
    """Raises `Hang` after `SECONDS` of work, or of `WAITING` for anything, and `MemoryError` where more than `BYTES`
    are asked for."""

    def late(number: int, frame: FrameType | None) -> None:
        raise Hang

    old = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    signal.signal(signal.SIGPROF, late)
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.alarm(WAITING)
    resource.setrlimit(resource.RLIMIT_AS, (now + BYTES, old[1]))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, old)


def draw(number: int, seed: int) -> tuple[str, str]:
    """(what was edited, what came of it) of one draw; a failure begins with `FAILED`."""
    rng = Random(f"{seed}/{number}")
    name = sorted(PROGRAMS_BY_NAME)[number % len(PROGRAMS_BY_NAME)]
    files = original(name)
    if rng.random() < 0.02:
        names = [rng.choice([n for n in sorted(files) if n != MANIFEST])]
        changed = without(files, names[0])
    else:
        changed, names = edited(files, rng)
    label = f"{name}: {', '.join(names)}"
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), changed)
        right = right_losses(name)
        try:
            with guarded():
                return label, outcome(Path(folder), changed, files, right, rng)
        except Hang:
            return label, "FAILED: hangs"
        except BaseException as error:
            last = "".join(traceback.format_exception(error)[-4:])
            return label, f"FAILED: {type(error).__name__}: {str(error)[:200]}\n{last}"


def outcome(folder: Path, changed: Files, files: Files, right: tuple[float, ...], rng: Random) -> str:
    """The result of all commands on a folder; of what takes longer, of one that `rng` draws."""
    try:
        artifact = load(folder).artifact
    except CompileError as error:
        return f"refused {error.diagnostics[0].code}"
    results: dict[str, Any] = {}
    for command, act in {**COMMANDS, **dict([rng.choice([*LONGER.items()])])}.items():
        try:
            results[command] = act(artifact)
        except CompileError as error:
            results[command] = str(error.diagnostics[0].code)
    if isinstance(results["verify"], list) and results["verify"]:
        return "found by verify"
    if isinstance(results["run"], str):
        return f"run refused {results['run']}"
    if np.array_equal(results["run"], right, equal_nan=True):
        return "same result"
    if any(changed.get(n) != files.get(n) for n in (GRAPH, DATA)):
        return "another program"
    return "found by meaning" if check_semantics(artifact).findings else "FAILED: another result"


def _simulated(artifact: Artifact) -> None:
    simulate(artifact, tracing=True).figures()


def _monitored(artifact: Artifact) -> None:
    simulated = simulate(artifact)
    link_facts(simulated)
    die_facts(simulated)
    memory_facts(simulated, memory_over_time(simulated.builder, artifact.manifest, simulated.profile))


def _verified(artifact: Artifact) -> list[object]:
    from wscc.backends.verify import verify_program

    return list(verify_program(artifact).findings)


COMMANDS = {"run": losses, "verify": _verified, "simulate": _simulated, "monitor": _monitored}
LONGER = {
    "run --check": lambda artifact: run(artifact, RunOptions(steps=1), check=True),
    "run --threads 2": lambda artifact: run(artifact, RunOptions(steps=1, threads=2)),
    "verify --semantics": check_semantics,
    "draw": stage_calls,
}


def keep_programs() -> None:
    """Read the programs of the originals once: most edits are of other files."""
    plain, known = artifact_files.parse_wsa, {original(n)[PROGRAMS].decode(): None for n in PROGRAMS_BY_NAME}
    parsed: dict[str, Any] = {text: plain(text, PROGRAMS) for text in known}
    artifact_files.parse_wsa = lambda text, name: parsed.get(text) or plain(text, name)  # type: ignore[attr-defined]


def _work(job: tuple[int, int]) -> tuple[int, str, str]:
    return job[0], *draw(*job)


def main(count: int, seed: int) -> int:
    keep_programs()
    for name in PROGRAMS_BY_NAME:
        right_losses(name)
    table: Counter[str] = Counter()
    failed = 0
    # Its workers may fork, as `run` does, and one that dies is an error.
    with ProcessPoolExecutor(WORKERS, multiprocessing.get_context("fork")) as pool:
        for number, label, came in pool.map(_work, ((n, seed) for n in range(count)), chunksize=8):
            table[came.split(":")[0]] += 1
            if came.startswith("FAILED"):
                failed += 1
                print(f"{number}: {label}: {came}", flush=True)
    for came, n in table.most_common():
        print(f"{n:>8}  {came}")
    return 1 if failed else 0


if __name__ == "__main__":
    given = [int(a) for a in sys.argv[1:]]
    sys.exit(main(*(given + [10_000, 0][len(given) :])))
