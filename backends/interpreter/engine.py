"""The engine: each die runs its flat list of prepared calls until it must wait; then another die runs.

Dies share nothing but messages, and a message has the same bytes whenever it comes, so neither the order in which
dies run nor the number of processes changes a bit of any result. Neither does it change which dies fail or get
stuck: the others run as far as they can before an error is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from wscc.backends.interpreter.kernels.views import Prepared
from wscc.backends.interpreter.messages import BLOCKED, End, Transport
from wscc.diagnostics import Code, CompileError, Diagnostic, fail

DynamicCall = tuple[str, tuple[int, ...]]


@dataclass(slots=True)
class Task:
    """The position of a die: instruction `pc` of call `call`, whose prepared instructions are `code`, and the end
    of the channel that it waits for, if it waits."""

    die: int
    call: int = 0
    pc: int = 0
    code: list[Prepared] | None = None
    blocked: End | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """The position of a stuck die, and the message that it waits for."""

    die: int
    procedure: str
    pc: int
    channel: int
    sends: bool
    peer: int


@dataclass(frozen=True, slots=True)
class Ending:
    """The outcome of a step: failures (die, diagnostics) and stuck dies; both are empty if it ran to its end."""

    failures: tuple[tuple[int, tuple[Diagnostic, ...]], ...] = ()
    stuck: tuple[Wait, ...] = ()


@dataclass(slots=True)
class Engine:
    """Runs calls on the dies of one process. `bind(die, call)` gives the prepared instructions of a call, whose
    messages go by `transport`; `name(die)` names a die in error texts, `enter(die, call)` runs before every call."""

    dies: Sequence[int]
    bind: Callable[[int, DynamicCall], list[Prepared]]
    name: Callable[[int], str]
    transport: Transport
    enter: Callable[[int, DynamicCall], None] | None = None
    tasks: dict[int, Task] = field(default_factory=dict)

    def run(self, calls: Sequence[Sequence[DynamicCall]]) -> Ending:
        """Run the calls of each die in order, until it ends, fails or is stuck."""
        self.tasks = {die: Task(die) for die in self.dies}
        ready = self.transport.ready
        ready[:] = self.dies
        failures: list[tuple[int, tuple[Diagnostic, ...]]] = []
        with np.errstate(all="ignore"):
            while ready or self.transport.rest():
                while ready:
                    # The die that became ready last: the message that woke it is still in the cache.
                    task = self.tasks[ready.pop()]
                    try:
                        self._advance(task, calls[task.die])
                    except CompileError as error:
                        failures.append((task.die, error.diagnostics))
                        task.blocked = None
                    self.transport.poll()
        stuck = [_wait(t, t.blocked, calls[t.die]) for t in self.tasks.values() if t.blocked is not None]
        return Ending(tuple(failures), tuple(stuck))

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
                task.blocked.waiting = True
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
        """The error with the die and instruction in front of its text."""
        place = f"die {self.name(task.die)}, `{calls[task.call][0]}` instruction {pc}"
        if isinstance(error, CompileError):
            first = error.diagnostics[0]
            return fail(first.code, f"{place}: {first.message}", help=first.help)
        return fail(Code.ARTIFACT, f"{place}: its operands do not fit it")


def _wait(task: Task, end: End, calls: Sequence[DynamicCall]) -> Wait:
    return Wait(task.die, calls[task.call][0], task.pc, end.channel, end.sends, end.peer)


def settle(endings: Sequence[Ending], name: Callable[[int], str]) -> None:
    """Raise the `CompileError` of the first die that failed; else W502 if dies wait for one another."""
    failures = [failure for ending in endings for failure in ending.failures]
    if failures:
        raise CompileError(*min(failures, key=lambda f: f[0])[1])
    stuck = {wait.die: wait for ending in endings for wait in ending.stuck}
    if stuck:
        raise fail(Code.DEADLOCK, _wait_cycle(stuck, name))


def _wait_cycle(stuck: dict[int, Wait], name: Callable[[int], str]) -> str:
    """The cycle of waits from the first stuck die, or the chain of waits that leads to a die that has ended."""
    chain: list[int] = []
    die = min(stuck)
    while die in stuck and die not in chain:
        chain.append(die)
        die = stuck[die].peer
    cycle = chain[chain.index(die) :] if die in chain else chain
    words = [_sentence(stuck[d], name) for d in cycle]
    if die not in chain:
        words.append(f"die {name(die)} has ended")
    return "dies wait for one another: " + "; ".join(words)


def _sentence(wait: Wait, name: Callable[[int], str]) -> str:
    what = "to take a message" if wait.sends else "to send one"
    return (
        f"die {name(wait.die)} in `{wait.procedure}` instruction {wait.pc} waits "
        f"on channel {wait.channel} for die {name(wait.peer)} {what}"
    )
