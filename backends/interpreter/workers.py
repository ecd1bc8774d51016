"""Processes that run the dies of a machine, one for each core: Python's lock lets one thread run at a time.

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
    """Windows cannot."""
    return "fork" in multiprocessing.get_all_start_methods()


def deal(dies: int, stages: int, workers: int) -> tuple[int, ...]:
    """The worker of each die, of which every worker has about as many.

    Dies are numbered with the axes that talk most innermost, so neighbours stay together; and each worker has a
    part of every pipeline stage, if there are enough dies, so that none waits while other stages work.
    """
    each = dies // stages
    if each < workers:
        return tuple(die * workers // dies for die in range(dies))
    return tuple(die % each * workers // each for die in range(dies))


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    pipe: Connection


class Workers:
    """`answers(worker)` is called once in each process; it then answers, for each question that `ask` puts to all,
    with what the function of that name returns. `begin` runs here before every question.

    `CompileError` W506 if one of them ends or fails; none is left then, nor when the last reference to this is gone.
    """

    def __init__(self, count: int, answers: Callable[[int], Answers], begin: Callable[[], None]) -> None:
        self._begin = begin
        context = multiprocessing.get_context("fork")
        pipes = [context.Pipe() for _ in range(count)]
        ours = [ours for ours, _ in pipes]
        self._workers = []
        # An interrupt from the terminal reaches all processes: only this one acts on it, and ends the others.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            for number, (mine, theirs) in enumerate(pipes):
                # A worker ends when no process holds the other end of its pipe, even if this one is killed.
                others = [*ours, *(p for _, p in pipes if p is not theirs)]
                process = context.Process(target=_serve, args=(theirs, others, answers, number), daemon=True)
                with warnings.catch_warnings():
                    # Python warns of threads; those of BLAS and of progress bars hold nothing that a worker uses.
                    warnings.simplefilter("ignore", DeprecationWarning)
                    process.start()
                self._workers.append(_Worker(process, mine))
            self.close = weakref.finalize(self, _end, self._workers)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for _, theirs in pipes:
            theirs.close()

    def ask(self, question: str) -> list[Any]:
        """The answers, in the order of the workers."""
        self._begin()
        try:
            for number in range(len(self._workers)):
                self._talk(number, lambda pipe: pipe.send(question))
            found: dict[int, Any] = {}
            waiting = {w.pipe: i for i, w in enumerate(self._workers)}
            while waiting:
                for pipe in wait(list(waiting)):
                    number = waiting.pop(pipe)  # type: ignore[call-overload]
                    found[number] = self._talk(number, Connection.recv)
                    if isinstance(found[number], _Broken):
                        raise fail(Code.WORKER, f"worker {number} failed: {found[number].words}")
        except BaseException:
            self.close()
            raise
        return [found[i] for i in range(len(self._workers))]

    def _talk(self, number: int, act: Callable[[Connection], Any]) -> Any:
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
    """An answer that could not be given."""

    words: str


def _serve(
    pipe: Connection, others: Sequence[Connection], answers: Callable[[int], Answers], me: int
) -> None:
    """The life of a worker."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:
        other.close()
    gc.freeze()  # what is there already is shared as long as nobody touches it
    known = answers(me)
    try:
        while True:
            question = pipe.recv()
            try:
                pipe.send(known[question]())
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
