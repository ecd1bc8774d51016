"""A process that makes two training steps for every line it reads, and answers with the seconds that the second took:
by the clock, and of all its threads and processes together. In training a step follows another; the first one after
others had their turn pays for the caches and pages that these took.

`python -m tests.bench.worker baseline|tuned SIZE`, `... worker against PATH SIZE` (see `another`) or `... worker
MODEL.wsl STRATEGY THREADS [SETTING ...]` (strategy "": the file's own).
A process of its own for each contender, because the number of BLAS threads is one for a process, and the baseline
uses all cores while the interpreter gives each of its workers one.
"""

from __future__ import annotations

import importlib
import multiprocessing
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np

from tests.bench import baseline, tuned
from tests.bench.baseline import SIZES


def stepper(words: list[str]) -> Callable[[], float]:
    """A step of the contender that the command line names; returns the loss."""
    by_hand: dict[str, type[baseline.Training] | type[tuned.Training]] = {
        "baseline": baseline.Training, "tuned": tuned.Training,
    }  # fmt: skip
    if words[0] in by_hand:
        return by_hand[words[0]](SIZES[words[1]]).step
    if words[0] == "against":
        return another(*words[1:])
    # What is written by hand is timed in a process that has loaded no more than it needs.
    from wscc.driver.compile import compile_file
    from wscc.driver.train import RunOptions, Trainer
    from wscc.frontend.overrides import Overrides

    model, strategy, threads, *sets = words
    compiled = compile_file(model, Overrides(sets=tuple(sets), parallel=strategy or None))
    steps = Trainer(compiled.artifact, RunOptions(steps=sys.maxsize, threads=int(threads))).steps()
    return lambda: next(steps)


def another(path: str, size: str) -> Callable[[], float]:
    """A step of another program of NumPy, to race against: a file of Python that defines `CONFIGS` by size,
    `init_params(config)`, `batch(config)`, `forward_backward(config, weights, *batch)`, which gives the loss and the
    gradients, and `adam(weights, gradients, first, second, number of the step)`."""
    sys.path.insert(0, str(Path(path).parent))  # what it imports lies beside it
    its = importlib.import_module(Path(path).stem)
    config = its.CONFIGS[size]
    weights, batch, numbers = its.init_params(config), its.batch(config), count(1)
    first, second = ({name: np.zeros_like(w) for name, w in weights.items()} for _ in range(2))

    def step() -> float:
        loss, grads = its.forward_backward(config, weights, *batch)
        its.adam(weights, grads, first, second, next(numbers))
        return float(loss)

    return step


def _busy() -> float:
    """CPU seconds of this process and of the workers that it has now, where the system tells those (Linux)."""
    mine = time.process_time()
    if sys.platform != "linux":
        return mine
    # The clock of another process, as `clock_getcpuclockid` of the C library makes it of a process id.
    return mine + sum(
        time.clock_gettime(~p.pid << 3 | 2) for p in multiprocessing.active_children() if p.pid is not None
    )


def main() -> None:
    step = stepper(sys.argv[1:])
    print("ready", flush=True)
    for _ in sys.stdin:
        step()
        started, busy = time.perf_counter(), _busy()
        step()
        print(time.perf_counter() - started, _busy() - busy, flush=True)


if __name__ == "__main__":
    main()
