"""Worker processes, which do the work of one command together; threads would take turns, as Python's lock lets one run.

They are forked, so that they have all that this process has and share the memory that it has mapped. None outlives what
it works for: one that ends is an error that ends all, and all end with this process, however it ends.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import select
import signal
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any

from wscc.diagnostics import Code, CompileError, fail

Answers = dict[str, Callable[..., Any]]


def can_fork() -> bool:
    """True if this process can fork workers: Windows cannot, and neither may a worker of another pool."""
    daemonic = multiprocessing.current_process().daemon
    return "fork" in multiprocessing.get_all_start_methods() and not daemonic


@dataclass(slots=True)
class _Worker:
    """A process, this process's end of a pipe to it, and words on what it is doing; empty: it has no question."""

    process: BaseProcess
    pipe: Connection
    doing: str = ""


class Workers:
    """A pool of `count` worker processes. `answers(worker)` is called once in each and has a function for every
    question; `alone` is the option with which a command does without workers.

    `CompileError` W506 if a process cannot be started, ends or fails. All are ended then, as on any other exception
    while they work, and when the last reference to this is gone.
    """

    def __init__(self, count: int, answers: Callable[[int], Answers], *, alone: str) -> None:
        self._alone = alone
        self._workers: list[_Worker] = []
        self.close = weakref.finalize(self, _end, self._workers, os.getpid())
        # An interrupt from the terminal reaches all processes: only this one acts on it, and ends the others.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            self._start(count, answers)
        except OSError as problem:
            self.close()
            raise fail(
                Code.WORKER, f"cannot start {count} workers: {(problem.strerror or 'no reason given').lower()}",
                help=f"end other programs, or work with fewer processes: `{alone}`",
            ) from None  # fmt: skip
        except BaseException:
            self.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _start(self, count: int, answers: Callable[[int], Answers]) -> None:
        context = multiprocessing.get_context("fork")
        pipes = [context.Pipe() for _ in range(count)]
        try:
            for number, (own_end, worker_end) in enumerate(pipes):
                # A pipe tells that one side has ended once no other process holds that end of it.
                others = [p for pair in pipes for p in pair if p is not worker_end]
                process = context.Process(
                    target=_serve, args=(worker_end, others, answers, number), daemon=True
                )
                with warnings.catch_warnings():
                    # Python warns of threads; those of BLAS and of progress bars hold nothing that a worker uses.
                    warnings.simplefilter("ignore", DeprecationWarning)
                    process.start()
                self._workers.append(_Worker(process, own_end))
        finally:
            for _, worker_end in pipes:
                worker_end.close()
            for own_end, _ in pipes[len(self._workers) :]:
                own_end.close()

    def ask(self, question: str, doing: str) -> list[Any]:
        """The answers of all workers to a question, in the order of the workers; `doing` says what it asks for."""
        with self._ending():
            for worker in self._workers:
                self._put(worker, question, (), doing)
            return [answer for _, answer in sorted(self._answers(), key=lambda a: a[0])]

    def each(self, question: str, items: Sequence[Any], doing: Callable[[Any], str]) -> Iterator[Any]:
        """The answers to a question about each item, in the order of the items: who is idle gets the next one."""
        answers: dict[int, Any] = {}
        given: list[int] = [-1] * len(self._workers)
        waiting = list(range(len(items)))[::-1]

        def give(number: int) -> None:
            if waiting:
                given[number] = waiting.pop()
                item = items[given[number]]
                self._put(self._workers[number], question, (item,), doing(item))

        with self._ending():
            for number in range(len(self._workers)):
                give(number)
            done = 0
            for number, answer in self._answers():
                answers[given[number]] = answer
                give(number)
                while done in answers:
                    yield answers.pop(done)
                    done += 1

    def _put(self, worker: _Worker, question: str, arguments: tuple[Any, ...], doing: str) -> None:
        worker.doing = doing
        try:
            worker.pipe.send((question, arguments))
        except OSError:
            raise self._ended(worker) from None

    def _answers(self) -> Iterator[tuple[int, Any]]:
        """(worker, answer) as they come, until no worker has a question."""
        numbers = {w.pipe: i for i, w in enumerate(self._workers)}
        while busy := [w.pipe for w in self._workers if w.doing]:
            for pipe in wait(busy):
                number = numbers[pipe]  # type: ignore[index]
                worker = self._workers[number]
                try:
                    answer = worker.pipe.recv()
                except (EOFError, OSError):
                    raise self._ended(worker) from None
                if isinstance(answer, _Broken):
                    raise fail(Code.WORKER, f"worker {number} failed while {worker.doing}: {answer.words}")
                worker.doing = ""
                yield number, answer

    def _ended(self, worker: _Worker) -> CompileError:
        """The error that a worker has ended."""
        worker.process.join()
        number, status = self._workers.index(worker), worker.process.exitcode or 0
        how = f"was ended by {_signal(-status)}" if status < 0 else f"ended with status {status}"
        return fail(
            Code.WORKER,
            f"worker {number} of {len(self._workers)} {how} while {worker.doing}",
            help=f"a system out of memory sends SIGKILL: take a smaller model, or one process: `{self._alone}`",
        )

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """Ends all workers on an exception: they may still be at work, or wait for the one that ended."""
        try:
            if not self.close.alive:
                raise fail(Code.WORKER, "the workers have ended", help="begin again")
            yield
        except BaseException:
            self.close()
            raise


def _signal(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"


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
    threading.Thread(target=_end_with, args=(pipe.fileno(),), daemon=True).start()
    gc.freeze()  # memory that exists already is shared as long as no collection writes to it
    functions = cache(lambda: answers(me))
    try:
        while True:
            question, arguments = pipe.recv()
            pipe.send_bytes(_answer(functions, question, arguments))
    except (EOFError, OSError):
        os._exit(1)


def _answer(functions: Callable[[], Answers], question: str, arguments: tuple[Any, ...]) -> memoryview:
    """The pickled answer to a question, or the error that it ends with."""
    try:
        return ForkingPickler.dumps(functions()[question](*arguments))
    except Exception as error:
        return ForkingPickler.dumps(_Broken(f"{type(error).__name__}: {error}"))


def _end_with(pipe: int) -> None:
    """End this process once the other end of a pipe is closed, whatever it is doing."""
    poll = select.poll()
    poll.register(pipe, 0)  # that the other end is closed is always told
    poll.poll()
    os._exit(1)


def _end(workers: Sequence[_Worker], owner: int) -> None:
    """End all workers; a fork of their owner has no say in it."""
    if os.getpid() != owner:
        return
    for worker in workers:
        worker.process.kill()
    for worker in workers:
        worker.process.join()
        worker.pipe.close()
