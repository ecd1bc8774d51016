"""The engine: each die runs its flat list of prepared calls until it must wait; then another die runs.

Dies share nothing but messages, and a message has the same bytes whenever it comes, so the order in which
dies run, and on how many threads, changes no bit of any result.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from wscc.backends.binding import Prepared
from wscc.backends.messages import BLOCKED, End, State, Transport
from wscc.diagnostics import Code, CompileError, fail

_SWITCH_SECONDS: Final = 2e-4

DynamicCall = tuple[str, tuple[int, ...]]


@dataclass(slots=True)
class Task:
    """How far a die has come: instruction `pc` of call `call`, whose prepared instructions are `code`, and the end
    it waits for, if it does.

    `worker` is the thread that ran it last, in whose cache its memory is.
    """

    die: int
    worker: int
    call: int = 0
    pc: int = 0
    code: list[Prepared] | None = None
    blocked: End | None = None


@dataclass(slots=True)
class Engine:
    """Runs calls on all dies. `bind(die, call)` gives the prepared instructions of a call;
    `name(die)` is how messages to people call a die, `enter(die, call)` runs before every call."""

    dies: int
    bind: Callable[[int, DynamicCall], list[Prepared]]
    name: Callable[[int], str]
    threads: int = 1
    enter: Callable[[int, DynamicCall], None] | None = None
    transport: Transport = field(init=False)
    changed: threading.Condition = field(init=False)  # of `ready`, `running` or `failures`
    idle: int = 0  # threads that wait for it
    ready: list[deque[Task]] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    running: int = 0
    failures: list[tuple[int, BaseException]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.transport = Transport(self._wake)
        self.changed = threading.Condition(self.transport.lock)

    def run(self, calls: Sequence[Sequence[DynamicCall]]) -> None:
        """Every die makes its own calls, in order. `CompileError`: W502 if dies wait in a circle, or whatever
        an instruction raises, with its place in front."""
        workers = max(1, min(self.threads, self.dies))
        self.tasks = [Task(die, die * workers // self.dies) for die in range(self.dies)]
        self.ready = [deque(t for t in self.tasks if t.worker == w) for w in range(workers)]
        with _quick_switches():
            helpers = [
                threading.Thread(target=self._work, args=(calls, worker), daemon=True)
                for worker in range(1, workers)
            ]
            for helper in helpers:
                helper.start()
            self._work(calls, 0)
            for helper in helpers:
                helper.join()
        if self.failures:
            raise min(self.failures, key=lambda f: f[0])[1]
        if stuck := [task for task in self.tasks if task.call < len(calls[task.die])]:
            raise fail(Code.DEADLOCK, _wait_cycle(stuck, calls, self.name))

    def _work(self, calls: Sequence[Sequence[DynamicCall]], worker: int) -> None:
        task: Task | None = None
        with np.errstate(all="ignore"):
            while True:
                with self.transport.lock:
                    if task is not None:
                        self.running -= 1
                        self._park(task)
                    task = self._next(worker)
                    if task is None:
                        self.changed.notify_all()
                        return
                    self.running += 1
                try:
                    self._advance(task, calls[task.die])
                except BaseException as error:
                    self.failures.append((task.die, error))
                    task.blocked = None

    def _park(self, task: Task) -> None:
        """Leave a die until the end that it waits for is done, as it may be already. The lock is held."""
        if (end := task.blocked) is not None:
            if end.state is State.DONE:
                self.ready[task.worker].append(task)
            else:
                end.waiting = True

    def _next(self, worker: int) -> Task | None:
        """A die to run; None if there will be none any more. The lock is held."""
        while not any(self.ready) and self.running and not self.failures:
            self.idle += 1
            self.changed.wait()
            self.idle -= 1
        return self._take(worker) if any(self.ready) and not self.failures else None

    def _take(self, worker: int) -> Task:
        """The die that became ready last: the message that woke it is still in the cache. Or, from the worker
        with most of them, the die that has waited longest. The lock is held."""
        if self.ready[worker]:
            return self.ready[worker].pop()
        task = max(self.ready, key=len).popleft()
        task.worker = worker
        return task

    def _advance(self, task: Task, calls: Sequence[DynamicCall]) -> None:
        """Run a die until it blocks or ends."""
        task.blocked = None
        while task.call < len(calls):
            code = task.code
            if code is None:
                if self.enter is not None:
                    self.enter(task.die, calls[task.call])
                code = task.code = self.bind(task.die, calls[task.call])
            if self._run_code(task, code, calls):
                task.blocked = code[task.pc][1][0]
                return
            task.call, task.pc, task.code = task.call + 1, 0, None

    def _run_code(self, task: Task, code: list[Prepared], calls: Sequence[DynamicCall]) -> bool:
        """Run from `task.pc` to the end, or to a wait that blocks, which becomes `task.pc`: then True."""
        pc = task.pc
        try:
            for pc in range(task.pc, len(code)):
                run, args = code[pc]
                if run(*args) is BLOCKED:
                    task.pc = pc
                    return True
        except (CompileError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise self._located(task, pc, calls, error) from error
        return False

    def _located(self, task: Task, pc: int, calls: Sequence[DynamicCall], error: Exception) -> CompileError:
        place = f"die {self.name(task.die)}, `{calls[task.call][0]}` instruction {pc}"
        if isinstance(error, CompileError):
            first = error.diagnostics[0]
            return fail(first.code, f"{place}: {first.message}", help=first.help)
        return fail(Code.ARTIFACT, f"{place}: its operands do not fit it")

    def _wake(self, die: int) -> None:
        """Called by the transport with its lock held."""
        task = self.tasks[die]
        self.ready[task.worker].append(task)
        if self.idle:
            self.changed.notify()


@contextmanager
def _quick_switches() -> Iterator[None]:
    """Let a thread whose kernel is done have Python's lock soon, even from one in a run of small instructions,
    which do not give it up: an eighth of a step."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _wait_cycle(stuck: list[Task], calls: Sequence[Sequence[DynamicCall]], name: Callable[[int], str]) -> str:
    """Who waits for whom, from the first stuck die around the circle, or to a die that has ended."""
    waiting = {task.die: task for task in stuck}
    chain: list[int] = []
    die = stuck[0].die
    while die in waiting and die not in chain:
        chain.append(die)
        end = waiting[die].blocked
        assert end is not None
        die = end.peer
    cycle = chain[chain.index(die) :] if die in chain else chain
    words = [_wait(waiting[d], calls[d], name) for d in cycle]
    if die not in chain:
        words.append(f"die {name(die)} has ended")
    return "dies wait for one another: " + "; ".join(words)


def _wait(task: Task, calls: Sequence[DynamicCall], name: Callable[[int], str]) -> str:
    end = task.blocked
    assert end is not None
    what = "to take a message" if end.sends else "to send one"
    return (
        f"die {name(task.die)} in `{calls[task.call][0]}` instruction {task.pc} waits "
        f"on channel {end.channel} for die {name(end.peer)} {what}"
    )
