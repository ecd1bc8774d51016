"""A pool of worker processes that evaluate strategies of one problem, with results in order."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import repeat
from multiprocessing import get_context
from types import TracebackType
from typing import TypeVar

from wscc.search.candidates import Problem

S = TypeVar("S")
T = TypeVar("T")

_problem: Problem | None = None  # of this process, if it is a worker


class Workers:
    """A pool of up to `jobs` processes; with one, all is done in this one. Results do not depend on their number."""

    def __init__(self, problem: Problem, jobs: int) -> None:
        self.problem = problem
        self.jobs = jobs
        self._pool = _pool(problem, jobs) if jobs > 1 else None

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def results(self, work: Callable[[Problem, S], T], items: Sequence[S]) -> Iterator[T]:
        """The result of `work`, a function of a module, for each item in turn."""
        done = 0
        if self._pool is not None:
            try:
                for result in self._pool.map(_do, repeat(work), items):
                    done += 1
                    yield result
            except BrokenProcessPool:
                # A process was killed, most likely for want of memory: this one goes on alone.
                self._pool = None
        for item in items[done:]:
            yield work(self.problem, item)


def _pool(problem: Problem, jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, get_context("spawn"), _start, (problem,))


def _start(problem: Problem) -> None:
    global _problem
    _problem = problem
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles it


def _do(work: Callable[[Problem, S], T], item: S) -> T:
    assert _problem is not None
    return work(_problem, item)
