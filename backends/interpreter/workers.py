"""Worker processes that run the dies of a machine; threads would take turns, as Python's lock lets one run.

They are forked from the process that has loaded the program, so that they see all of it and the memory of all
dies, which the host keeps reading and writing between steps.
"""

from __future__ import annotations

import gc
import multiprocessing
import signal
import sys
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from wscc.diagnostics import Code, fail

Answers = dict[str, Callable[[], Any]]


def can_fork() -> bool:
    """True if the system can fork; Windows cannot."""
    return "fork" in multiprocessing.get_all_start_methods()


def deal(dies: int, stages: int, workers: int) -> tuple[int, ...]:
    """The worker of each die; every worker has about the same number of dies.

    The axes that communicate most are innermost in the numbering of dies, so neighbours stay together; and each
    worker has a part of every pipeline stage, if there are enough dies, so that none waits while other stages work.
    """
    stage_dies = dies // stages
    if stage_dies < workers:
        return tuple(die * workers // dies for die in range(dies))
    return tuple(die % stage_dies * workers // stage_dies for die in range(dies))


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    pipe: Connection


class Workers:
    """A pool of worker processes. `answers(worker)` is called once in each; to every question that `ask` puts to all,
    a process answers with the result of the function of that name. `begin` runs here before every question.

    `CompileError` W506 if a process ends or fails; all are ended then, and when the last reference to this is gone.
    """

    def __init__(self, count: int, answers: Callable[[int], Answers], begin: Callable[[], None]) -> None:
        self._begin = begin
        context = multiprocessing.get_context("fork")
        pipes = [context.Pipe() for _ in range(count)]
        own_ends = [own_end for own_end, _ in pipes]
        self._workers = []
        # An interrupt from the terminal reaches all processes: only this one acts on it, and ends the others.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            for number, (own_end, worker_end) in enumerate(pipes):
                # A worker ends when no process holds the other end of its pipe, even if this one is killed.
                others = [*own_ends, *(p for _, p in pipes if p is not worker_end)]
                process = context.Process(
                    target=_serve, args=(worker_end, others, answers, number), daemon=True
                )
                with warnings.catch_warnings():
                    # Python warns of threads; those of BLAS and of progress bars hold nothing that a worker uses.
                    warnings.simplefilter("ignore", DeprecationWarning)
                    process.start()
                self._workers.append(_Worker(process, own_end))
            self.close = weakref.finalize(self, _end, self._workers)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for _, worker_end in pipes:
            worker_end.close()

    def ask(self, question: str) -> list[Any]:
        """The answers of all workers to a question, in the order of the workers."""
        self._begin()
        try:
            for number in range(len(self._workers)):
                self._talk(number, lambda pipe: pipe.send(question))
            results: dict[int, Any] = {}
            waiting = {w.pipe: i for i, w in enumerate(self._workers)}
            while waiting:
                for pipe in wait(list(waiting)):
                    number = waiting.pop(pipe)  # type: ignore[call-overload]
                    results[number] = self._talk(number, Connection.recv)
                    if isinstance(results[number], _Broken):
                        raise fail(Code.WORKER, f"worker {number} failed: {results[number].words}")
        except BaseException:
            self.close()
            raise
        return [results[i] for i in range(len(self._workers))]

    def _talk(self, number: int, act: Callable[[Connection], Any]) -> Any:
        """The result of `act` on the pipe of a worker; W506 if the worker has ended."""
        worker = self._workers[number]
        try:
            return act(worker.pipe)
        except (EOFError, OSError) as error:
            worker.process.join()
            status = worker.process.exitcode
            raise fail(
                Code.WORKER,
                f"worker {number} of {len(self._workers)} ended with exit status {status}",
                help="status -9 is often memory that ran out: run a smaller model, or with `--threads 1`",
            ) from error


@dataclass(frozen=True, slots=True)
class _Broken:
    """The answer of a worker that failed: the text of its error."""

    words: str


def _serve(
    pipe: Connection, others: Sequence[Connection], answers: Callable[[int], Answers], me: int
) -> None:
    """Answer questions until the other end of the pipe is closed: the main function of worker `me`."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:
        other.close()
    gc.freeze()  # memory that exists already is shared as long as no collection writes to it
    functions = answers(me)
    try:
        while True:
            question = pipe.recv()
            try:
                pipe.send(functions[question]())
            except Exception as error:
                pipe.send(_Broken(f"{type(error).__name__}: {error}"))
    except (EOFError, OSError):
        sys.exit()


def _end(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        worker.process.kill()
    for worker in workers:
        worker.process.join()
        worker.pipe.close()
