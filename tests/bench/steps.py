"""Seconds per step of several contenders, taken in turn so that a drifting machine slows all of them alike.

Only on a quiet machine: threads of BLAS wait for each other busily, so that one other program that keeps a core slows
a step of theirs not twice but many times. CPU seconds tell: they then exceed what a quiet step takes by as much.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from statistics import median
from typing import IO

_WARM = 1  # first rounds, not counted: views are bound and caches filled


@dataclass(frozen=True, slots=True)
class Contender:
    """`words` are those of `tests.bench.worker`."""

    name: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of each round, and of all threads and processes together (`busy`); `ratio` is the median over the
    rounds of this / the first contender."""

    name: str
    seconds: tuple[float, ...]
    busy: tuple[float, ...]
    ratio: float

    @property
    def median(self) -> float:
        return median(self.seconds)

    @property
    def least(self) -> float:
        return min(self.seconds)


def race(contenders: list[Contender], rounds: int) -> list[Times]:
    """Every contender has one turn a round, each in its own process."""
    running = [_start(c) for c in contenders]
    try:
        for process in running:
            _answer(process)
        for _ in range(_WARM):
            for process in running:
                _step(process)
        taken = [[_step(process) for process in running] for _ in range(rounds)]
    finally:
        for process in running:
            process.kill()
            process.communicate()
    columns = [tuple(zip(*rounds, strict=True)) for rounds in zip(*taken, strict=True)]
    first = columns[0][0]
    return [
        Times(c.name, seconds, busy, median(a / b for a, b in zip(seconds, first, strict=True)))
        for c, (seconds, busy) in zip(contenders, columns, strict=True)
    ]


def _start(contender: Contender) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.bench.worker", *contender.words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _step(process: subprocess.Popen[str]) -> tuple[float, float]:
    stdin = _pipe(process.stdin)
    stdin.write("\n")
    stdin.flush()
    seconds, busy = map(float, _answer(process).split())
    return seconds, busy


def _answer(process: subprocess.Popen[str]) -> str:
    line = _pipe(process.stdout).readline()
    if not line:
        raise SystemExit(f"{' '.join(map(str, process.args))} ended")  # type: ignore[union-attr]
    return line


def _pipe(end: IO[str] | None) -> IO[str]:
    assert end is not None
    return end
