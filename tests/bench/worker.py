"""A process that makes one training step for every line it reads, and answers with the seconds it took: by the
clock, and of all its threads together.

`python -m tests.bench.worker baseline SIZE` or `... worker MODEL.wsl STRATEGY THREADS [SETTING ...]` (strategy "":
the file's own).
A process of its own for each contender, because the number of BLAS threads is one for a process, and the baseline
uses all cores while the interpreter gives each of its threads one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from tests.bench.baseline import SIZES, Training
from wscc.compiler import compile_file
from wscc.frontend.overrides import Overrides
from wscc.trainer import RunOptions, Trainer


def stepper(words: list[str]) -> Callable[[], float]:
    """A step of the contender that the command line names; returns the loss."""
    if words[0] == "baseline":
        return Training(SIZES[words[1]]).step
    model, strategy, threads, *sets = words
    compiled = compile_file(model, Overrides(sets=tuple(sets), parallel=strategy or None))
    steps = Trainer(compiled.artifact, RunOptions(steps=sys.maxsize, threads=int(threads))).steps()
    return lambda: next(steps)


def main() -> None:
    step = stepper(sys.argv[1:])
    print("ready", flush=True)
    for _ in sys.stdin:
        started, busy = time.perf_counter(), time.process_time()
        step()
        print(time.perf_counter() - started, time.process_time() - busy, flush=True)


if __name__ == "__main__":
    main()
