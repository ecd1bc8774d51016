"""The engine: each die runs its flat list of prepared calls until it must wait; then another die runs.

Dies share nothing but messages, and a message has the same bytes whenever it comes, so the order in which
dies run, and on how many threads, changes no bit of any result.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from wscc.backends.binding import Prepared
from wscc.backends.messages import BLOCKED, End, Transport
from wscc.diagnostics import Code, CompileError, fail

DynamicCall = tuple[str, tuple[int, ...]]


@dataclass(slots=True)
class Task:
    """How far a die has come: instruction `pc` of call `call`, and the end it waits for, if it does.

    `worker` is the thread that ran it last, in whose cache its memory is.
    """

    die: int
    worker: int
    call: int = 0
    pc: int = 0
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
        lock = self.transport.lock
        with np.errstate(all="ignore"):
            while True:
                with lock:
                    while not any(self.ready) and self.running and not self.failures:
                        self.changed.wait()
                    if not any(self.ready) or self.failures:
                        self.changed.notify_all()
                        return
                    task = self._take(worker)
                    self.running += 1
                try:
                    self._advance(task, calls[task.die])
                except BaseException as error:
                    self.failures.append((task.die, error))
                finally:
                    with lock:
                        self.running -= 1
                        if not self.running:
                            self.changed.notify_all()

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
        resumed, task.blocked = task.blocked is not None, None
        while task.call < len(calls):
            if self.enter is not None and not resumed:
                self.enter(task.die, calls[task.call])
            resumed = False
            code = self.bind(task.die, calls[task.call])
            while (pc := self._run_code(task, code, calls)) < len(code):
                end: End = code[pc][1][0]
                task.blocked = end
                if self.transport.park(end):
                    return
            task.call, task.pc = task.call + 1, 0

    def _run_code(self, task: Task, code: list[Prepared], calls: Sequence[DynamicCall]) -> int:
        """Run from `task.pc` to the end or to a wait that blocks, and say where that is."""
        pc = task.pc
        try:
            for pc in range(task.pc, len(code)):
                run, args = code[pc]
                if run(*args) is BLOCKED:
                    task.pc = pc
                    return pc
        except (CompileError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise self._located(task, pc, calls, error) from error
        return len(code)

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
        self.changed.notify()


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
